// The constants that follow from the parameters of `wgmma`, its arguments, and the parts that all
// roles share: the ring of stages and the tiles of C.
#pragma once

#include "common/epilogue.cuh"
#include "hopper/tma_tile.cuh"
#include "k_sharing/reduction.cuh"
#include "k_sharing/tile_scheduler.cuh"

constexpr int WARPGROUP = 128;

// How C is stored: from registers, through shared memory, or from there by bulk copies (TMA). As
// `STORE` in autotune/families/shared/cuda_enums.py. A test compares them.
enum class Store { DIRECT, STAGED, TMA };

// A thread's registers in each role. A kernel starts with equal shares, and without `MOVED` keeps
// them.
template <int CONSUMERS, int MIN_BLOCKS>
struct Budget {
    static constexpr bool MOVED = CONSUMERS > 1 || MIN_BLOCKS > 1;
    static constexpr int ENTRY = 512 / MIN_BLOCKS / (CONSUMERS + 1) / 8 * 8;
    static constexpr int PRODUCER = ENTRY > 80 ? 56 : 48;
    static constexpr int CONSUMER = (ENTRY * (CONSUMERS + 1) - PRODUCER) / CONSUMERS / 8 * 8;
};

// The parameters of the blocks of a cluster that add up and store a part of the tile's columns.
template <class Params, int REDUCERS>
struct PartParams : Params {
    static constexpr int TILE_N = Params::TILE_N / REDUCERS;
    static constexpr int CLUSTER_M = 1, CLUSTER_N = 1, CLUSTER_K = 1;
};

template <class Params>
struct Shape : Params {
    using Params::A_ALONG_K, Params::A_IN_REGISTERS, Params::B_ALONG_K, Params::CLUSTER_K,
        Params::CLUSTER_M, Params::CLUSTER_N, Params::CONSUMERS, Params::LOW_PACKED,
        Params::MIN_BLOCKS, Params::OUTPUT, Params::PINGPONG, Params::PRODUCTS, Params::STAGES,
        Params::TILE_K, Params::TILE_M, Params::TILE_N, Params::TRANSPOSED, Params::TYPE;

    using Result = typename Element<OUTPUT>::Type;
    using Registers = Budget<CONSUMERS, MIN_BLOCKS>;
    static constexpr bool FP32 = TYPE == ElementType::F32;
    using A = TmaTile<FP32 ? 4 : 2, TILE_K, TILE_M, A_ALONG_K>;
    using B = TmaTile<FP32 ? 4 : 2, TILE_K, TILE_N, B_ALONG_K>;

    static constexpr int CLUSTER = CLUSTER_M * CLUSTER_N * CLUSTER_K;
    static constexpr bool SHARED_K = Params::REDUCTION != Reduction::NONE;
    static constexpr bool STREAM = Params::REDUCTION == Reduction::STREAM;
    static constexpr bool STAGED = Params::STORE != Store::DIRECT;
    static constexpr bool TMA_STORE = Params::STORE == Store::TMA;

    // Warpgroups that multiply a tile together, and the rows of each: MMAS instructions of 64 rows.
    static constexpr int TEAM = PINGPONG ? 1 : CONSUMERS, ROWS = TILE_M / TEAM, MMAS = ROWS / 64;
    static constexpr int SUMS = TILE_N / 2;  // of a thread, in each instruction's rows
    static constexpr int STEPS = TILE_K / A::STEP;
    // Of rows that lie side by side in shared memory a thread takes neighbours: 2 of each
    // instruction.
    static constexpr bool NEIGHBOURS = A_IN_REGISTERS && !A_ALONG_K;

    // A stage holds A, B and the low part of B.
    static constexpr int LOW_BYTES = PRODUCTS == 3 ? B::BYTES : 0;
    static constexpr int STAGE_BYTES = A::BYTES + B::BYTES + LOW_BYTES;
    static constexpr int COPIED_BYTES = STAGE_BYTES - (LOW_PACKED ? 0 : LOW_BYTES);
    // A warpgroup stages C in strips: a line of 128 bytes of each row of an instruction.
    static constexpr int PER_LINE = LINE / static_cast<int>(sizeof(Result));
    static constexpr int STRIP_ROWS = TRANSPOSED ? TILE_N : 64, STRIP_BYTES = STRIP_ROWS * LINE;
    static constexpr int STRIP_SUMS = TRANSPOSED ? SUMS : PER_LINE / 2;
    static constexpr int STRIPS_OF_MMA = (SUMS + STRIP_SUMS - 1) / STRIP_SUMS;
    static constexpr int STRIPS = MMAS * STRIPS_OF_MMA, BUFFERS = STRIPS > 1 ? 2 : 1;
    static constexpr int STAGED_BYTES = STAGED ? BUFFERS * STRIP_BYTES : 0;

    // At `empty`: the warps of all blocks that read what this block loads.
    static constexpr int NEIGHBOURHOOD = CLUSTER_M + CLUSTER_N - 1;  // blocks with a common operand
    static constexpr int ARRIVALS = 4 * TEAM * NEIGHBOURHOOD;
    static constexpr int SPLITTERS = WARPGROUP - 32;
    static constexpr bool SPLITS = PRODUCTS == 3 && !LOW_PACKED;

    // Of the blocks that have shares of a tile, so many add up and store a part of its columns.
    static constexpr int REDUCERS = TILE_N % (8 * CLUSTER_K) == 0       ? CLUSTER_K
                                    : TILE_N % 32 == 0 && CLUSTER_K > 4 ? 4
                                    : TILE_N % 16 == 0 && CLUSTER_K > 2 ? 2
                                                                        : 1;
    using Part = Shape<PartParams<Params, REDUCERS>>;

