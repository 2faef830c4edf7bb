// C = alpha op(A) op(B) + beta C in fp32 on the CUDA cores, tiled down to registers.
//
//        N ->                       block of BM x BN, warp of WM x WN, thread of TM x TN in
//      +------BN------+             pieces of 4 x 4 that are interleaved over the warp, so that
//   M  | WN | WN | WN |             neighbouring lanes read neighbouring float4 from shared memory
//   |  |----+----+----|
//   v BM WM |    |    |             op(A): BM x BK   op(B): BK x BN   both K-major in shared memory
//      |----+----+----|             in STAGES buffers: one is multiplied while the others are filled
//      +--------------+
//
// Each thread keeps TM x TN sums in registers and, for each step of K, multiplies a fragment of TM
// values by one of TN: TM TN multiply-adds for (TM + TN) / 4 loads from shared memory.
//
// FRAGMENTS = 2 loads the next step's fragments while one step is multiplied, across the barrier
// between tiles as well. ORDER is the path over the TM x TN sums, which decides the operand that the
// register reuse cache serves: 0 along rows, 1 along columns, 2 rows in alternating direction.
//
// Split-K: gridDim.y blocks share K, block y writes its partial C at c + y m ldc, and
// `split_k_reduce` adds them up in order, so that the same inputs give the same bits.
//
// Constraints: WM WN = 32 TM TN; WM, WN divide BM, BN; TM, TN multiples of 4; BK multiple of 8;
// VA, VB, VC divide the leading dimension, the row length and the address (in floats) of their
// operand; CHECK = 0 only if BM, BN, BK divide m, n, k; ASYNC = 0 has STAGES = 2.
#include "block_order.cuh"
#include "operand_tile.cuh"

// A lane's place in its warp: LM x LN lanes in pairs of rows, so that each quarter of the warp reads
// two fragments of A and half as many of B.
template <int LM, int LN>
struct Lane {
    static_assert(LM * LN == 32 && LM % 2 == 0, "a warp has 32 lanes");
    const int row, column;
    __device__ __forceinline__ explicit Lane(int lane)
        : row(lane / (2 * LN) * 2 + lane % 2), column(lane / 2 % LN) {}
};

// Reads a fragment of COUNT values in pieces of 4 that are 4 LANES apart.
template <int COUNT, int LANES>
__device__ __forceinline__ void load_fragment(float* fragment, const float* shared) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) copy_vector<4>(fragment + i, shared + i * LANES);
}

template <int TM, int TN, int ORDER>
__device__ __forceinline__ void outer_product(float (&sums)[TM][TN], const float* a, const float* b) {
    constexpr int OUTER = ORDER == 1 ? TN : TM, INNER = ORDER == 1 ? TM : TN;
#pragma unroll
    for (int outer = 0; outer < OUTER; ++outer) {
#pragma unroll
        for (int step = 0; step < INNER; ++step) {
            const int inner = ORDER == 2 && outer % 2 ? INNER - 1 - step : step;
            const int i = ORDER == 1 ? inner : outer, j = ORDER == 1 ? outer : inner;
            sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
        }
    }
}

