// Convolves an image of floats with a filter in constant memory.
//
// The input has a border of filter_width - 1 columns and filter_height - 1 rows more than the
// output. A block computes (block_size_x * tile_size_x) x (block_size_y * tile_size_y) outputs from
// a tile of the input in shared memory; a thread computes tile_size_x x tile_size_y of them.
//
// Parameters (macros):
//   block_size_x, block_size_y    threads of a block
//   tile_size_x, tile_size_y      outputs of a thread
//   filter_width, filter_height   size of the filter
//   use_padding                   1: one more float in each row of the tile
//   read_only                     1: global loads take the read-only path
//
// Constraints: the tile with its border fits into 48 KB.

#define border_width (filter_width - 1)
#define border_height (filter_height - 1)
#define tile_width (block_size_x * tile_size_x)
#define tile_height (block_size_y * tile_size_y)

__constant__ float d_filter[filter_height * filter_width];

extern "C" __global__ void __launch_bounds__(block_size_x * block_size_y)
convolution(float* output, const float* input, int height, int width) {
    __shared__ float tile[tile_height + border_height][tile_width + border_width + use_padding];
    const int left = blockIdx.x * tile_width, top = blockIdx.y * tile_height;
    const int pitch = width + border_width;
    for (int y = threadIdx.y; y < tile_height + border_height; y += block_size_y) {
        for (int x = threadIdx.x; x < tile_width + border_width; x += block_size_x) {
            const bool inside = left + x < pitch && top + y < height + border_height;
            const float* at = input + (size_t)(top + y) * pitch + left + x;
            tile[y][x] = !inside ? 0.0f : read_only ? __ldg(at) : *at;
        }
    }
    __syncthreads();

    float sums[tile_size_y][tile_size_x] = {};
    for (int fy = 0; fy < filter_height; ++fy) {
#pragma unroll
        for (int fx = 0; fx < filter_width; ++fx) {
#pragma unroll
            for (int j = 0; j < tile_size_y; ++j) {
#pragma unroll
                for (int i = 0; i < tile_size_x; ++i)
                    sums[j][i] += tile[threadIdx.y + j * block_size_y + fy]
                                      [threadIdx.x + i * block_size_x + fx] *
                                  d_filter[fy * filter_width + fx];
            }
        }
    }
#pragma unroll
    for (int j = 0; j < tile_size_y; ++j) {
#pragma unroll
        for (int i = 0; i < tile_size_x; ++i) {
            const int x = left + threadIdx.x + i * block_size_x;
            const int y = top + threadIdx.y + j * block_size_y;
            if (x < width && y < height) output[(size_t)y * width + x] = sums[j][i];
        }
    }
}
