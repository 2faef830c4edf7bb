// C = act(alpha op(A) op(B) + beta C + bias) in fp32 for up to 16 rows of C: op(B) passes through
// the SMs once, as fast as memory delivers it, and each value that arrives is used for all rows.
//
//           N ->                 A block has ACROSS x WAYS threads: WAYS share K, ACROSS lie side
//        +--WIDTH--+---- -       by side along N, where each has COLUMNS columns.
//     K  | 0 1 2 3 | share 0
//     |  | 0 1 2 3 |             A batch is DEPTH steps of K of each thread, STEPS = WAYS DEPTH of
//     v  | 4 5 6 7 |             the block. Its COLUMNS x DEPTH values of op(B) are what a thread
//        +---------+             has under way; the ROWS x STEPS values of op(A) that go with them
//        | 0 1 2 3 | share 1     come to shared memory once for the block.
//        :         : (blockIdx.y)
//
// STAGES = 1 loads a batch into registers and multiplies it when it is there; the other blocks of
// the SM fill the gap. STAGES > 1 has cp.async load STAGES - 1 batches ahead of the one that is
// multiplied; a thread's values of op(B) wait in shared memory, where no other thread reads them.
//
// A B whose rows lie along N (TRANS_B = 0) is read in vectors of neighbouring columns, one step of
// K after the other. Along K (TRANS_B = 1) a vector is VB steps of one column.
//
// The WAYS sums of an element are added up in shared memory. Where `gridDim.y` blocks share K, each
// leaves its tile of C in the workspace, and the last one to come adds them up and writes C. Every
// order of additions is fixed: the same inputs give the same bits.
//
// TRANSPOSED computes C^T = op(B)^T op(A)^T for C of up to 16 columns: the plan exchanges A with B
// and m with n, and C is written, and the bias read, transposed. blockIdx.z is the matrix of a
// batch.
//
// Params:
//   ROWS, COLUMNS, DEPTH, ACROSS, WAYS, STAGES
//   TRANS_A, TRANS_B   whether A and B are stored transposed
//   EPILOGUE, TRANSPOSED
//   VA, VB             floats of A and B that are loaded as one
//
// Constraints: ROWS, COLUMNS, DEPTH, ACROSS, WAYS are powers of two; m <= ROWS; DEPTH >= 4; `share`
// is a multiple of 4, or all of k, and leaves no block without work; VA divides lda, stride_a, the
// address of A in floats, and m (TRANS_A = 1) or k (0), and is 1 if TRANS_A = TRANS_B; VB does for
// B, k (TRANS_B = 1) or n (0), and divides COLUMNS for TRANS_B = 0. The counters are zero at entry
// and at the end.
#include "common/call.cuh"
#include "common/dependent_launch.cuh"
#include "common/depth.cuh"
#include "common/epilogue.cuh"
#include "gemv/operand_tiles.cuh"
#include "k_sharing/last_block.cuh"

// Adds up COUNT tiles of SIZE floats that follow each other in shared memory, in the first of them.
template <int COUNT, int SIZE, int THREADS>
__device__ __forceinline__ void add_up(float* tiles) {
    __syncthreads();
    if constexpr (COUNT > 1) {
        constexpr int RADIX = smaller(COUNT, 8), LEFT = COUNT / RADIX * SIZE;
        if (LEFT >= THREADS || threadIdx.x < LEFT) {
#pragma unroll
            for (int i = 0; i < LEFT; i += THREADS) {
                float* const element = tiles + i + threadIdx.x;
                float sum = *element;
#pragma unroll
                for (int j = 1; j < RADIX; ++j) sum += element[j * LEFT];
                *element = sum;
            }
        }
        add_up<COUNT / RADIX, SIZE, THREADS>(tiles);
    }
}

// Adds up the tiles that the blocks of all shares of K hold in shared memory, in that of the last
// block to arrive; true for that block. `shared` has room for WAYS tiles.
template <int SIZE, int WAYS, int THREADS>
__device__ __forceinline__ bool reduce_blocks(float* shared, float* workspace, int* counters) {
    constexpr int VECTOR = smaller(SIZE, 4), VECTORS = SIZE / VECTOR;
    constexpr int GROUPS = VECTORS >= THREADS ? 1 : smaller(THREADS / VECTORS, WAYS), BATCH = 8;
    const int shares = gridDim.y;
    const long long strip = static_cast<long long>(blockIdx.z) * gridDim.x + blockIdx.x;
    float* const tiles = workspace + strip * shares * SIZE;
    float* const own = tiles + static_cast<long long>(blockIdx.y) * SIZE + threadIdx.x * VECTOR;
    if (VECTORS >= THREADS || threadIdx.x < VECTORS) {
#pragma unroll
        for (int i = 0; i < SIZE; i += THREADS * VECTOR)
            copy_vector<VECTOR>(own + i, shared + i + threadIdx.x * VECTOR);
    }
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
        last = arrive(counters, strip) == shares - 1;
        if (last) acquire(counters + strip, last);
    }
    if (!__syncthreads_or(last)) return false;

    for (int i = threadIdx.x; i < GROUPS * VECTORS; i += THREADS) {
        const float* const from = tiles + i % VECTORS * VECTOR;
        alignas(16) float sum[VECTOR] = {}, values[BATCH][VECTOR];
        for (int share = i / VECTORS; share < shares; share += BATCH * GROUPS) {
#pragma unroll
            for (int j = 0; j < BATCH; ++j) {
                const int other = share + j * GROUPS;
                load_streaming<VECTOR>(values[j], from + static_cast<long long>(other) * SIZE,
                                      other < shares);
            }
#pragma unroll
            for (int j = 0; j < BATCH; ++j)
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) sum[v] += values[j][v];
        }
        copy_vector<VECTOR>(shared + i * VECTOR, sum);
    }
    add_up<GROUPS, SIZE, THREADS>(shared);
    return true;
}

