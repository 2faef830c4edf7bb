// The constants that follow from the parameters of `wgmma`, its arguments, and the parts that all
// roles share: the ring of stages and the tiles of C.
#pragma once

#include "common/call.cuh"
#include "common/choice.cuh"
#include "common/epilogue.cuh"
#include "common/result_scale.cuh"
#include "common/scale.cuh"
#include "hopper/tma_tile.cuh"
#include "k_sharing/reduction.cuh"
#include "k_sharing/tile_scheduler.cuh"

constexpr int WARPGROUP = 128;

// How C is stored: from registers, through shared memory, or from there by bulk copies (TMA). As
// `STORE` in autotune/families/shared/cuda_enums.py. A test compares them.
enum class Store { DIRECT, STAGED, TMA };

// A thread's registers in each role. A kernel starts with equal shares, and without `MOVED` keeps
// them. LEAN: the producer only starts copies, and the consumers' sums take all they can get.
template <int CONSUMERS, int MIN_BLOCKS, bool LEAN>
struct Budget {
    static constexpr bool MOVED = CONSUMERS > 1 || MIN_BLOCKS > 1;
    static constexpr int ENTRY = 512 / MIN_BLOCKS / (CONSUMERS + 1) / 8 * 8;
    static constexpr int PRODUCER = LEAN ? 40 : ENTRY > 80 ? 56 : 48;
    static constexpr int CONSUMER = (ENTRY * (CONSUMERS + 1) - PRODUCER) / CONSUMERS / 8 * 8;
};

// The parameters of the blocks of a cluster that add up and store a part of the tile's columns.
template <class Params, int REDUCERS>
struct PartParams : Params {
    static constexpr int TILE_N = Params::TILE_N / REDUCERS;
    static constexpr int CLUSTER_M = 1, CLUSTER_N = 1, CLUSTER_K = 1;
};

// The parameters of what a gated tile makes: a tile of half the columns, stored as it is.
template <class Params>
struct GatedParams : Params {
    static constexpr int TILE_N = Params::TILE_N / 2;
    static constexpr int CLUSTER_M = 1, CLUSTER_N = 1, CLUSTER_K = 1;
    static constexpr Epilogue EPILOGUE = Epilogue::NONE;
};

template <class Params>
struct Shape : Params {
    using Params::A_ALONG_K, Params::A_IN_REGISTERS, Params::B_ALONG_K, Params::CLUSTER_K,
        Params::CLUSTER_M, Params::CLUSTER_N, Params::CONSUMERS, Params::LOW_PACKED,
        Params::MIN_BLOCKS, Params::OUTPUT, Params::PERSISTENT, Params::PINGPONG,
        Params::PRODUCTS, Params::STAGES,
        Params::TILE_K, Params::TILE_M, Params::TILE_N, Params::TRANSPOSED, Params::TYPE_A,
        Params::TYPE_B;

    using Result = typename Element<OUTPUT>::Type;
    using Added = Bias<OUTPUT>;
    static constexpr bool FP8_RESULT = IS_FP8<Result>;
    using Scaling = ScaleOf<Result>;
    static constexpr int THREADS = WARPGROUP * (CONSUMERS + 1);
    static constexpr bool BLOCK_SCALED = Params::SCALE == Scale::BLOCK;
    // The tensor cores add int8 products up in int32.
    using Sum = typename If<TYPE_A == ElementType::S8, int, float>::Type;
    static constexpr bool FP32 = TYPE_A == ElementType::F32;
    static constexpr int ELEMENT = sizeof(typename Element<TYPE_A>::Type);
    using Registers = Budget<CONSUMERS, MIN_BLOCKS, ELEMENT == 1 && !BLOCK_SCALED>;
    using A = TmaTile<ELEMENT, TILE_K, TILE_M, A_ALONG_K>;
    using B = TmaTile<ELEMENT, TILE_K, TILE_N, B_ALONG_K>;

