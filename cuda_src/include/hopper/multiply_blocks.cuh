// The main loop of a consumer of `wgmma` for fp8: the tensor cores keep 14 bits of a sum, so each
// 128 of K is added up on its own and promoted to sums in fp32, times its scales if it has any.
//
// An item is what is promoted at a time: the sums of one instruction, or of a part of its columns,
// over a block of K. Items alternate between two sets of registers, so that the tensor cores multiply
// one while the one before is promoted.
#pragma once

#include "hopper/consumer.cuh"
#include "hopper/multiply.cuh"

template <class S>
struct Items {
    static constexpr int BLOCKS = S::TILE_K / SCALE_BLOCK, PARTS = S::PROMOTE;
    static constexpr int COLUMNS = S::TILE_N / PARTS, SUMS = COLUMNS / 2;
    static constexpr int COUNT = BLOCKS * S::MMAS * PARTS;  // of a stage
    // Stages whose items follow each other without a pause, which ptxas needs at the end of a loop.
    static constexpr int STAGES = COUNT < 4 ? 4 / COUNT : 1;
    static_assert(COLUMNS % 8 == 0 && COLUMNS * PARTS == S::TILE_N, "parts of whole instructions");

    __device__ static constexpr int part(int item) { return item % PARTS; }
    __device__ static constexpr int mma(int item) { return item / PARTS % S::MMAS; }
    __device__ static constexpr int block(int item) { return item / (PARTS * S::MMAS); }
};

// The scales of a thread's sums of an item. In the tile of C they belong to two rows of A and to
// neighbouring columns of B, which one or two blocks have in common; in a TRANSPOSED tile to a block
// of columns of B and to one row of A for each pair of sums.
template <class S>
class BlockScales {
public:
    struct Factors {
        static constexpr int ROWS = S::TRANSPOSED ? 1 : 2;
        static constexpr int COLUMNS = S::TRANSPOSED ? Items<S>::SUMS / 2 : S::SCALE_BLOCKS_N;
        float rows[ROWS], columns[COLUMNS];
    };

    // (m, n) is where the team's tile starts.
    template <class Result>
    __device__ BlockScales(const Arguments<Result>& args, const WorkUnit& unit, int m, int n,
                           const Consumer<S>& consumer)
        : blocks_((args.k + SCALE_BLOCK - 1) / SCALE_BLOCK), height_(args.m) {
        const int last_n = (args.n - 1) / SCALE_BLOCK, last_m = height_ - 1;
        a_ = args.scale_a + static_cast<long long>(unit.matrix) * blocks_ * height_;
        b_ = args.scale_b + static_cast<long long>(unit.matrix) * (last_n + 1) * blocks_;
        m += consumer.row();
        if constexpr (S::TRANSPOSED) {
#pragma unroll
            for (int mma = 0; mma < S::MMAS; ++mma)
                rows_[mma] = min((m + 64 * mma) / SCALE_BLOCK, last_n) * blocks_;
#pragma unroll
            for (int i = 0; i < S::SUMS / 2; ++i)
                columns_[i] = min(n + consumer.n(i / 2 * 4 + i % 2), last_m);
        } else {
#pragma unroll
            for (int i = 0; i < 2 * S::MMAS; ++i)
                rows_[i] = min(m + consumer.m(i / 2, i % 2), last_m);
#pragma unroll
            for (int i = 0; i < S::SCALE_BLOCKS_N; ++i)
                columns_[i] = min(n / SCALE_BLOCK + i, last_n) * blocks_;
            first_columns_ = SCALE_BLOCK - n % SCALE_BLOCK;
        }
    }

    // Those of an item in a stage whose first block of K is `first`.
    __device__ __forceinline__ Factors load(int first, int item) const {
        const int block = min(first + Items<S>::block(item), blocks_ - 1);
        const float* a = a_ + static_cast<long long>(block) * height_;
        const float* b = b_ + block;
        Factors factors;
#pragma unroll
        for (int i = 0; i < Factors::ROWS; ++i) {
            const int place = rows_[Items<S>::mma(item) * Factors::ROWS + i];
            factors.rows[i] = __ldg((S::TRANSPOSED ? b : a) + place);
        }
#pragma unroll
        for (int i = 0; i < Factors::COLUMNS; ++i) {
            const int start = S::TRANSPOSED ? Items<S>::part(item) * Factors::COLUMNS : 0;
            factors.columns[i] = __ldg((S::TRANSPOSED ? a : b) + columns_[start + i]);
        }
        return factors;
    }