// The work of a launch of `gemv`, as gemv/launches.py in Python makes it.
struct GemvSchedule {
    int share;
};

template <class Params>
__global__ void __launch_bounds__(Params::ACROSS * Params::WAYS)
    gemv(const __grid_constant__ Call<float, float, float> operands,
         const __grid_constant__ GemvSchedule schedule, int m, int n, int k, float alpha,
         float beta) {
    constexpr int ROWS = Params::ROWS, COLUMNS = Params::COLUMNS, DEPTH = Params::DEPTH;
    constexpr int ACROSS = Params::ACROSS, WAYS = Params::WAYS, STAGES = Params::STAGES;
    constexpr bool TRANS_A = Params::TRANS_A, TRANS_B = Params::TRANS_B;
    constexpr int THREADS = ACROSS * WAYS, WIDTH = ACROSS * COLUMNS, STEPS = WAYS * DEPTH;
    constexpr bool ASYNC = STAGES > 1;
    constexpr int TILE = ROWS * WIDTH, BUFFERS = ASYNC ? STAGES : 2;
    using Rows = RowTile<ROWS, STEPS, THREADS, Params::VA, TRANS_A, TRANS_B, ASYNC>;
    using Columns = ColumnTile<COLUMNS, DEPTH, ACROSS, WAYS, Params::VB, TRANS_B, ASYNC>;
    constexpr int GROUP = Columns::GROUP, STAGE = Rows::SIZE + Columns::SIZE;
    extern __shared__ __align__(16) float shared[];

    const Gemm<float, float, float> call = in_registers(operands, m, n, k, alpha, beta);
    const int share = schedule.share;
    const long long first_column = static_cast<long long>(blockIdx.x) * WIDTH;
    const int first = blockIdx.y * share, steps = summed(min(share, k - first), alpha);
    Rows rows(call.a + blockIdx.z * call.stride_a + (TRANS_A ? first * call.lda : first), call.lda,
              m);
    Columns columns(call.b + blockIdx.z * call.stride_b + (TRANS_B ? first : first * call.ldb),
                    call.ldb, first_column, n);
    int ahead = steps, writing = 0;
    const auto load = [&] {
        if (!ASYNC || ahead > 0) {
            columns.load(shared + writing + Rows::SIZE, ahead);
            rows.load(shared + writing, ahead);
        }
        if constexpr (ASYNC) commit_copies();
        ahead -= STEPS;
        writing = writing == (BUFFERS - 1) * STAGE ? 0 : writing + STAGE;
    };

    wait_for_primary();
    float sums[ROWS][COLUMNS] = {};
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) load();
    int reading = 0;
    for (int left = steps; left > 0; left -= STEPS) {
        if constexpr (ASYNC) {
            wait_copies<STAGES - 2>();
        } else {
            load();
        }
        __syncthreads();
        // The buffer being written was last read before this barrier.
        if constexpr (ASYNC) load();
#pragma unroll
        for (int round = 0; round < Columns::ROUNDS; ++round) {
            alignas(16) float value_a[ROWS * GROUP], value_b[COLUMNS * GROUP];
            columns.read(value_b, shared + reading + Rows::SIZE, round);
            Rows::template read<GROUP>(value_a, shared + reading, Columns::step(round));
#pragma unroll
            for (int i = 0; i < GROUP * ROWS * COLUMNS; ++i) {
                const int group = i / (ROWS * COLUMNS), row = i / COLUMNS % ROWS, j = i % COLUMNS;
                sums[row][j] =
                    fmaf(value_a[row * GROUP + group], value_b[j * GROUP + group], sums[row][j]);
            }
        }
        reading = reading == (BUFFERS - 1) * STAGE ? 0 : reading + STAGE;
    }

    launch_dependents();
    // The tile of C, with the elements in the order in which C has them.
    __syncthreads();
    float* const own = shared + threadIdx.x / ACROSS * TILE;
#pragma unroll
    for (int i = 0; i < ROWS * COLUMNS; ++i) {
        const int row = i / COLUMNS, x = Columns::column(i % COLUMNS);
        own[Params::TRANSPOSED ? x * ROWS + row : row * WIDTH + x] = sums[row][i % COLUMNS];
    }
    add_up<WAYS, TILE, THREADS>(shared);
    if (gridDim.y > 1 &&
        !reduce_blocks<TILE, WAYS, THREADS>(shared, call.workspace, call.counters))
        return;

    float* const c = call.c + blockIdx.z * call.stride_c;
    for (int i = threadIdx.x; i < TILE; i += THREADS) {
        const int row = Params::TRANSPOSED ? i % ROWS : i / WIDTH;
        const long long column = first_column + (Params::TRANSPOSED ? i / ROWS : i % WIDTH);
        const float value = alpha * shared[i];
        if (row >= m || column >= n) continue;
        float* const element = c + (Params::TRANSPOSED ? column * call.ldc + row
                                                       : row * call.ldc + column);
        *element =
            finish<Params::EPILOGUE>(beta == 0.0f ? value : fmaf(beta, *element, value), call.bias,
                                     Params::TRANSPOSED ? row : static_cast<int>(column));
    }
}
