// The main loop of a consumer of `wgmma` for fp8: the tensor cores keep 14 bits of a sum, so each
// 128 of K is added up on its own and promoted to sums in fp32, times its scales if it has any.
#pragma once

#include "hopper/consumer.cuh"
#include "hopper/multiply.cuh"

// The scales of a thread's sums for one block of K.
template <class S>
struct BlockFactors {
    static constexpr int ROWS = S::MMAS * (S::TRANSPOSED ? 1 : 2);
    static constexpr int COLUMNS = S::TRANSPOSED ? S::SUMS / 2 : S::SCALE_BLOCKS_N;
    float rows[ROWS], columns[COLUMNS];
};

// Where the scales of a thread's sums are: along the tile's M those of neighbouring rows of A, and
// along its N those of one or two blocks of columns of B. A TRANSPOSED tile has a block of columns of
// B for each 64 of its M and the rows of A along its N.
template <class S>
class BlockScales {
public:
    using Factors = BlockFactors<S>;

    // (m, n) is where the team's tile starts.
    template <class Result>
    __device__ BlockScales(const Arguments<Result>& args, const WorkUnit& unit, int m, int n,
                           const Consumer<S>& consumer)
        : blocks_((args.k + SCALE_BLOCK - 1) / SCALE_BLOCK), height_(args.m) {
        const int blocks_n = (args.n + SCALE_BLOCK - 1) / SCALE_BLOCK;
        a_ = args.scale_a + static_cast<long long>(unit.matrix) * blocks_ * height_;
        b_ = args.scale_b + static_cast<long long>(unit.matrix) * blocks_n * blocks_;
        m += consumer.row();
        if constexpr (S::TRANSPOSED) {
#pragma unroll
            for (int i = 0; i < Factors::ROWS; ++i)
                rows_[i] = min((m + 64 * i) / SCALE_BLOCK, blocks_n - 1);
#pragma unroll
            for (int i = 0; i < Factors::COLUMNS; ++i)
                columns_[i] = min(n + consumer.n(i / 2 * 4 + i % 2), height_ - 1);
        } else {
#pragma unroll
            for (int i = 0; i < Factors::ROWS; ++i)
                rows_[i] = min(m + consumer.m(i / 2, i % 2), height_ - 1);
#pragma unroll
            for (int i = 0; i < Factors::COLUMNS; ++i)
                columns_[i] = min(n / SCALE_BLOCK + i, blocks_n - 1);
            first_columns_ = SCALE_BLOCK - n % SCALE_BLOCK;
        }
    }

    // Those of a block of K; beyond the last block, of that one.
    __device__ BlockFactors<S> load(int block) const {
        block = min(block, blocks_ - 1);
        const float* a = a_ + static_cast<long long>(block) * height_;
        BlockFactors<S> factors;
#pragma unroll
        for (int i = 0; i < Factors::ROWS; ++i)
            factors.rows[i] = __ldg(S::TRANSPOSED ? b_ + rows_[i] * blocks_ + block : a + rows_[i]);
#pragma unroll
        for (int i = 0; i < Factors::COLUMNS; ++i)
            factors.columns[i] =
                __ldg(S::TRANSPOSED ? a + columns_[i] : b_ + columns_[i] * blocks_ + block);
        return factors;
    }

    // d, from sum `first` on, += COUNT sums of a block of instruction `mma`, times their scales.
    template <int COUNT>
    __device__ __forceinline__ void add(float (&d)[S::SUMS], const float (&sums)[COUNT],
                                        const BlockFactors<S>& factors, int mma, int first) const {
#pragma unroll
        for (int j = 0; j < COUNT; ++j) {
            const int i = first + j;
            if constexpr (S::TRANSPOSED) {
                const float factor = factors.rows[mma] * factors.columns[i / 4 * 2 + i % 2];
                d[i] = fmaf(factor, sums[j], d[i]);
            } else {
                const bool second = S::SCALE_BLOCKS_N > 1 && i / 4 * 8 >= first_columns_;
                const float column =
                    second ? factors.columns[Factors::COLUMNS - 1] : factors.columns[0];
                d[i] = fmaf(factors.rows[2 * mma + i / 2 % 2] * column, sums[j], d[i]);
            }
        }
    }

private:
    const float *a_, *b_;
    int blocks_, height_, first_columns_ = 0;
    int rows_[Factors::ROWS], columns_[Factors::COLUMNS];
};