    // A cluster computes CLUSTER_TILES tiles, which have operands in common.
    static constexpr int CLUSTER_TILES = CLUSTER_M * CLUSTER_N;
    static constexpr int CLUSTER = CLUSTER_TILES * CLUSTER_K;
    static constexpr bool SHARED_K = Params::REDUCTION != Reduction::NONE;
    static constexpr bool STREAM = Params::REDUCTION == Reduction::STREAM;
    using Scheduler = TileScheduler<PERSISTENT, STREAM>;
    static constexpr bool STAGED = Params::STORE != Store::DIRECT;
    static constexpr bool TMA_STORE = Params::STORE == Store::TMA;

    // Warpgroups that multiply a tile together, and the rows of each: MMAS instructions of 64 rows.
    static constexpr int TEAM = PINGPONG ? 1 : CONSUMERS, ROWS = TILE_M / TEAM, MMAS = ROWS / 64;
    static constexpr int SUMS = TILE_N / 2;  // of a thread, in each instruction's rows
    static constexpr int STEPS = TILE_K / A::STEP;
    // Of rows that lie side by side in shared memory a thread takes neighbours: 2 of each
    // instruction.
    static constexpr bool NEIGHBOURS = A_IN_REGISTERS && !A_ALONG_K;

    // A that is read once makes room for itself in L2, where B stays.
    using EvictA = typename If<Params::A_STREAMED, EvictFirst, EvictNormal>::Type;
    using EvictB = typename If<Params::A_STREAMED, EvictLast, EvictNormal>::Type;

    // A stage holds A, B and the low part of B.
    static constexpr int LOW_BYTES = PRODUCTS == 3 ? B::BYTES : 0;
    static constexpr int STAGE_BYTES = A::BYTES + B::BYTES + LOW_BYTES;
    static constexpr unsigned STAGE_PIECES = STAGE_BYTES / PIECE;
    static constexpr int COPIED_BYTES = STAGE_BYTES - (LOW_PACKED ? 0 : LOW_BYTES);
    // A warpgroup stages C in strips: a line of 128 bytes of each row of an instruction.
    static constexpr int PER_LINE = LINE / static_cast<int>(sizeof(Result));
    static constexpr int STRIP_ROWS = TRANSPOSED ? TILE_N : 64, STRIP_BYTES = STRIP_ROWS * LINE;
    static constexpr int STRIP_SUMS = TRANSPOSED ? SUMS : PER_LINE / 2;
    static constexpr int STRIPS_OF_MMA = (SUMS + STRIP_SUMS - 1) / STRIP_SUMS;
    static constexpr int STRIPS = MMAS * STRIPS_OF_MMA, BUFFERS = STRIPS > 1 ? 2 : 1;
    static constexpr int STAGED_BYTES = STAGED ? BUFFERS * STRIP_BYTES : 0;

    // At `full`: the thread that starts the copies, and the warp that stores scales.
    static constexpr int LOADERS = BLOCK_SCALED ? 1 + 32 : 1;
    // At `empty`: the warpgroups of all blocks that read what this block loads, or their warps, if
    // each reads A or scales on its own.
    static constexpr int NEIGHBOURHOOD = CLUSTER_M + CLUSTER_N - 1;  // blocks with a common operand
    static constexpr int READERS = A_IN_REGISTERS || BLOCK_SCALED ? 4 : 1;
    static constexpr int ARRIVALS = READERS * TEAM * NEIGHBOURHOOD;
    // Blocks of columns of B with scales of their own that a tile, which starts at a multiple of
    // its columns, has a part of.
    static constexpr int SCALE_BLOCKS_N =
        (TILE_N - common_divisor(TILE_N, SCALE_BLOCK)) / SCALE_BLOCK + 1 +
        ((TILE_N - common_divisor(TILE_N, SCALE_BLOCK)) % SCALE_BLOCK != 0);
    // The scales of a block of K: of the rows of A, and of the blocks of columns of B.
    static constexpr int BLOCK_SCALES =
        (TRANSPOSED ? TILE_N + TILE_M / 64 : TILE_M + SCALE_BLOCKS_N);
    static constexpr int STAGE_SCALES = BLOCK_SCALED ? TILE_K / SCALE_BLOCK * BLOCK_SCALES : 0;
    static constexpr int SCALES_BYTES = (STAGES * STAGE_SCALES * 4 + 15) / 16 * 16;
    static constexpr int SPLITTERS = WARPGROUP - 32;
    static constexpr bool SPLITS = PRODUCTS == 3 && !LOW_PACKED;

