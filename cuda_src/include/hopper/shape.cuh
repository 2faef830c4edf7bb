// The arguments of `wgmma` and what follows from its template arguments.
#pragma once

#include "hopper/tma_tile.cuh"
#include "k_sharing/walk.cuh"

constexpr int WARPGROUP = 128;

// A thread's registers in each role. A kernel starts with equal shares, and without `MOVED` keeps
// them.
template <int CONSUMERS, int MIN_BLOCKS>
struct Budget {
    static constexpr bool MOVED = CONSUMERS > 1 || MIN_BLOCKS > 1;
    static constexpr int ENTRY = 512 / MIN_BLOCKS / (CONSUMERS + 1) / 8 * 8;
    static constexpr int PRODUCER = ENTRY > 80 ? 56 : 48;
    static constexpr int CONSUMER = (ENTRY * (CONSUMERS + 1) - PRODUCER) / CONSUMERS / 8 * 8;
};

template <int TYPE, int OUTPUT, int PRODUCTS_, int BX_, int BY_, int BK_, int STAGES_,
          int CONSUMERS_, int PINGPONG_, int CLUSTER_X_, int CLUSTER_Y_, int CLUSTER_K_,
          int MIN_BLOCKS, int REGISTERS_, int ALONG_K_P_, int ALONG_K_Q_, int SWAPPED_, int PASS_,
          int PROMOTE_, int REDUCTION_, int STORE_, int EPILOGUE_, int VC_>
struct Shape {
    using Result = typename Number<OUTPUT>::Type;
    using Registers = Budget<CONSUMERS_, MIN_BLOCKS>;
    using P = TmaTile<TYPE == 0 ? 4 : 2, BK_, BX_, ALONG_K_P_>;
    using Q = TmaTile<TYPE == 0 ? 4 : 2, BK_, BY_, ALONG_K_Q_>;

    static constexpr int KIND = TYPE, PRODUCTS = PRODUCTS_, BX = BX_, BY = BY_, BK = BK_;
    static constexpr int STAGES = STAGES_, CONSUMERS = CONSUMERS_;
    static constexpr int CLUSTER_X = CLUSTER_X_, CLUSTER_Y = CLUSTER_Y_;
    static constexpr int CLUSTER_K = CLUSTER_K_, CLUSTER = CLUSTER_X * CLUSTER_Y * CLUSTER_K;
    static constexpr int PROMOTE = PROMOTE_, EPILOGUE = EPILOGUE_, VC = VC_;
    static constexpr bool PINGPONG = PINGPONG_, REGISTERS = REGISTERS_, SWAPPED = SWAPPED_;
    static constexpr bool ALONG_K_P = ALONG_K_P_, ALONG_K_Q = ALONG_K_Q_, PASS = PASS_;
    static constexpr bool SHARED_K = REDUCTION_ != 0, STREAM = REDUCTION_ == 2;
    static constexpr bool STAGED = STORE_ != 0, TMA_STORE = STORE_ == 2;

    // Warpgroups that multiply a tile together, and the rows of each, in blocks of an instruction.
    static constexpr int TEAM = PINGPONG ? 1 : CONSUMERS, ROWS = BX / TEAM, BLOCKS = ROWS / 64;
    static constexpr int SUMS = BY / 2;  // of a thread, in each block
    static constexpr int STEPS = BK / P::STEP;
    // Of rows that lie side by side in shared memory a thread takes neighbours: 2 of each block.
    static constexpr bool NEIGHBOURS = REGISTERS && !ALONG_K_P;

    // A stage holds P, Q and the low part of Q.
    static constexpr int LOW_BYTES = PRODUCTS == 3 ? Q::BYTES : 0;
    static constexpr int STAGE_BYTES = P::BYTES + Q::BYTES + LOW_BYTES;
    static constexpr int COPIED_BYTES = STAGE_BYTES - (PASS ? 0 : LOW_BYTES);
    // A warpgroup stages a part of C at a time: a line of 128 bytes of each row of a block.
    static constexpr int PER_LINE = LINE / static_cast<int>(sizeof(Result));
    static constexpr int PART_ROWS = SWAPPED ? BY : 64, PART_BYTES = PART_ROWS * LINE;
    static constexpr int PART_SUMS = SWAPPED ? SUMS : PER_LINE / 2;
    static constexpr int PARTS_OF_BLOCK = (SUMS + PART_SUMS - 1) / PART_SUMS;
    static constexpr int PARTS = BLOCKS * PARTS_OF_BLOCK, BUFFERS = PARTS > 1 ? 2 : 1;
    static constexpr int STAGED_BYTES = STAGED ? BUFFERS * PART_BYTES : 0;