    static_assert(ROWS % 64 == 0 && MMAS <= 2 && TILE_N % 8 == 0 && TILE_N <= 256,
                  "tile of a warpgroup");
    static_assert(FP32 || !A_IN_REGISTERS, "16-bit operands come from shared memory");
    static_assert(!FP32 || B_ALONG_K, "32-bit operands in shared memory run along K");
    static_assert(PRODUCTS == 1 || (FP32 && A_IN_REGISTERS), "three products are of fp32 operands");
    static_assert(!STAGED || sizeof(Result) == 2, "fp32 results are stored directly");
    static_assert(!STREAM || CLUSTER == 1, "a cluster works on whole tiles");
    static_assert(CLUSTER_K == 1 || (CLUSTER_K == CLUSTER && !PINGPONG), "one tile a cluster");
    static_assert(CLUSTER_K / REDUCERS * TILE_M * TILE_N * 4 <= STAGES * STAGE_BYTES ||
                      CLUSTER_K == 1,
                  "the shares of a part lie where the stages were");
};

struct Maps {
    const TensorMap *a, *b, *low, *c;
};

template <class Result>
struct Arguments {
    Result* c;
    long long ldc;
    int m, n, k;
    float alpha, beta;
    const Result* bias;
    bool batch_a, batch_b;  // whether each matrix of the batch has its own
    long long stride_c;
    int split_k, streamed, group, batch;
    float* partials;
    int* counters;
};

// The shared memory of a block, and its barriers: `full` when a stage has been loaded, `split` when
// the low part of B has been made, `empty` when all have read it.
template <class S>
struct Stages {
    char* first;  // all else lies at constant distances

    __device__ explicit Stages(char* shared) {
        constexpr int ALIGNMENT = 1024;  // of the swizzle
        const unsigned past = shared_address(shared) % ALIGNMENT;
        first = shared + (past ? ALIGNMENT - past : 0);
    }

    __device__ void open() const {
        for (int i = 0; i < S::STAGES; ++i) {
            barrier_init(full(i), 1);
            if constexpr (S::SPLITS) barrier_init(split(i), S::SPLITTERS / 32);
            barrier_init(empty(i), S::ARRIVALS);
        }
        barrier_init_fence();
    }

    __device__ char* a(int stage) const { return first + stage * S::STAGE_BYTES; }
    __device__ char* b(int stage) const { return a(stage) + S::A::BYTES; }
    __device__ char* low(int stage) const { return b(stage) + S::B::BYTES; }
    __device__ char* staged() const { return a(S::STAGES); }
    __device__ Barrier* full(int stage) const { return barriers() + stage; }
    __device__ Barrier* split(int stage) const { return barriers() + S::STAGES + stage; }
    __device__ Barrier* empty(int stage) const { return barriers() + 2 * S::STAGES + stage; }
    __device__ int* flags() const { return reinterpret_cast<int*>(empty(S::STAGES)); }

private:
    __device__ Barrier* barriers() const {
        return reinterpret_cast<Barrier*>(staged() + S::CONSUMERS * S::STAGED_BYTES);
    }
};

// Where in the ring of stages a role is.
template <int STAGES>
struct PipelineState {
    int stage = 0, phase = 0;

    __device__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }

    __device__ void skip(int count) {
        phase ^= (stage + count) / STAGES & 1;
        stage = (stage + count) % STAGES;
    }
};

// The tiles of C, along the M and N of the kernel's product (of C^T if TRANSPOSED).
template <class S>
class Tiles {
public:
    template <class Result>
    __device__ explicit Tiles(const Arguments<Result>& args)
        : group_(args.group), rank_(S::CLUSTER > 1 ? cluster_rank() : 0) {
        const int along_m =
            ceil_div(S::TRANSPOSED ? args.n : args.m, S::TILE_M * S::CLUSTER_M);
        const int along_n =
            ceil_div(S::TRANSPOSED ? args.m : args.n, S::TILE_N * S::CLUSTER_N);
        rows_ = S::TRANSPOSED ? along_n : along_m;
        columns_ = S::TRANSPOSED ? along_m : along_n;
    }

    template <class Result>
    __device__ TileScheduler<S::STREAM> scheduler(const Arguments<Result>& args) const {
        return {static_cast<int>(blockIdx.x / S::CLUSTER),
                static_cast<int>(gridDim.x / S::CLUSTER),
                rows_ * columns_,
                ceil_div(args.k, S::TILE_K),
                args.split_k,
                args.streamed,
                args.batch,
                S::CLUSTER_K,
                S::CLUSTER_K > 1 ? rank_ : 0};
    }

    // Where this block's tile starts, for tile `tile` of the cluster.
    __device__ void locate(int tile, int& m, int& n) const {
        BlockPosition at;
        if (group_ == 1) {
            at.row = tile / columns_;
            at.column = tile - at.row * columns_;
        } else {
            at = grouped(tile, rows_, columns_, group_);
        }
        const int in_m = rank_ % S::CLUSTER_M, in_n = rank_ / S::CLUSTER_M % S::CLUSTER_N;
        m = ((S::TRANSPOSED ? at.column : at.row) * S::CLUSTER_M + in_m) * S::TILE_M;
        n = ((S::TRANSPOSED ? at.row : at.column) * S::CLUSTER_N + in_n) * S::TILE_N;
    }

    __device__ int rank() const { return rank_; }
    __device__ int count() const { return rows_ * columns_; }

private:
    const int group_, rank_;
    int rows_, columns_;
};
