// C = act(alpha op(A) op(B) + beta C + bias) on the tensor cores with mma.sync, sums in fp32.
//
//        N ->                       block of BM x BN, warp of WM x WN in products of 16 x 8, whose
//      +------BN------+             operands go from shared memory to registers (mma/fragments.cuh)
//   M  | WN | WN | WN |
//   |  |----+----+----|             op(A): BM x BK   op(B): BK x BN   in STAGES swizzled buffers, in
//   v BM WM |    |    |             the layout of their memory: one is multiplied while cp.async
//      |----+----+----|             fills the others (mma/swizzled_tile.cuh)
//      +--------------+
//
// SLICES groups of warps hold the same tile and take BK / SLICES of each buffer; their sums are
// added up in shared memory.
//
// TYPE 0 rounds fp32 to tf32; PRODUCTS = 3 multiplies high and low parts instead, which comes near
// fp32. The tensor cores add with less than fp32's accuracy: after every PROMOTE buffers their sums
// are added to others that the CUDA cores keep; 0 is never.
//
// FUSED = 1: gridDim.y blocks share the K of a tile, and the last one adds up what all have left,
// in order (k_sharing/shares.cuh). Blocks along z are the matrices of a batch. A and B start `start_a` and
// `start_b` elements into their memory, so that packed copies (pack.cu) and partial sums can share
// the workspace.
//
// STAGED = 1 stores C by way of shared memory, where a warp makes whole rows of it. EXCHANGED = 1
// computes C^T: A, B, m, n are those of op(B)^T op(A)^T, and C and the bias those of C.
//
// Constraints: sm_80, but sm_75 for TYPE 1 with ASYNC = 0; all sizes are powers of two; WM a
// multiple of 16, WN of 8; WM, WN divide BM, BN; BK a multiple of 32 bytes for each slice; VA, VB
// as in mma/swizzled_tile.cuh, VC divides n, ldc, stride_c and C's address (in elements). EXCHANGED has
// VC = 1 and STAGED = 0. Dynamic shared memory: the buffers, or (SLICES - 1) BM BN floats and, if
// STAGED, 16 (WN + 8) floats a warp of a slice, if those are more.
#include "mma/fragments.cuh"
#include "k_sharing/shares.cuh"
#include "mma/swizzled_tile.cuh"
#include "common/epilogue.cuh"

