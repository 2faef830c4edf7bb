// Rung 2. C = alpha A B + beta C in fp32: one thread an element of C, neighbours along a row.
//
//            N ->               A block of 32 x 32 threads computes 32 x 32 elements of C. Each
//        +---+---+---+          thread walks along a row of A and a column of B: two loads for one
//     M  |   |   |   |          multiply-add, 0.25 FLOP a byte.
//     |  +---+---+---+
//     v  |   | # |   |          threadIdx.x runs along N. The 32 threads of a warp share an element
//        +---+---+---+          of A and read 32 neighbours of B: one cache line each.
//
// Constraints: row-major matrices; blocks of 32 x 32 threads; the grid covers C.
#include "common/depth.cuh"

__global__ void __launch_bounds__(1024)
    coalesced(const float* __restrict__ a, long long lda, const float* __restrict__ b,
              long long ldb, float* __restrict__ c, long long ldc, int m, int n, int k, float alpha,
              float beta) {
    const int row = blockIdx.y * 32 + threadIdx.y;
    const int column = blockIdx.x * 32 + threadIdx.x;
    if (row >= m || column >= n) return;

    float sum = 0.0f;
    const int depth = summed(k, alpha);  // 0 if alpha is 0: A and B are not read then
    for (int p = 0; p < depth; ++p) sum += a[row * lda + p] * b[p * ldb + column];

    float& result = c[row * ldc + column];
    result = beta == 0.0f ? alpha * sum : alpha * sum + beta * result;
}
