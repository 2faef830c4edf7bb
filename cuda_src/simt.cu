// C = act(alpha op(A) op(B) + beta C + bias) in fp32 on the CUDA cores, tiled down to registers.
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
// SLICES groups of warps hold the same tile and take BK / SLICES steps of each buffer; their sums
// are added up in shared memory. A tile of C then keeps more warps busy, and its sums are shorter.
//
// FRAGMENTS = 2 loads the next step's fragments while one step is multiplied, across the barrier
// between buffers as well. FENCE = 1 puts a barrier of the warp between the two, over which the
// compiler does not move the loads down to where their values are needed. ORDER is the path over
// the TM x TN sums (simt/fragments.cuh).
//
// CHUNKS parts of a block's K are summed one after the other and then added up, which shortens the
// sums: their rounding error falls with the square root of CHUNKS. The sums of finished chunks wait
// in shared memory.
//
// K is shared among blocks as REDUCTION says; k_sharing/shares.cuh has the ways to cut it. Blocks along z are
// the matrices of a batch. A and B start `start_a` and `start_b` floats into their memory, so that
// packed copies (pack.cu) and partial sums can share the workspace.
//
// Constraints: WM WN = 32 TM TN; WM, WN divide BM, BN; TM, TN multiples of 4; BK a multiple of 8
// and of FRAGMENTS SLICES; VA, VB, VC divide the leading dimension, the row length, the stride and
// the address (in floats) of their operand; CHECK = 0 only if BM, BN, BK divide m, n, k; ASYNC = 0
// has STAGES = 2. Dynamic shared memory: the buffers, or (SLICES - 1) BM BN floats if those are
// more, and SLICES BM BN floats for CHUNKS > 1.
#include "simt/fragments.cuh"
#include "simt/operand_tile.cuh"
#include "k_sharing/shares.cuh"
#include "common/epilogue.cuh"