template <int TYPE, int OUTPUT, int PRODUCTS, int BM, int BN, int BK, int WM, int WN, int SLICES,
          int STAGES, int PROMOTE, int ASYNC, int MIN_BLOCKS, int FUSED, int STAGED, int EXCHANGED,
          int TRANS_A, int TRANS_B, int EPILOGUE, int VA, int VB, int VC>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN) * SLICES, MIN_BLOCKS)
    mma(const typename Number<TYPE>::Type* __restrict__ a, long long lda,
        const typename Number<TYPE>::Type* __restrict__ b, long long ldb,
        typename Number<OUTPUT>::Type* __restrict__ c, long long ldc, int m, int n, int k,
        float alpha, float beta, const typename Number<OUTPUT>::Type* __restrict__ bias,
        long long stride_a, long long stride_b, long long stride_c, long long start_a,
        long long start_b, int group, float* workspace, long long start_partials,
        int* __restrict__ counters) {
    using Type = typename Number<TYPE>::Type;
    constexpr bool APART = sizeof(Type) == 4;
    constexpr int THREADS = 32 * (BM / WM) * (BN / WN);  // of a slice
    using TileA = SwizzledTile<Type, BM, BK, THREADS * SLICES, VA, !TRANS_A, APART && TRANS_A,
                               ASYNC>;
    using TileB = SwizzledTile<Type, BN, BK, THREADS * SLICES, VB, TRANS_B, APART && !TRANS_B,
                               ASYNC>;
    using FragmentsA = Fragments<Type, TileA, WM, !TRANS_A, true>;
    using FragmentsB = Fragments<Type, TileB, WN, TRANS_B, false>;
    constexpr int ROWS = FragmentsA::BLOCKS, COLUMNS = FragmentsB::BLOCKS;
    constexpr int STEPS = BK / FragmentsA::STEP / SLICES, SUMS = ROWS * COLUMNS * 4;
    constexpr int STAGE = TileA::SIZE + TileB::SIZE, AHEAD = STAGES - 1;
    static_assert(STAGES >= 2 && STEPS >= 1 && (STEPS == 1 || STEPS % 2 == 0), "steps take turns");
    extern __shared__ __align__(128) char arena[];

    const auto place = [&](int thread) {
        const BlockPosition block = grouped(blockIdx.x, ceil_div(m, BM), ceil_div(n, BN), group);
        const int warp = thread / 32;
        return Place{block.row * BM, block.column * BN, warp % (BM / WM) * WM,
                     warp / (BM / WM) * WN};
    };

    float sums[ROWS][COLUMNS][4] = {};
    {
        const Split share(ceil_div(k, BK), 0, 0, 0);
        const Place at = place(threadIdx.x % THREADS);
        const int slice = threadIdx.x / THREADS, lane = threadIdx.x % 32;
        const long long first = static_cast<long long>(share.begin) * BK;
        const int steps =
            static_cast<int>(min(static_cast<long long>(share.end) * BK - first, k - first));
        const Type* of_a = a + start_a + blockIdx.z * stride_a;
        const Type* of_b = b + start_b + blockIdx.z * stride_b;
        of_a += TRANS_A ? first * lda + at.row : at.row * lda + first;
        of_b += TRANS_B ? at.column * ldb + first : first * ldb + at.column;
        TileA tile_a(of_a, lda, m - at.row, steps);
        TileB tile_b(of_b, ldb, n - at.column, steps);
        const FragmentsA fragments_a(at.thread_row, slice * STEPS, lane);
        const FragmentsB fragments_b(at.thread_column, slice * STEPS, lane);
        // Buffers are named by their offset in shared memory.
        const auto load = [&](int buffer) {
            tile_a.load(arena + buffer);
            tile_b.load(arena + buffer + TileA::SIZE);
        };
        const auto store = [&](int buffer) {
            tile_a.store(arena + buffer);
            tile_b.store(arena + buffer + TileA::SIZE);
        };
        // Makes the oldest tile in flight visible to the whole block.
        const auto arrive = [&] {
            if constexpr (ASYNC) wait_copies<AHEAD - 1>();
            __syncthreads();
        };
        // One set of fragments is loaded while the other is multiplied, but where registers are
        // wanted for a second block.
        constexpr int SETS = STEPS > 1 && MIN_BLOCKS == 1 ? 2 : 1;
        typename FragmentsA::Registers registers_a[SETS];
        typename FragmentsB::Registers registers_b[SETS];
        const auto load_fragments = [&](int buffer, int step) {
            fragments_a.load(registers_a[step % SETS], arena + buffer, step);
            fragments_b.load(registers_b[step % SETS], arena + (buffer + TileA::SIZE), step);
        };
        float fresh[PROMOTE ? ROWS : 1][COLUMNS][4] = {};
        const auto promote = [&] {
#pragma unroll
            for (int i = 0; i < SUMS; ++i) {
                float& sum = fresh[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4];
                sums[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4] += sum;
                sum = 0.0f;
            }
        };

#pragma unroll
        for (int stage = 0; stage < AHEAD; ++stage) {
            if (share.begin + stage < share.end) {
                load(stage * STAGE);
                store(stage * STAGE);
            }
            if constexpr (ASYNC) commit_copies();
        }
        arrive();
        if constexpr (SETS == 2) load_fragments(0, 0);
        int reading = 0, writing = AHEAD * STAGE, until = PROMOTE;
#pragma unroll 1
        for (int tile = share.begin; tile < share.end; ++tile) {
            const bool more = tile + AHEAD < share.end;
            const int next = reading == AHEAD * STAGE ? 0 : reading + STAGE;
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                // The buffer being written was last read before the barrier that ended the tile
                // before.
                if (step == 0) {
                    if (more) load(writing);
                    if constexpr (ASYNC) commit_copies();
                }
                if constexpr (SETS == 1) load_fragments(reading, step);
                if constexpr (SETS == 2) {
                    if (step == STEPS - 1) {
                        if (more) store(writing);
                        arrive();
                        load_fragments(next, 0);
                    } else {
                        load_fragments(reading, step + 1);
                    }
                }
                if constexpr (PROMOTE)
                    multiply<TYPE, PRODUCTS>(fresh, registers_a[step % SETS],
                                             registers_b[step % SETS]);
                else
                    multiply<TYPE, PRODUCTS>(sums, registers_a[step % SETS],
                                             registers_b[step % SETS]);
            }
            if constexpr (SETS == 1) {
                if (more) store(writing);
                arrive();
            }
            writing = reading;
            reading = next;
            if constexpr (PROMOTE) {
                if (--until == 0) {
                    promote();
                    until = PROMOTE;
                }
            }
        }
        if constexpr (PROMOTE) promote();
    }

    // Where everything is, is worked out again rather than kept in registers over the loop.
    const Split share(ceil_div(k, BK), 0, 0, 0);
    const int index = once(threadIdx.x), slice = index / THREADS, thread = index % THREADS;
    const Place at = place(thread);
    float* const shared = reinterpret_cast<float*>(arena);
    if constexpr (SLICES > 1)
        add_slices<SUMS, THREADS, SLICES>(&sums[0][0][0], shared, slice, thread);
    else if constexpr (STAGED)
        __syncthreads();
    constexpr int PITCH = WN + 8, W = Rows<Type, WN, TRANS_B>::W;
    float* const strip =
        shared + (SLICES - 1) * BM * BN + (thread / 32) * 16 * PITCH;  // of the warp
    const int lane = index % 32, g = lane / 4, t = lane % 4;
    const int top = at.row + at.thread_row, left = at.column + at.thread_column;
    typename Number<OUTPUT>::Type* const target = c + blockIdx.z * stride_c;
    // Stores the sums of W blocks from (i, j) on, of which a row has 2 W neighbours.
    const auto store = [&](int i, int j, const float (*block)[4]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            alignas(16) float values[2 * W];
#pragma unroll
            for (int v = 0; v < 2 * W; ++v) values[v] = block[v % W][2 * half + v / W];
            const int x = 8 * j + 2 * t * W;
            const int y = top + Rows<Type, WM, !TRANS_A>::of_a(i, 8 * half + g);
            if constexpr (STAGED) {
                constexpr int V = W == 1 ? 2 : 4;
#pragma unroll
                for (int v = 0; v < 2 * W; v += V)
                    copy_vector<V>(strip + (8 * half + g) * PITCH + x + v, values + v);
            } else if constexpr (EXCHANGED) {
#pragma unroll
                for (int v = 0; v < 2 * W; ++v)
                    if (y < m && left + x + v < n)
                        update<1, EPILOGUE>(target + (left + x + v) * ldc + y, values + v, alpha,
                                            beta, bias, y);
            } else {
                constexpr int V = VC < 2 * W ? VC : 2 * W;
#pragma unroll
                for (int v = 0; v < 2 * W; v += V)
                    if (y < m && left + x + v < n)
                        update<V, EPILOGUE>(target + y * ldc + left + x + v, values + v, alpha,
                                            beta, bias, left + x + v);
            }
        }
    };
    // Stores the rows of C that blocks (i, ...) of all lanes make.
    const auto store_rows = [&](int i) {
        if constexpr (!STAGED) return;
        __syncwarp();
#pragma unroll 2
        for (int vector = lane; vector < 16 * WN / VC; vector += 32) {
            const int row = vector / (WN / VC), x = vector % (WN / VC) * VC;
            const int y = top + Rows<Type, WM, !TRANS_A>::of_a(i, row);
            if (y >= m || left + x >= n) continue;
            alignas(16) float values[VC];
            constexpr int V = VC < 4 ? VC : 4;
#pragma unroll
            for (int v = 0; v < VC; v += V)
                copy_vector<V>(values + v, strip + row * PITCH + x + v);
            update<VC, EPILOGUE>(target + y * ldc + left + x, values, alpha, beta, bias, left + x);
        }
        __syncwarp();
    };

    if constexpr (!FUSED) {
        if (slice > 0) return;
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j += W) store(i, j, &sums[i][j]);
            store_rows(i);
        }
    } else {
        float* const partials = workspace + start_partials;
        int* const counter = counters + blockIdx.z * gridDim.x + blockIdx.x;
        const bool last = completes<SUMS, THREADS>(&sums[0][0][0], share, partials, counter,
                                                   slice == 0, thread);
        if (!last || slice > 0) return;
        constexpr int PIECES = COLUMNS < 4 ? COLUMNS : 4;
#pragma unroll 1
        for (int i = 0; i < ROWS; ++i) {
#pragma unroll 1
            for (int j = 0; j < COLUMNS; j += PIECES) {
                alignas(16) float values[PIECES][4];
                total<PIECES, SUMS, THREADS>(values, share, partials, i * COLUMNS + j, thread);
#pragma unroll
                for (int p = 0; p < PIECES; p += W) store(i, j + p, &values[p]);
            }
            store_rows(i);
        }
    }
}
