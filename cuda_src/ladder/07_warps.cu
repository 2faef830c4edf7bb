// Rung 7. C = alpha A B + beta C in fp32: warps have tiles, and threads pieces of 4 x 4.
//
//        128                          32
//      +----+----+----+----+        +--------+--------+     A warp's lanes are 8 x 4. Each has
//      | w0 | w1 | w2 | w3 |        | 0 1 2 3| 0 1 2 3|     pieces of 4 x 4 elements, two along
//      |    |    |    |    |        | 4 5 ...| 4 5 ...|     each side, a lane's neighbours in
//  128 +----+----+----+----+     64 +--------+--------+     between. Together the lanes read 128
//      | w4 | w5 | w6 | w7 |        | 0 1 2 3| 0 1 2 3|     neighbouring bytes of A and 64 of B:
//      |    |    |    |    |        | 4 5 ...| 4 5 ...|     no two of a read lie in one bank.
//      +----+----+----+----+        +--------+--------+
//
// Constraints: row-major matrices; m and n multiples of 128, k of 8; rows start at multiples of 16
// bytes; the grid covers C.
#include "common/depth.cuh"
#include "common/vector.cuh"

constexpr int BM = 128, BN = 128, BK = 8, WM = 64, WN = 32, TM = 8, TN = 8;
constexpr int THREADS = BM * BN / (TM * TN);
constexpr int LANES_N = WN / TN;
constexpr int STEP_M = WM / TM * 4, STEP_N = WN / TN * 4;  // from a thread's piece to its next

__global__ void __launch_bounds__(THREADS, 2)
    warps(const float* __restrict__ a, long long lda, const float* __restrict__ b, long long ldb,
          float* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta) {
    __shared__ __align__(16) float a_tile[BK * BM];  // [step][row]
    __shared__ __align__(16) float b_tile[BK * BN];  // [step][column]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_row = warp / (BN / WN) * WM + lane / LANES_N * 4;
    const int thread_column = warp % (BN / WN) * WN + lane % LANES_N * 4;
    // The vector of each operand that this thread loads.
    const int a_row = threadIdx.x / (BK / 4), a_step = threadIdx.x % (BK / 4) * 4;
    const int b_step = threadIdx.x / (BN / 4), b_column = threadIdx.x % (BN / 4) * 4;
    a += (static_cast<long long>(blockIdx.y) * BM + a_row) * lda + a_step;
    b += b_step * ldb + static_cast<long long>(blockIdx.x) * BN + b_column;

    float sums[TM][TN] = {};
    const int depth = summed(k, alpha);  // 0 if alpha is 0: A and B are not read then
    for (int first = 0; first < depth; first += BK) {
        alignas(16) float loaded[4];
        load_vector<4>(loaded, a + first);
#pragma unroll
        for (int i = 0; i < 4; ++i) a_tile[(a_step + i) * BM + a_row] = loaded[i];
        load_vector<4>(loaded, b + first * ldb);
        copy_vector<4>(b_tile + b_step * BN + b_column, loaded);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; ++p) {
            alignas(16) float a_values[TM], b_values[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4)
                copy_vector<4>(a_values + i, a_tile + p * BM + thread_row + i / 4 * STEP_M);
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                copy_vector<4>(b_values + j, b_tile + p * BN + thread_column + j / 4 * STEP_N);
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
        for (int j = 0; j < TN; j += 4) {
            float* result = c + (i / 4 * STEP_M + i % 4) * ldc + j / 4 * STEP_N;
            alignas(16) float before[4] = {};
            if (beta != 0.0f) copy_vector<4>(before, result);
#pragma unroll
            for (int e = 0; e < 4; ++e) before[e] = alpha * sums[i][j + e] + beta * before[e];
            copy_vector<4>(result, before);
        }
    }
}
