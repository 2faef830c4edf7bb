// Rung 3. C = alpha A B + beta C in fp32, with square tiles in static shared memory.
//
//                     B                 A block of 32 x 32 threads computes 32 x 32 of C, one
//                  +---+---+---+        element a thread, in phases of 32 steps along K:
//                  |   | # |   |
//                  +---+---+---+          1. each thread loads one element of each tile, zeros past
//         A        |   | # |   |             the edges;
//      +---+---+   +---+---+---+          2. barrier: the tiles are complete;
//      |   |   |   |   |   |   |          3. each thread adds 32 products from the tiles;
//      +---+---+   +---+---+---+          4. barrier: the tiles may be overwritten.
//      | # | # |   |   | C |   |
//      +---+---+   +---+---+---+        A loaded element is used 32 times: 8 FLOP a byte.
//
// Constraints: row-major matrices; blocks of 32 x 32 threads; the grid covers C.
#include "common/depth.cuh"

constexpr int WIDTH = 32;

__global__ void __launch_bounds__(WIDTH* WIDTH)
    tiled(const float* __restrict__ a, long long lda, const float* __restrict__ b, long long ldb,
          float* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta) {
    __shared__ float a_tile[WIDTH * WIDTH];
    __shared__ float b_tile[WIDTH * WIDTH];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * WIDTH + y, column = blockIdx.x * WIDTH + x;

    float sum = 0.0f;
    const int depth = summed(k, alpha);  // 0 if alpha is 0: A and B are not read then
    for (int first = 0; first < depth; first += WIDTH) {
        const bool a_inside = row < m && first + x < k, b_inside = first + y < k && column < n;
        a_tile[y * WIDTH + x] = a_inside ? a[row * lda + first + x] : 0.0f;
        b_tile[y * WIDTH + x] = b_inside ? b[(first + y) * ldb + column] : 0.0f;
        __syncthreads();
        for (int p = 0; p < WIDTH; ++p) sum += a_tile[y * WIDTH + p] * b_tile[p * WIDTH + x];
        __syncthreads();
    }

    if (row >= m || column >= n) return;
    float& result = c[row * ldc + column];
    result = beta == 0.0f ? alpha * sum : alpha * sum + beta * result;
}
