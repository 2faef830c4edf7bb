// Multiplies square matrices of floats: C = A B, each n x n and row-major.
//
// A block computes a tile of C from tiles of A and B in shared memory, a thread items_y x items_x
// elements of it in registers:
//
//     tile_x = block_size_x * items_x columns, tile_y = block_size_y * items_y rows, tile_k deep
//
// Parameters (macros):
//   block_size_x, block_size_y    threads of a block
//   items_x, items_y              elements of a thread
//   tile_k                        columns of A and rows of B in shared memory at a time
//   padding                       floats added to each row of A's tile, against bank conflicts
//   contiguous                    1: a thread's elements are adjacent; 0: they are interleaved
//   prefetch                      1: the next tiles are loaded to registers during the product
//
// Constraints: n is a multiple of tile_x, tile_y and tile_k, the threads divide the elements of
// both tiles, and the tiles fit into 48 KB.

#define tile_x (block_size_x * items_x)
#define tile_y (block_size_y * items_y)
#define threads (block_size_x * block_size_y)
#define loads_a (tile_y * tile_k / threads)
#define loads_b (tile_k * tile_x / threads)

extern "C" __global__ void __launch_bounds__(threads)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    __shared__ float tile_a[tile_k][tile_y + padding], tile_b[tile_k][tile_x];
    const int thread = threadIdx.y * block_size_x + threadIdx.x;
    const int left = blockIdx.x * tile_x, top = blockIdx.y * tile_y;
    float sums[items_y][items_x] = {}, next_a[loads_a], next_b[loads_b];

    auto load = [&](int k) {
#pragma unroll
        for (int i = 0; i < loads_a; ++i) {
            const int at = thread + i * threads;
            next_a[i] = a[(size_t)(top + at / tile_k) * n + k + at % tile_k];
        }
#pragma unroll
        for (int i = 0; i < loads_b; ++i) {
            const int at = thread + i * threads;
            next_b[i] = b[(size_t)(k + at / tile_x) * n + left + at % tile_x];
        }
    };
    auto row = [&](int i) { return contiguous ? threadIdx.y * items_y + i
                                              : threadIdx.y + i * block_size_y; };
    auto column = [&](int i) { return contiguous ? threadIdx.x * items_x + i
                                                 : threadIdx.x + i * block_size_x; };

    if (prefetch) load(0);
    for (int k = 0; k < n; k += tile_k) {
        if (!prefetch) load(k);
#pragma unroll
        for (int i = 0; i < loads_a; ++i) {
            const int at = thread + i * threads;
            tile_a[at % tile_k][at / tile_k] = next_a[i];
        }
#pragma unroll
        for (int i = 0; i < loads_b; ++i) {
            const int at = thread + i * threads;
            tile_b[at / tile_x][at % tile_x] = next_b[i];
        }
        __syncthreads();
        if (prefetch && k + tile_k < n) load(k + tile_k);
#pragma unroll
        for (int kk = 0; kk < tile_k; ++kk) {
            float left_factor[items_y], right_factor[items_x];
#pragma unroll
            for (int j = 0; j < items_y; ++j) left_factor[j] = tile_a[kk][row(j)];
#pragma unroll
            for (int i = 0; i < items_x; ++i) right_factor[i] = tile_b[kk][column(i)];
#pragma unroll
            for (int j = 0; j < items_y; ++j) {
#pragma unroll
                for (int i = 0; i < items_x; ++i) sums[j][i] += left_factor[j] * right_factor[i];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < items_y; ++j) {
#pragma unroll
        for (int i = 0; i < items_x; ++i)
            c[(size_t)(top + row(j)) * n + left + column(i)] = sums[j][i];
    }
}
