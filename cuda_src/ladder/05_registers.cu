// Rung 5. C = alpha A B + beta C in fp32: each thread keeps 8 x 8 sums in registers.
//
//        128                    A block of 256 threads computes a 128 x 128 tile of C, 8 x 8
//      +--------------+         elements a thread:
//      | 0 | 1 |..| 15|
//      +---+---+  +---+           1. the block loads 128 x 8 of A and 8 x 128 of B, element by
//  128 | 16| 8 x 8    |              element;
//      +---+---+      |           2. barrier;
//      | ..           |           3. for each of 8 steps along K a thread reads 8 elements of each
//      +--------------+              tile and adds their 64 products;
//                                 4. barrier.
//
// 16 loads from shared memory feed 64 multiply-adds, where a tile of one element a thread takes 2
// for 1. A loaded element is used 128 times: 32 FLOP a byte.
//
// Constraints: row-major matrices; m and n multiples of 128, k of 8; the grid covers C.
#include "common/depth.cuh"

constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8, THREADS = BM * BN / (TM * TN);

__global__ void __launch_bounds__(THREADS)
    registers(const float* __restrict__ a, long long lda, const float* __restrict__ b,
              long long ldb, float* __restrict__ c, long long ldc, int m, int n, int k, float alpha,
              float beta) {
    __shared__ float a_tile[BM * BK];  // [row][step]
    __shared__ float b_tile[BK * BN];  // [step][column]
    const int thread_row = threadIdx.x / (BN / TN) * TM;
    const int thread_column = threadIdx.x % (BN / TN) * TN;
    // The first element of each operand that this thread loads.
    const int a_row = threadIdx.x / BK, a_step = threadIdx.x % BK;
    const int b_step = threadIdx.x / BN, b_column = threadIdx.x % BN;
    a += static_cast<long long>(blockIdx.y) * BM * lda;
    b += static_cast<long long>(blockIdx.x) * BN;

    float sums[TM][TN] = {};
    const int depth = summed(k, alpha);  // 0 if alpha is 0: A and B are not read then
    for (int first = 0; first < depth; first += BK) {
#pragma unroll
        for (int i = 0; i < BM * BK; i += THREADS)
            a_tile[i + threadIdx.x] = a[(i / BK + a_row) * lda + first + a_step];
#pragma unroll
        for (int i = 0; i < BK * BN; i += THREADS)
            b_tile[i + threadIdx.x] = b[(first + i / BN + b_step) * ldb + b_column];
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; ++p) {
            float a_values[TM], b_values[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) a_values[i] = a_tile[(thread_row + i) * BK + p];
#pragma unroll
            for (int j = 0; j < TN; ++j) b_values[j] = b_tile[p * BN + thread_column + j];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sums[i][j] += a_values[i] * b_values[j];
        }
        __syncthreads();
    }

    c += (static_cast<long long>(blockIdx.y) * BM + thread_row) * ldc;
    c += static_cast<long long>(blockIdx.x) * BN + thread_column;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            float& result = c[i * ldc + j];
            result = beta == 0.0f ? alpha * sums[i][j] : alpha * sums[i][j] + beta * result;
        }
    }
}
