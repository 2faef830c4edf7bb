// Rung 4. C = alpha A B + beta C in fp32, with square tiles whose width the launch chooses.
//
//                     B                 A block of W x W threads computes W x W of C, one
//                  +---+---+---+        element a thread, in phases of W steps along K:
//                  |   | # |   |
//                  +---+---+---+          1. each thread loads one element of each tile, zeros past
//         A        |   | # |   |             the edges;
//      +---+---+   +---+---+---+          2. barrier: the tiles are complete;
//      |   |   |   |   |   |   |          3. each thread adds W products from the tiles;
//      +---+---+   +---+---+---+          4. barrier: the tiles may be overwritten.
//      | # | # |   |   | C |   |
//      +---+---+   +---+---+---+        A loaded element is used W times: W / 4 FLOP a byte.
//
// One compiled kernel serves every device: the host asks for the limits and launches the widest
// tile that fits. The compiler no longer knows W, so it can neither unroll the loop over a tile nor
// read several elements of A at once.
//
// Constraints: row-major matrices; blocks of W x W threads, W at most 32, with 8 W W bytes of
// dynamic shared memory; the grid covers C.
#include "common/depth.cuh"

__global__ void __launch_bounds__(1024)
    dynamic(const float* __restrict__ a, long long lda, const float* __restrict__ b, long long ldb,
            float* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta) {
    extern __shared__ float tiles[];
    const int width = blockDim.x;
    float* a_tile = tiles;
    float* b_tile = tiles + width * width;
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * width + y, column = blockIdx.x * width + x;

    float sum = 0.0f;
    const int depth = summed(k, alpha);  // 0 if alpha is 0: A and B are not read then
    for (int first = 0; first < depth; first += width) {
        const bool a_inside = row < m && first + x < k, b_inside = first + y < k && column < n;
        a_tile[y * width + x] = a_inside ? a[row * lda + first + x] : 0.0f;
        b_tile[y * width + x] = b_inside ? b[(first + y) * ldb + column] : 0.0f;
        __syncthreads();
        for (int p = 0; p < width; ++p) sum += a_tile[y * width + p] * b_tile[p * width + x];
        __syncthreads();
    }

    if (row >= m || column >= n) return;
    float& result = c[row * ldc + column];
    result = beta == 0.0f ? alpha * sum : alpha * sum + beta * result;
}