    // Of the blocks that have shares of a tile, so many add up and store a part of its columns.
    static constexpr int REDUCERS = TILE_N % (8 * CLUSTER_K) == 0       ? CLUSTER_K
                                    : TILE_N % 32 == 0 && CLUSTER_K > 4 ? 4
                                    : TILE_N % 16 == 0 && CLUSTER_K > 2 ? 2
                                                                        : 1;
    using Part = Shape<PartParams<Params, REDUCERS>>;

    // Of a gated tile a thread holds the gates and what they are for; C^T has half of its rows.
    static constexpr bool GATED = is_gated(Params::EPILOGUE);
    using Gated = Shape<GatedParams<Params>>;
    static constexpr int GATED_ROWS = 32 * MMAS;

    static_assert(ROWS % 64 == 0 && MMAS <= 2 && TILE_N % 8 == 0 && TILE_N <= 256,
                  "tile of a warpgroup");
    static_assert(FP32 || !A_IN_REGISTERS, "8- and 16-bit operands come from shared memory");
    static_assert(ELEMENT == 2 || B_ALONG_K, "only 16-bit operands in shared memory run across K");
    static_assert(ELEMENT != 1 || A_ALONG_K, "8-bit operands run along K");
    static_assert(sizeof(typename Element<TYPE_B>::Type) == ELEMENT, "operands of one size");
    static_assert(!BLOCK_SCALED ||
                      (Params::PROMOTE > 0 && (TRANSPOSED || SCALE_BLOCKS_N <= 2)),
                  "sums of blocks of K, of one or two blocks of columns");
    static_assert(ELEMENT != 1 || Params::PROMOTE == 0 || TILE_K % SCALE_BLOCK == 0,
                  "stages of whole blocks of K");
    static_assert(PRODUCTS == 1 || (FP32 && A_IN_REGISTERS), "three products are of fp32 operands");
    static_assert(!GATED || TRANSPOSED || TILE_N / REDUCERS % (2 * GATE_SPAN) == 0,
                  "parts of whole pairs of columns");
    static_assert(!GATED || !(TRANSPOSED && TMA_STORE), "bulk copies store whole lines");
    static_assert(!STAGED || sizeof(Result) <= 2, "fp32 results are stored directly");
    static_assert(!FP8_RESULT || !(TRANSPOSED && TMA_STORE), "bulk copies store whole lines");
    static_assert(!FP8_RESULT || !has_residual(Params::EPILOGUE), "fp8 results have no residual");
    static_assert(!STREAM || CLUSTER_K == 1, "stream-K splits K on its own");
    static_assert(CLUSTER_K == 1 || !PERSISTENT, "blocks that share a tile's K have one tile");
    static_assert(PERSISTENT || !(PINGPONG || STREAM), "one unit a block");
    static_assert(CLUSTER_K / REDUCERS * TILE_M * TILE_N * 4 <= STAGES * STAGE_BYTES ||
                      CLUSTER_K == 1,
                  "the shares of a part lie where the stages were");
};

struct Maps {
    const TensorMap *a, *b, *low, *c;
};

// The operands: tensor maps stand for the pointers and pitches of A and B.
template <class Result>
using Operands = Call<void, void, Result>;

// The arguments but for the tensor maps, in registers.
template <class Result>
struct Arguments : Gemm<void, void, Result> {
    WgmmaSchedule schedule;  // of the tiles of a cluster
};

