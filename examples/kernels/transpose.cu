// Transposes a matrix of floats: out[x][y] = in[y][x].
//
// A block moves a tile of tile_y rows and tile_x columns through shared memory, so that adjacent
// threads access adjacent floats of both matrices:
//
//     tile_x = block_size_x * items_x, tile_y = block_size_y * items_y
//
// Parameters (macros):
//   block_size_x, block_size_y    threads of a block
//   items_x, items_y              floats of a thread along both axes
//   padding                       floats added to each row of the tile, against bank conflicts
//   diagonal                      1: consecutive blocks start at tiles along diagonals
//
// Constraints: (tile_x + padding) * tile_y floats fit into 48 KB of static shared memory.

#define tile_x (block_size_x * items_x)
#define tile_y (block_size_y * items_y)

extern "C" __global__ void __launch_bounds__(block_size_x * block_size_y)
transpose(const float* __restrict__ in, float* __restrict__ out, int rows, int columns) {
    __shared__ float tile[tile_y][tile_x + padding];
    const int across = diagonal ? (blockIdx.x + blockIdx.y) % gridDim.x : blockIdx.x;
    const int left = across * tile_x, top = blockIdx.y * tile_y;
#pragma unroll
    for (int j = 0; j < items_y; ++j) {
#pragma unroll
        for (int i = 0; i < items_x; ++i) {
            const int x = threadIdx.x + i * block_size_x, y = threadIdx.y + j * block_size_y;
            if (left + x < columns && top + y < rows)
                tile[y][x] = in[(size_t)(top + y) * columns + left + x];
        }
    }
    __syncthreads();
    const int thread = threadIdx.y * block_size_x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < items_x * items_y; ++k) {
        const int at = thread + k * block_size_x * block_size_y;
        const int y = at % tile_y, x = at / tile_y;
        if (left + x < columns && top + y < rows)
            out[(size_t)(left + x) * rows + top + y] = tile[y][x];
    }
}