// What becomes of the sums over a share of K.
enum Reduction {
    NONE,      // nothing: they are over all of K
    SEPARATE,  // each share leaves a C of its own, rows a multiple of 4 long; split_k.cu adds them
    FUSED,     // the last block of a tile adds them up
    STREAM,    // so it does, and Stream cuts the shares
};

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int SLICES, int CHUNKS,
          int STAGES, int ASYNC, int FRAGMENTS, int FENCE, int ORDER, int MIN_BLOCKS, int REDUCTION,
          int TRANS_A, int TRANS_B, int EPILOGUE, int VA, int VB, int VC, int CHECK>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN) * SLICES, MIN_BLOCKS)
    simt(const float* __restrict__ a, long long lda, const float* __restrict__ b, long long ldb,
         float* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta,
         const float* __restrict__ bias, long long stride_a, long long stride_b,
         long long stride_c, long long start_a, long long start_b, int group, int streamed,
         int workers, float* workspace, long long start_partials,
         int* __restrict__ counters) {
    constexpr int THREADS = 32 * (BM / WM) * (BN / WN);  // of a slice
    constexpr int LM = WM / TM, LN = WN / TN, STEPS = BK / SLICES, SUMS = TM * TN;
    static_assert(STAGES >= 2 && (ASYNC || STAGES == 2), "registers stage one tile ahead");
    static_assert(STEPS % FRAGMENTS == 0, "fragments take turns");
    using TileA = OperandTile<BM, BK, THREADS * SLICES, VA, !TRANS_A, ASYNC, CHECK>;
    using TileB = OperandTile<BN, BK, THREADS * SLICES, VB, TRANS_B, ASYNC, CHECK>;
    using Share = typename Shares<REDUCTION == STREAM>::Type;
    constexpr int STAGE = TileA::SIZE + TileB::SIZE;
    constexpr int WAITING = CHUNKS > 1 ? SLICES * BM * BN : 0;
    extern __shared__ __align__(16) float arena[];
    float* const shared = arena + WAITING;

    // Where a thread works in its block, and the block in C.
    const auto place = [&](int thread, int tile) {
        const BlockPosition block = grouped(tile, ceil_div(m, BM), ceil_div(n, BN), group);
        const Lane<LM, LN> lane(thread % 32);
        const int warp = thread / 32;
        return Place{block.row * BM, block.column * BN, warp % (BM / WM) * WM + lane.row * 4,
                     warp / (BM / WM) * WN + lane.column * 4};
    };

    for (int part = 0;; ++part) {
        alignas(16) float sums[TM][TN] = {};
        {
            const Share share(ceil_div(k, BK), streamed, workers, part / CHUNKS);
            if (REDUCTION == STREAM && share.begin >= share.end) return;
            const int chunk = ceil_div(share.end - share.begin, CHUNKS);
            const int begin = min(share.end, share.begin + part % CHUNKS * chunk);
            const int end = min(share.end, begin + chunk);
            const Place at = place(threadIdx.x % THREADS, share.tile());
            const int slice = threadIdx.x / THREADS;
            const long long first = static_cast<long long>(begin) * BK;
            const int steps =
                static_cast<int>(min(static_cast<long long>(end) * BK - first, k - first));
            const float* of_a = a + start_a + blockIdx.z * stride_a;
            const float* of_b = b + start_b + blockIdx.z * stride_b;
            of_a += TRANS_A ? first * lda + at.row : at.row * lda + first;
            of_b += TRANS_B ? at.column * ldb + first : first * ldb + at.column;
            TileA tile_a(of_a, lda, m - at.row, steps);
            TileB tile_b(of_b, ldb, n - at.column, steps);
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
            alignas(16) float fragment_a[FRAGMENTS][TM], fragment_b[FRAGMENTS][TN];
            const float* shared_a = shared + (slice * STEPS * TileA::STRIDE + once(at.thread_row));
            const float* shared_b =
                shared + (TileA::SIZE + slice * STEPS * TileB::STRIDE + once(at.thread_column));
            const auto load_fragments = [&](int buffer, int step) {
                load_fragment<TM, LM>(fragment_a[step % FRAGMENTS],
                                      shared_a + buffer + step * TileA::STRIDE);
                load_fragment<TN, LN>(fragment_b[step % FRAGMENTS],
                                      shared_b + buffer + step * TileB::STRIDE);
            };

#pragma unroll
            for (int stage = 0; stage < (ASYNC ? STAGES - 1 : 1); ++stage) load(stage * STAGE);
            arrive(0);
            if constexpr (FRAGMENTS == 2) load_fragments(0, 0);
            int reading = 0, writing = (STAGES - 1) * STAGE;
#pragma unroll 1
            for (int tile = begin; tile < end; ++tile) {
#pragma unroll
                for (int step = 0; step < STEPS; ++step) {
                    const int next = reading == (STAGES - 1) * STAGE ? 0 : reading + STAGE;
                    if constexpr (FRAGMENTS == 1) load_fragments(reading, step);
                    // The buffer being written was last read before the barrier that ended the tile
                    // before.
                    if (step == 0) load(writing);
                    if constexpr (FRAGMENTS == 2) {
                        if (step == STEPS - 1) {
                            arrive(next);
                            load_fragments(next, 0);
                        } else {
                            load_fragments(reading, step + 1);
                        }
                    }
                    if constexpr (FENCE) __syncwarp();
                    outer_product<TM, TN, ORDER>(sums, fragment_a[step % FRAGMENTS],
                                                 fragment_b[step % FRAGMENTS]);
                    if (step == STEPS - 1) {
                        if constexpr (FRAGMENTS == 1) arrive(next);
                        writing = reading;
                        reading = next;
                    }
                }
            }
        }

        if constexpr (CHUNKS > 1) {
            constexpr int ALL = THREADS * SLICES;
            if (part % CHUNKS > 0) add_sums<SUMS, ALL>(&sums[0][0], arena, threadIdx.x);
            if (part % CHUNKS < CHUNKS - 1) {
                put_sums<SUMS, ALL>(arena, &sums[0][0], threadIdx.x);
                __syncthreads();
                continue;
            }
        }

        // Where everything is, is worked out again rather than kept in registers over the loop.
        const Share share(ceil_div(k, BK), streamed, workers, once(part) / CHUNKS);
        const int index = once(threadIdx.x), slice = index / THREADS, thread = index % THREADS;
        const Place at = place(thread, share.tile());
        if constexpr (SLICES > 1)
            add_slices<SUMS, THREADS, SLICES>(&sums[0][0], shared, slice, thread);
        constexpr bool PLANES = REDUCTION == SEPARATE;
        const long long plane = static_cast<long long>(blockIdx.z) * gridDim.y + blockIdx.y;
        float* const partials = workspace + start_partials;
        const long long pitch = PLANES ? ceil_div(n, 4) * 4LL : ldc;
        float* target = PLANES ? partials + plane * m * pitch : c + blockIdx.z * stride_c;
        // Stores four sums of the thread's tile, from (i, j) on.
        const auto store = [&](int i, int j, const float* piece) {
            const int y = at.row + at.thread_row + i / 4 * 4 * LM + i % 4;
            const int x = at.column + at.thread_column + j / 4 * 4 * LN;
            if (CHECK && y >= m) return;
            if constexpr (PLANES) {
                if (!CHECK || x < n) copy_vector<4>(target + y * pitch + x, piece);
            } else {
#pragma unroll
                for (int v = 0; v < 4; v += VC)
                    if (!CHECK || x + v < n)
                        update<VC, EPILOGUE>(target + y * pitch + x + v, piece + v, alpha, beta,
                                             bias, x + v);
            }
        };
        if (REDUCTION < FUSED || share.count() == 1) {
            if (slice == 0) {
#pragma unroll
                for (int i = 0; i < TM; ++i)
#pragma unroll
                    for (int j = 0; j < TN; j += 4) store(i, j, &sums[i][j]);
            }
        } else {
            int* counter = counters + blockIdx.z * gridDim.x + share.tile();
            const bool holds = slice == 0;
            if (completes<SUMS, THREADS>(&sums[0][0], share, partials, counter, holds, thread) &&
                holds) {
                constexpr int PIECES = 4;
#pragma unroll 1
                for (int piece = 0; piece < SUMS / 4; piece += PIECES) {
                    alignas(16) float values[PIECES][4];
                    total<PIECES, SUMS, THREADS>(values, share, partials, piece, thread);
#pragma unroll
                    for (int p = 0; p < PIECES; ++p)
                        store((piece + p) / (TN / 4), (piece + p) % (TN / 4) * 4, values[p]);
                }
            }
        }
        if constexpr (REDUCTION != STREAM) return;
        __syncthreads();
    }
}
