// One Jacobi step of a 5-point stencil: each inner point becomes the mean of its four neighbours,
// weighted with itself. The border stays as it is.
//
// A block computes a tile of (block_size_x * tile_x) x (block_size_y * tile_y) points, a thread
// tile_x x tile_y of them. With use_shared the tile and a halo one point wide are in shared memory.
//
// Parameters (macros):
//   block_size_x, block_size_y    threads of a block
//   tile_x, tile_y                points of a thread
//   use_shared                    1: points are read from shared memory
//   read_only                     1: global loads take the read-only path
//
// Constraints: with use_shared the tile and its halo fit into 48 KB.

#define width_of_tile (block_size_x * tile_x)
#define height_of_tile (block_size_y * tile_y)

__device__ float load(const float* at) { return read_only ? __ldg(at) : *at; }

extern "C" __global__ void __launch_bounds__(block_size_x * block_size_y)
stencil5(const float* in, float* out, int height, int width, float weight) {
    const int left = blockIdx.x * width_of_tile, top = blockIdx.y * height_of_tile;
#if use_shared
    __shared__ float tile[height_of_tile + 2][width_of_tile + 2];
    for (int y = threadIdx.y; y < height_of_tile + 2; y += block_size_y) {
        for (int x = threadIdx.x; x < width_of_tile + 2; x += block_size_x) {
            const int column = min(max(left + x - 1, 0), width - 1);
            const int row = min(max(top + y - 1, 0), height - 1);
            tile[y][x] = load(in + (size_t)row * width + column);
        }
    }
    __syncthreads();
#endif
#pragma unroll
    for (int j = 0; j < tile_y; ++j) {
#pragma unroll
        for (int i = 0; i < tile_x; ++i) {
            const int x = threadIdx.x + i * block_size_x, y = threadIdx.y + j * block_size_y;
            const int column = left + x, row = top + y;
            if (column >= width || row >= height) continue;
            const bool inner = column > 0 && column < width - 1 && row > 0 && row < height - 1;
            const size_t at = (size_t)row * width + column;
#if use_shared
            const float middle = tile[y + 1][x + 1];
            const float around = tile[y][x + 1] + tile[y + 2][x + 1] + tile[y + 1][x] +
                                 tile[y + 1][x + 2];
#else
            const float middle = load(in + at);
            const float around = inner ? load(in + at - width) + load(in + at + width) +
                                             load(in + at - 1) + load(in + at + 1)
                                       : 0.0f;
#endif
            out[at] = inner ? middle + weight * (around - 4.0f * middle) : middle;
        }
    }
}