// Without scales for each block of K.
template <class S>
struct NoBlockScales {
    struct Factors {};
    template <class... Args>
    __device__ explicit NoBlockScales(const Args&...) {}
    __device__ Factors load(int) const { return {}; }
    template <int COUNT>
    __device__ __forceinline__ void add(float (&d)[S::SUMS], const float (&sums)[COUNT], Factors,
                                        int, int first) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) d[first + i] += sums[i];
    }
};

template <class S>
using ScalesOfBlocks =
    typename If<S::SCALE == Scale::BLOCK, BlockScales<S>, NoBlockScales<S>>::Type;

// The sums of one instruction and one part of the tile's columns over a block of K: a consumer's ITEMS
// of a stage. It alternates between two sets of registers, so that the tensor cores multiply one item
// while the one before is promoted.
template <class S>
struct Items {
    static constexpr int BLOCKS = S::TILE_K / SCALE_BLOCK, PARTS = S::PROMOTE;
    static constexpr int COLUMNS = S::TILE_N / PARTS, SUMS = COLUMNS / 2;
    static constexpr int COUNT = BLOCKS * S::MMAS * PARTS;
    static_assert(BLOCKS <= 2, "stages of one or two blocks of K");
    static_assert(COLUMNS % 8 == 0 && COLUMNS * PARTS == S::TILE_N, "parts of whole instructions");
};

// Multiplies item `item` of a stage that starts `stage` pieces after A and B.
template <class S>
__device__ __forceinline__ void multiply_item(float (&sums)[Items<S>::SUMS], Descriptor a,
                                              Descriptor b, unsigned stage, int row, int item) {
    using I = Items<S>;
    constexpr int STEPS = SCALE_BLOCK / S::A::STEP;
    const int part = item % I::PARTS, mma = item / I::PARTS % S::MMAS;
    const int block = item / (I::PARTS * S::MMAS);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < STEPS; ++i)
        wgmma_shared<I::COLUMNS, S::TYPE_A, S::TYPE_B, false, false>(
            sums, S::A::at(a, stage, row + 64 * mma, block * STEPS + i),
            S::B::at(b, stage, part * I::COLUMNS, block * STEPS + i), i > 0);
    wgmma_commit();
}

// d = A B^T over the stages of a unit, both from shared memory. The scales of two blocks of K are on
// their way: each set is loaded when the one before it in its registers has been used.
template <class S, class Scales>
__device__ __forceinline__ void multiply_blocks(float (&d)[S::MMAS][S::SUMS],
                                                const Stages<S>& stages,
                                                PipelineState<S::STAGES>& at, const WorkUnit& unit,
                                                const Scales& scales, int row) {
    using I = Items<S>;
    constexpr int OF_BLOCK = S::MMAS * I::PARTS;
    constexpr int SETS = S::SCALE == Scale::BLOCK ? 2 : I::BLOCKS, TURNS = SETS / I::BLOCKS;
    const Descriptor a = S::A::start(stages.a(0)), b = S::B::start(stages.b(0));
    float sums[2][I::SUMS];
#pragma unroll
    for (int i = 0; i < S::MMAS * S::SUMS; ++i) d[i / S::SUMS][i % S::SUMS] = 0.0f;
    typename Scales::Factors factors[SETS];
#pragma unroll
    for (int set = 0; set < SETS; ++set) factors[set] = scales.load(unit.begin * I::BLOCKS + set);
    for (int first = unit.begin; first < unit.end; first += TURNS) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int step = first + turn;
            if (step == unit.end) break;
            const auto promote = [&](int item) {
                const int set = turn * I::BLOCKS + item / OF_BLOCK, mma = item / I::PARTS % S::MMAS;
                wgmma_hold(sums[item % 2]);
                scales.template add<I::SUMS>(d[mma], sums[item % 2], factors[set], mma,
                                             item % I::PARTS * I::SUMS);
                if ((item + 1) % OF_BLOCK == 0)
                    factors[set] = scales.load(step * I::BLOCKS + item / OF_BLOCK + SETS);
            };
            barrier_wait(stages.full(at.stage), at.phase);
            const unsigned stage = at.stage * S::STAGE_PIECES;
#pragma unroll
            for (int item = 0; item < I::COUNT; ++item) {
                multiply_item<S>(sums[item % 2], a, b, stage, row, item);
                if (item > 0) {
                    wgmma_wait<1>();
                    promote(item - 1);
                }
            }
            wgmma_wait<0>();
            release(stages, at.stage, reloaded<S>(step - unit.begin, unit.end - unit.begin));
            promote(I::COUNT - 1);
            at.next();
        }
    }
}
