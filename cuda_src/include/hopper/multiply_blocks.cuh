// The main loop of a consumer of `wgmma` for fp8: the tensor cores keep 14 bits of a sum, so each
// 128 of K is added up on its own and promoted to sums in fp32, times its scales if it has any.
//
// An item is what is promoted at a time: the sums of one instruction, or of a part of its columns,
// over a block of K. Items alternate between two sets of registers, so that the tensor cores
// multiply one while the one before is promoted.
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

// The scales of a thread's sums of an item: of two rows of A and one or two blocks of columns of B,
// or in a TRANSPOSED tile of a block of columns of B and a row of A for each pair of sums.
template <class S>
class ItemScales {
public:
    struct Factors {
        static constexpr int ROWS = S::TRANSPOSED ? 1 : 2;
        static constexpr int COLUMNS = S::TRANSPOSED ? Items<S>::SUMS / 2 : S::SCALE_BLOCKS_N;
        float rows[ROWS], columns[COLUMNS];
    };

    // The tile starts at column `n`.
    __device__ ItemScales(const Stages<S>& stages, int n, const Consumer<S>& consumer)
        : stages_(stages), consumer_(consumer), first_columns_(SCALE_BLOCK - n % SCALE_BLOCK) {}

    // Those of an item of a stage.
    __device__ __forceinline__ Factors load(int stage, int item) const {
        using I = Items<S>;
        const float* scales = stages_.scales(stage) + I::block(item) * S::BLOCK_SCALES;
        Factors factors;
        if constexpr (S::TRANSPOSED) {
            factors.rows[0] = scales[S::TILE_N + consumer_.row() / 64 + I::mma(item)];
#pragma unroll
            for (int i = 0; i < Factors::COLUMNS; ++i) {
                const int sum = I::part(item) * I::SUMS + i / 2 * 4 + i % 2;
                factors.columns[i] = scales[consumer_.n(sum)];
            }
        } else {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                factors.rows[half] = scales[consumer_.row() + consumer_.m(I::mma(item), half)];
#pragma unroll
            for (int i = 0; i < Factors::COLUMNS; ++i) factors.columns[i] = scales[S::TILE_M + i];
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
    const Stages<S>& stages_;
    const Consumer<S>& consumer_;
    int first_columns_;
};

// Without scales for each block of K.
template <class S>
struct NoItemScales {
    struct Factors {};
    __device__ NoItemScales(const Stages<S>&, int, const Consumer<S>&) {}
    __device__ Factors load(int, int) const { return {}; }
    __device__ float of(const Factors&, int, int) const { return 1.0f; }
};

template <class S>
using ScalesOfItems = typename If<S::BLOCK_SCALED, ItemScales<S>, NoItemScales<S>>::Type;

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
        const auto released = [&] {
            if (item == I::COUNT - 1)
                release(stages, i == COUNT - 1 ? at.stage : previous,
                        reloaded<S>(first + i / I::COUNT - unit.begin, unit.end - unit.begin));
        };
        wgmma_hold(sums[i % 2]);
        if constexpr (!S::BLOCK_SCALED) released();
#pragma unroll
        for (int j = 0; j < I::SUMS; ++j) {
            float& sum = d[I::mma(item)][start + j];
            sum = fmaf(scales.of(factors[i % 2], start + j, item), sums[i % 2][j], sum);
        }
        // The scales of the stage have been read now, too.
        if constexpr (S::BLOCK_SCALED) released();
    };
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (i > 0 && i % I::COUNT == 0) {
            previous = at.stage;
            at.next();
        }
        if (i % I::COUNT == 0) barrier_wait(stages.full(at.stage), at.phase);
        multiply_item<S>(sums[i % 2], a, b, at.stage * S::STAGE_PIECES, row, i % I::COUNT);
        factors[i % 2] = scales.load(at.stage, i % I::COUNT);
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