    // The factor of sum `i` of the tile's columns.
    __device__ __forceinline__ float of(const Factors& factors, int i, int item) const {
        if constexpr (S::TRANSPOSED) {
            const int start = Items<S>::part(item) * Factors::COLUMNS;
            return factors.rows[0] * factors.columns[i / 4 * 2 + i % 2 - start];
        } else {
            const bool second = S::SCALE_BLOCKS_N > 1 && i / 4 * 8 >= first_columns_;
            return factors.rows[i / 2 % 2] *
                   (second ? factors.columns[Factors::COLUMNS - 1] : factors.columns[0]);
        }
    }

private:
    const float *a_, *b_;
    int blocks_, height_, first_columns_ = 0;
    int rows_[S::MMAS * Factors::ROWS];
    int columns_[S::TRANSPOSED ? S::SUMS / 2 : S::SCALE_BLOCKS_N];
};

// Without scales for each block of K.
template <class S>
struct NoBlockScales {
    struct Factors {};
    template <class... Args>
    __device__ explicit NoBlockScales(const Args&...) {}
    __device__ Factors load(int, int) const { return {}; }
    __device__ float of(const Factors&, int, int) const { return 1.0f; }
};

template <class S>
using ScalesOfBlocks =
    typename If<S::SCALE == Scale::BLOCK, BlockScales<S>, NoBlockScales<S>>::Type;

// Multiplies an item of a stage that starts `stage` pieces after A and B.
template <class S>
__device__ __forceinline__ void multiply_item(float (&sums)[Items<S>::SUMS], Descriptor a,
                                              Descriptor b, unsigned stage, int row, int item) {
    using I = Items<S>;
    constexpr int STEPS = SCALE_BLOCK / S::A::STEP;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int step = I::block(item) * STEPS + i;
        wgmma_shared<I::COLUMNS, S::TYPE_A, S::TYPE_B, false, false>(
            sums, S::A::at(a, stage, row + 64 * I::mma(item), step),
            S::B::at(b, stage, I::part(item) * I::COLUMNS, step), i > 0);
    }
    wgmma_commit();
}

// d += A B^T over the STAGES stages from step `first` of a unit.
template <class S, int STAGES, class Scales>
__device__ __forceinline__ void multiply_stages(float (&d)[S::MMAS][S::SUMS],
                                                const Stages<S>& stages,
                                                PipelineState<S::STAGES>& at, int first,
                                                const WorkUnit& unit, const Scales& scales,
                                                int row) {
    using I = Items<S>;
    constexpr int COUNT = STAGES * I::COUNT;
    const Descriptor a = S::A::start(stages.a(0)), b = S::B::start(stages.b(0));
    float sums[2][I::SUMS];
    typename Scales::Factors factors[2];
    int previous = 0;
    const auto promote = [&](int i) {
        const int item = i % I::COUNT, start = I::part(item) * I::SUMS;
        if (item == I::COUNT - 1) {
            const int step = first + i / I::COUNT - unit.begin;
            release(stages, i == COUNT - 1 ? at.stage : previous,
                    reloaded<S>(step, unit.end - unit.begin));
        }
        wgmma_hold(sums[i % 2]);
#pragma unroll
        for (int j = 0; j < I::SUMS; ++j) {
            float& sum = d[I::mma(item)][start + j];
            sum = fmaf(scales.of(factors[i % 2], start + j, item), sums[i % 2][j], sum);
        }
    };
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (i > 0 && i % I::COUNT == 0) {
            previous = at.stage;
            at.next();
        }
        if (i % I::COUNT == 0) barrier_wait(stages.full(at.stage), at.phase);
        multiply_item<S>(sums[i % 2], a, b, at.stage * S::STAGE_PIECES, row, i % I::COUNT);
        factors[i % 2] = scales.load((first + i / I::COUNT) * I::BLOCKS, i % I::COUNT);
        if (i > 0) {
            wgmma_wait<1>();
            promote(i - 1);
        }
    }
    wgmma_wait<0>();
    promote(COUNT - 1);
    at.next();
}

// d = A B^T over the stages of a unit, both from shared memory.
template <class S, class Scales>
__device__ __forceinline__ void multiply_blocks(float (&d)[S::MMAS][S::SUMS],
                                                const Stages<S>& stages,
                                                PipelineState<S::STAGES>& at, const WorkUnit& unit,
                                                const Scales& scales, int row) {
    constexpr int TOGETHER = Items<S>::STAGES;
#pragma unroll
    for (int i = 0; i < S::MMAS * S::SUMS; ++i) d[i / S::SUMS][i % S::SUMS] = 0.0f;
    int step = unit.begin;
#pragma unroll 1
    for (; step + TOGETHER <= unit.end; step += TOGETHER)
        multiply_stages<S, TOGETHER>(d, stages, at, step, unit, scales, row);
    if constexpr (TOGETHER > 1) {
#pragma unroll 1
        for (; step < unit.end; ++step)
            multiply_stages<S, 1>(d, stages, at, step, unit, scales, row);
    }
}