// The matrix of the kernel's A, and of its B, in a batch whose matrices may share one (stride 0).
template <class S, class Result>
__device__ __forceinline__ int matrix_of_a(const Arguments<Result>& args, int matrix) {
    return (S::TRANSPOSED ? args.stride_b : args.stride_a) != 0 ? matrix : 0;
}

template <class S, class Result>
__device__ __forceinline__ int matrix_of_b(const Arguments<Result>& args, int matrix) {
    return (S::TRANSPOSED ? args.stride_a : args.stride_b) != 0 ? matrix : 0;
}

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
            barrier_init(full(i), S::LOADERS);
            if constexpr (S::SPLITS) barrier_init(split(i), S::SPLITTERS / 32);
            barrier_init(empty(i), S::ARRIVALS);
        }
        barrier_init_fence();
    }

    __device__ char* a(int stage) const { return first + stage * S::STAGE_BYTES; }
    __device__ char* b(int stage) const { return a(stage) + S::A::BYTES; }
    __device__ char* low(int stage) const { return b(stage) + S::B::BYTES; }
    __device__ char* staged() const { return a(S::STAGES); }
    __device__ float* scales(int stage) const {
        return reinterpret_cast<float*>(staged() + S::CONSUMERS * S::STAGED_BYTES) +
               stage * S::STAGE_SCALES;
    }
    __device__ Barrier* full(int stage) const { return barriers() + stage; }
    __device__ Barrier* split(int stage) const { return barriers() + S::STAGES + stage; }
    __device__ Barrier* empty(int stage) const { return barriers() + 2 * S::STAGES + stage; }
    __device__ int* flags() const { return reinterpret_cast<int*>(empty(S::STAGES)); }

private:
    __device__ Barrier* barriers() const {
        return reinterpret_cast<Barrier*>(staged() + S::CONSUMERS * S::STAGED_BYTES +
                                          S::SCALES_BYTES);
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

// This block's place in its cluster. Blocks are numbered along M first and along K last.
template <class S>
struct ClusterPlace {
    int rank, m, n, k;

    __device__ ClusterPlace()
        : rank(S::CLUSTER > 1 ? cluster_rank() : 0),
          m(rank % S::CLUSTER_M),
          n(rank / S::CLUSTER_M % S::CLUSTER_N),
          k(rank / S::CLUSTER_TILES) {}

    // Its tile among those of the cluster, and the block that has share `share` of this tile.
    __device__ int tile() const { return rank % S::CLUSTER_TILES; }
    __device__ int sharer(int share) const { return share * S::CLUSTER_TILES + tile(); }
};

// The tiles of C, along the M and N of the kernel's product (of C^T if TRANSPOSED).
template <class S>
class Tiles {
public:
    template <class Result>
    __device__ explicit Tiles(const Arguments<Result>& args)
        : schedule_(args.schedule), alpha_(args.alpha) {}

    __device__ typename S::Scheduler scheduler() const {
        return {schedule_, alpha_, static_cast<int>(blockIdx.x / S::CLUSTER),
                static_cast<int>(gridDim.x / S::CLUSTER), S::CLUSTER_K, place.k};
    }

    // Where this block's tile starts, for tile `tile` of the cluster. Clusters go down the rows of
    // a group before they step to the next column, so that those that run at the same time share
    // rows of A and columns of B in L2.
    __device__ void locate(int tile, int& m, int& n) const {
        const int group = schedule_.group_tiles.divide(tile);
        const int within = tile - group * schedule_.group_tiles.value;
        const int first = group * schedule_.group.value;
        const bool last = first + schedule_.group.value > schedule_.rows;
        const Divisor height = last ? schedule_.last_group : schedule_.group;
        const int column = height.divide(within);
        const int row = first + within - column * height.value;
        m = ((S::TRANSPOSED ? column : row) * S::CLUSTER_M + place.m) * S::TILE_M;
        n = ((S::TRANSPOSED ? row : column) * S::CLUSTER_N + place.n) * S::TILE_N;
    }

    const ClusterPlace<S> place;

private:
    const WgmmaSchedule& schedule_;
    const float alpha_;
};
