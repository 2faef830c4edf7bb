// Rung 1. C = alpha A B + beta C in fp32: one thread an element of C, all from global memory.
//
//            N ->               A block of 32 x 32 threads computes 32 x 32 elements of C. Each
//        +---+---+---+          thread walks along a row of A and a column of B: two loads for one
//     M  |   |   |   |          multiply-add, 0.25 FLOP a byte.
//     |  +---+---+---+
//     v  |   | # |   |          threadIdx.x runs along M. The 32 threads of a warp read A and write
//        +---+---+---+          C whole rows apart: 32 cache lines for each load of A.
//
// Constraints: row-major matrices; blocks of 32 x 32 threads; the grid covers C.
#include "common/depth.cuh"

__global__ void __launch_bounds__(1024)
    naive(const float* __restrict__ a, long long lda, const float* __restrict__ b, long long ldb,
          float* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta) {
    const int row = blockIdx.y * 32 + threadIdx.x;
    const int column = blockIdx.x * 32 + threadIdx.y;
    if (row >= m || column >= n) return;

    float sum = 0.0f;
    const int depth = summed(k, alpha);  // 0 if alpha is 0: A and B are not read then
    for (int p = 0; p < depth; ++p) sum += a[row * lda + p] * b[p * ldb + column];

    float& result = c[row * ldc + column];
    result = beta == 0.0f ? alpha * sum : alpha * sum + beta * result;
}
