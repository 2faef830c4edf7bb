// Rung 9. C = alpha A B + beta C in fp32: 8 x 16 sums a thread, the next operands in registers.
//
//        256                          64
//      +----+----+----+----+        +--------+--------+-     A warp's lanes are 8 x 4. Each has
//      | w0 | w1 | w2 | w3 |        | 0 1 2 3| 0 1 2 3|      pieces of 4 x 4 elements, two along
//      |    |    |    |    |        | 4 5 ...| 4 5 ...|      M and four along N, a lane's
//  128 +----+----+----+----+     64 +--------+--------+-     neighbours in between.
//      | w4 | w5 | w6 | w7 |        | 0 1 2 3| 0 1 2 3|
//      |    |    |    |    |        | 4 5 ...| 4 5 ...|      Buffers: one is multiplied while
//      +----+----+----+----+        +--------+--------+-     cp.async fills the others.
//
// Two sets of fragments: the loads of a step are issued a whole step before its 128 multiply-adds,
// across the barrier between buffers as well. The barrier of the warp keeps the compiler from
// moving them down to their use. Columns are walked up and down in turns (a snake), so that each
// multiply-add shares an operand with the one before: a read of the register file less.
//
// Constraints: sm_80; row-major matrices; m multiple of 128, n of 256, k of 16; rows start at
// multiples of 16 bytes; the grid covers C.
#include "common/async_copy.cuh"
#include "common/depth.cuh"
#include "common/vector.cuh"

constexpr int BM = 128, BN = 256, BK = 16, WM = 64, WN = 64, TM = 8, TN = 16, STAGES = 3;
constexpr int THREADS = BM * BN / (TM * TN);
constexpr int LANES_N = WN / TN;
constexpr int STEP_M = WM / TM * 4, STEP_N = WN / TN * 4;  // from a thread's piece to its next
constexpr int A_PITCH = BM + 4;
constexpr int A_SIZE = BK * A_PITCH, B_SIZE = BK * BN;

__global__ void __launch_bounds__(THREADS, 1)
    fragments(const float* __restrict__ a, long long lda, const float* __restrict__ b,
              long long ldb, float* __restrict__ c, long long ldc, int m, int n, int k, float alpha,
              float beta) {
    extern __shared__ __align__(16) float a_tiles[];  // [stage][step][row]
    float* b_tiles = a_tiles + STAGES * A_SIZE;       // [stage][step][column]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_row = warp / (BN / WN) * WM + lane / LANES_N * 4;
    const int thread_column = warp % (BN / WN) * WN + lane % LANES_N * 4;
    // The first element of A and the first vector of B that this thread copies.
    const int a_row = threadIdx.x / BK, a_step = threadIdx.x % BK;
    const int b_step = threadIdx.x / (BN / 4), b_column = threadIdx.x % (BN / 4) * 4;
    a += (static_cast<long long>(blockIdx.y) * BM + a_row) * lda + a_step;
    b += b_step * ldb + static_cast<long long>(blockIdx.x) * BN + b_column;

    const int tiles = summed(k / BK, alpha);  // 0 if alpha is 0: A and B are not read then
    const auto copy = [&](int tile) {
        if (tile < tiles) {
            float* a_tile = a_tiles + tile % STAGES * A_SIZE + a_step * A_PITCH + a_row;
            float* b_tile = b_tiles + tile % STAGES * B_SIZE + b_step * BN + b_column;
#pragma unroll
            for (int i = 0; i < BM; i += THREADS / BK)
                copy_async<4>(a_tile + i, a + i * lda, true);
#pragma unroll
            for (int i = 0; i < BK; i += THREADS / (BN / 4))
                copy_async<16>(b_tile + i * BN, b + i * ldb, true);
            a += BK;
            b += BK * ldb;
        }
        commit_copies();  // an empty group at the end keeps the count
    };
#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) copy(tile);

    alignas(16) float a_values[2][TM], b_values[2][TN];
    const auto load = [&](int tile, int p) {
        const float* a_tile = a_tiles + tile % STAGES * A_SIZE + p * A_PITCH + thread_row;
        const float* b_tile = b_tiles + tile % STAGES * B_SIZE + p * BN + thread_column;
#pragma unroll
        for (int i = 0; i < TM; i += 4)
            copy_vector<4>(a_values[p % 2] + i, a_tile + i / 4 * STEP_M);
#pragma unroll
        for (int j = 0; j < TN; j += 4)
            copy_vector<4>(b_values[p % 2] + j, b_tile + j / 4 * STEP_N);
    };
    const auto next_tile = [&](int tile) {
        wait_copies<STAGES - 2>();
        __syncthreads();  // the tile is there for all, and the one before has been read
        load(tile, 0);
    };
    if (tiles > 0) next_tile(0);

    float sums[TM][TN] = {};
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int p = 0; p < BK; ++p) {
            if (p == 0) copy(tile + STAGES - 1);
            if (p < BK - 1)
                load(tile, p + 1);
            else
                next_tile(tile + 1);
            __syncwarp();
#pragma unroll
            for (int j = 0; j < TN; ++j) {
#pragma unroll
                for (int t = 0; t < TM; ++t) {
                    const int i = j % 2 == 0 ? t : TM - 1 - t;
                    sums[i][j] += a_values[p % 2][i] * b_values[p % 2][j];
                }
            }
        }
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