// c[0 .. VECTOR) = alpha sums + beta c; beta = 0 never reads c.
template <int VECTOR>
__device__ __forceinline__ void update(float* c, const float* sums, float alpha, float beta) {
    alignas(16) float values[VECTOR];
    if (beta != 0.0f) {
        copy_vector<VECTOR>(values, c);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) values[i] = fmaf(alpha, sums[i], beta * values[i]);
    } else {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) values[i] = alpha * sums[i];
    }
    copy_vector<VECTOR>(c, values);
}

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int ASYNC,
          int FRAGMENTS, int ORDER, int MIN_BLOCKS, int TRANS_A, int TRANS_B, int VA, int VB, int VC,
          int CHECK>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN), MIN_BLOCKS)
    simt(const float* __restrict__ a, long long lda, const float* __restrict__ b, long long ldb,
         float* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta,
         int group) {
    constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
    constexpr int LM = WM / TM, LN = WN / TN;
    static_assert(STAGES >= 2 && (ASYNC || STAGES == 2), "registers stage one tile ahead");
    using TileA = OperandTile<BM, BK, THREADS, VA, !TRANS_A, ASYNC, CHECK>;
    using TileB = OperandTile<BN, BK, THREADS, VB, TRANS_B, ASYNC, CHECK>;
    constexpr int STAGE = TileA::SIZE + TileB::SIZE;
    extern __shared__ __align__(16) float shared[];

    const BlockPosition block = grouped(blockIdx.x, ceil_div(m, BM), ceil_div(n, BN), group);
    const int row = block.row * BM, column = block.column * BN;
    const int share = ceil_div(ceil_div(k, BK), gridDim.y);
    const long long first = static_cast<long long>(blockIdx.y) * share * BK;
    const int steps = static_cast<int>(min(static_cast<long long>(share) * BK, k - first));
    const int tiles = steps > 0 ? ceil_div(steps, BK) : 0;

    TileA tile_a(a + (TRANS_A ? first * lda + row : row * lda + first), lda, m - row, steps);
    TileB tile_b(b + (TRANS_B ? column * ldb + first : first * ldb + column), ldb, n - column,
                 steps);
    // Buffers are named by their offset in shared memory.
    const auto load = [&](int buffer) {
        tile_a.load(shared + buffer);
        tile_b.load(shared + buffer + TileA::SIZE);
        if constexpr (ASYNC) commit_copies();
    };
    // Makes the oldest tile in flight visible to the whole block.
    const auto arrive = [&](int buffer) {
        if constexpr (ASYNC) {
            wait_copies<STAGES - 2>();
        } else {
            tile_a.store(shared + buffer);
            tile_b.store(shared + buffer + TileA::SIZE);
        }
        __syncthreads();
    };

    const int warp = threadIdx.x / 32;
    const Lane<LM, LN> lane(threadIdx.x % 32);
    const int thread_row = once(warp % (BM / WM) * WM + lane.row * 4);
    const int thread_column = once(warp / (BM / WM) * WN + lane.column * 4);
    alignas(16) float fragment_a[FRAGMENTS][TM], fragment_b[FRAGMENTS][TN];
    const float* shared_a = shared + thread_row;
    const float* shared_b = shared + TileA::SIZE + thread_column;
    const auto load_fragments = [&](int buffer, int step) {
        load_fragment<TM, LM>(fragment_a[step % FRAGMENTS], shared_a + buffer + step * TileA::STRIDE);
        load_fragment<TN, LN>(fragment_b[step % FRAGMENTS], shared_b + buffer + step * TileB::STRIDE);
    };

    alignas(16) float sums[TM][TN] = {};
#pragma unroll
    for (int stage = 0; stage < (ASYNC ? STAGES - 1 : 1); ++stage) load(stage * STAGE);
    arrive(0);
    if constexpr (FRAGMENTS == 2) load_fragments(0, 0);
    int reading = 0, writing = (STAGES - 1) * STAGE;
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int step = 0; step < BK; ++step) {
            const int next = reading == (STAGES - 1) * STAGE ? 0 : reading + STAGE;
            if constexpr (FRAGMENTS == 1) load_fragments(reading, step);
            // The buffer being written was last read before the barrier that ended the tile before.
            if (step == 0) load(writing);
            if constexpr (FRAGMENTS == 2) {
                if (step == BK - 1) {
                    arrive(next);
                    load_fragments(next, 0);
                } else {
                    load_fragments(reading, step + 1);
                }
            }
            outer_product<TM, TN, ORDER>(sums, fragment_a[step % FRAGMENTS],
                                         fragment_b[step % FRAGMENTS]);
            if (step == BK - 1) {
                if constexpr (FRAGMENTS == 1) arrive(next);
                writing = reading;
                reading = next;
            }
        }
    }

    c += static_cast<long long>(blockIdx.y) * m * ldc;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int y = row + thread_row + i / 4 * 4 * LM + i % 4;
        if (CHECK && y >= m) continue;
#pragma unroll
        for (int j = 0; j < TN; j += VC) {
            const int x = column + thread_column + j / 4 * 4 * LN + j % 4;
            if (CHECK && x >= n) continue;
            update<VC>(c + y * ldc + x, &sums[i][j], alpha, beta);
        }
    }
}

// c = alpha (sum of `splits` partial products of m x n, one after the other) + beta c.
//
// blockDim.y threads share the splits of an element, in shared memory of blockDim.x blockDim.y
// VECTOR floats; the order of the additions depends on the launch only.
template <int VECTOR>
__global__ void split_k_reduce(const float* __restrict__ partial, int splits,
                               float* __restrict__ c, long long ldc, int m, int n, float alpha,
                               float beta) {
    extern __shared__ __align__(16) float shared[];
    const long long size = static_cast<long long>(m) * n;
    const long long element =
        (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * VECTOR;
    alignas(16) float sums[VECTOR] = {}, values[VECTOR];
    if (element < size) {
#pragma unroll 4
        for (int split = threadIdx.y; split < splits; split += blockDim.y) {
            copy_vector<VECTOR>(values, partial + split * size + element);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) sums[i] += values[i];
        }
    }
    copy_vector<VECTOR>(shared + (threadIdx.y * blockDim.x + threadIdx.x) * VECTOR, sums);
    __syncthreads();
    if (threadIdx.y != 0 || element >= size) return;
    for (int y = 1; y < blockDim.y; ++y) {
        copy_vector<VECTOR>(values, shared + (y * blockDim.x + threadIdx.x) * VECTOR);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) sums[i] += values[i];
    }
    update<VECTOR>(c + element / n * ldc + element % n, sums, alpha, beta);
}