    // At `empty`: of all who read what this block brings.
    static constexpr int NEIGHBOURHOOD = CLUSTER_X + CLUSTER_Y - 1;  // blocks with a common operand
    static constexpr int ARRIVALS = 4 * TEAM * NEIGHBOURHOOD;
    static constexpr int SPLITTERS = WARPGROUP - 32;
    static constexpr bool SPLITS = PRODUCTS == 3 && !PASS;

    // Of the blocks that have shares of a tile, so many add up and store a part of its y.
    static constexpr int SUMMERS = BY % (8 * CLUSTER_K) == 0       ? CLUSTER_K
                                   : BY % 32 == 0 && CLUSTER_K > 4 ? 4
                                   : BY % 16 == 0 && CLUSTER_K > 2 ? 2
                                                                   : 1;
    using Part = Shape<TYPE, OUTPUT, PRODUCTS, BX, BY / SUMMERS, BK, STAGES, CONSUMERS, PINGPONG_,
                       1, 1, 1, MIN_BLOCKS, REGISTERS_, ALONG_K_P_, ALONG_K_Q_, SWAPPED_, PASS_,
                       PROMOTE, REDUCTION_, STORE_, EPILOGUE, VC>;

    static_assert(ROWS % 64 == 0 && BLOCKS <= 2 && BY % 8 == 0 && BY <= 256, "tile of a warpgroup");
    static_assert(TYPE == 0 || !REGISTERS, "16-bit operands come from shared memory");
    static_assert(TYPE != 0 || ALONG_K_Q, "32-bit operands in shared memory run along K");
    static_assert(PRODUCTS == 1 || (TYPE == 0 && REGISTERS), "three products are of fp32 operands");
    static_assert(!STAGED || sizeof(Result) == 2, "fp32 results are stored directly");
    static_assert(!STREAM || CLUSTER == 1, "a cluster works on whole tiles");
    static_assert(CLUSTER_K == 1 || (CLUSTER_K == CLUSTER && !PINGPONG), "one tile a cluster");
    static_assert(CLUSTER_K / SUMMERS * BX * BY * 4 <= STAGES * STAGE_BYTES || CLUSTER_K == 1,
                  "the shares of a part lie where the stages were");
};

struct Maps {
    const TensorMap *p, *q, *low, *c;
};

template <class Result>
struct Arguments {
    Result* c;
    long long ldc;
    int m, n, k;
    float alpha, beta;
    const Result* bias;
    bool batch_p, batch_q;  // whether each matrix of the batch has its own
    long long stride_c;
    int split_k, streamed, group, batch;
    float* partials;
    int* counters;
};

// The shared memory of a block, and its barriers: `full` when a stage has come, `split` when the
// low part of Q has been made, `empty` when all have read it.
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

    __device__ char* p(int stage) const { return first + stage * S::STAGE_BYTES; }
    __device__ char* q(int stage) const { return p(stage) + S::P::BYTES; }
    __device__ char* low(int stage) const { return q(stage) + S::Q::BYTES; }
    __device__ char* staged() const { return p(S::STAGES); }
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
struct RingPlace {
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

// The tiles of C: which of them a unit of the walk is, and where that starts in x and y.
template <class S>
class Tiles {
public:
    template <class Result>
    __device__ explicit Tiles(const Arguments<Result>& given)
        : group_(given.group), rank_(S::CLUSTER > 1 ? cluster_rank() : 0) {
        const int x = ceil_div(S::SWAPPED ? given.n : given.m, S::BX * S::CLUSTER_X);
        const int y = ceil_div(S::SWAPPED ? given.m : given.n, S::BY * S::CLUSTER_Y);
        rows_ = S::SWAPPED ? y : x;
        columns_ = S::SWAPPED ? x : y;
    }

    template <class Result>
    __device__ Walk<S::STREAM> walk(const Arguments<Result>& given) const {
        return {static_cast<int>(blockIdx.x / S::CLUSTER),
                static_cast<int>(gridDim.x / S::CLUSTER),
                rows_ * columns_,
                ceil_div(given.k, S::BK),
                given.split_k,
                given.streamed,
                given.batch,
                S::CLUSTER_K,
                S::CLUSTER_K > 1 ? rank_ : 0};
    }

    __device__ void locate(int tile, int& x, int& y) const {
        BlockPosition at;
        if (group_ == 1) {
            at.row = tile / columns_;
            at.column = tile - at.row * columns_;
        } else {
            at = grouped(tile, rows_, columns_, group_);
        }
        const int in_x = rank_ % S::CLUSTER_X, in_y = rank_ / S::CLUSTER_X % S::CLUSTER_Y;
        x = ((S::SWAPPED ? at.column : at.row) * S::CLUSTER_X + in_x) * S::BX;
        y = ((S::SWAPPED ? at.row : at.column) * S::CLUSTER_Y + in_y) * S::BY;
    }

    __device__ int rank() const { return rank_; }
    __device__ int count() const { return rows_ * columns_; }

private:
    const int group_, rank_;
    int rows_, columns_;
};
