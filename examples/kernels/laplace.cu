// The 7-point Laplacian of a 3-D grid of floats, with zeros outside it.
//
// A thread computes tile_z points above each other and keeps the column in registers.
//
// Parameters (macros):
//   block_size_x, block_size_y, block_size_z    threads of a block
//   tile_z                                      points of a thread along z
//   unroll                                      points along z that are unrolled
//   read_only                                   1: loads take the read-only path

extern "C" __global__ void __launch_bounds__(block_size_x * block_size_y * block_size_z)
laplace(const float* in, float* out, int depth, int height, int width) {
    constexpr int unrolled = unroll;  // a pragma does not expand macros
    const int x = blockIdx.x * block_size_x + threadIdx.x;
    const int y = blockIdx.y * block_size_y + threadIdx.y;
    const int first = (blockIdx.z * block_size_z + threadIdx.z) * tile_z;
    if (x >= width || y >= height) return;
    const size_t layer = (size_t)height * width;
    auto load = [&](int z, int j, int i) {
        if (i < 0 || i >= width || j < 0 || j >= height || z < 0 || z >= depth) return 0.0f;
        const float* at = in + z * layer + (size_t)j * width + i;
        return read_only ? __ldg(at) : *at;
    };
    float below = load(first - 1, y, x), middle = load(first, y, x);
#pragma unroll unrolled
    for (int i = 0; i < tile_z; ++i) {
        const int z = first + i;
        if (z >= depth) break;
        const float above = load(z + 1, y, x);
        out[z * layer + (size_t)y * width + x] = below + above + load(z, y - 1, x) +
                                                 load(z, y + 1, x) + load(z, y, x - 1) +
                                                 load(z, y, x + 1) - 6.0f * middle;
        below = middle;
        middle = above;
    }
}
