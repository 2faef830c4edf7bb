// Scales of blocks of K for the sums of a warp of `mma`: of rows of A in 1 x 128 blocks and of
// columns of B in 128 x 128 blocks. A warp's side has at most 64 columns of B, so that they are all
// in one block.
#pragma once

#include "common/choice.cuh"
#include "mma/shape.cuh"

template <class S>
class BlockScales {
    // TRANSPOSED (swap-AB), the kernel's columns are rows of the problem's A.
    static constexpr int COUNT = 2 * (S::TRANSPOSED ? S::COLUMNS : S::ROWS);
    static_assert((S::TRANSPOSED ? S::WM : S::WN) <= SCALE_BLOCK, "columns of one block");

public:
    template <class Args>
    __device__ __forceinline__ BlockScales(const Args& args, const Place& at, int lane)
        : blocks_(ceil_div(args.k, SCALE_BLOCK)), height_(S::TRANSPOSED ? args.n : args.m) {
        const int width = S::TRANSPOSED ? args.m : args.n;
        const int row = at.row + at.thread_row, column = at.column + at.thread_column;
        const int blocks_n = ceil_div(width, SCALE_BLOCK);
        const int block_n = min((S::TRANSPOSED ? row : column) / SCALE_BLOCK, blocks_n - 1);
        const long long matrix = blockIdx.z;
        a_ = args.scale_a + matrix * blocks_ * height_;
        b_ = args.scale_b + (matrix * blocks_n + block_n) * blocks_;
        first_ = S::TRANSPOSED ? column + 2 * (lane % 4) : row + lane / 4;
    }

    // Those of the block of K that `k` is in; beyond the last block, of that one.
    __device__ __forceinline__ void load(unsigned k) {
        const int block = min(static_cast<int>(k / SCALE_BLOCK), blocks_ - 1);
        const float b = __ldg(b_ + block);
        const float* a = a_ + static_cast<long long>(block) * height_;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int further = S::TRANSPOSED ? i / 2 * 8 + i % 2 : i * 8;
            factors_[i] = b * __ldg(a + min(first_ + further, height_ - 1));
        }
    }

    // That of sum `e` of product (i, j).
    __device__ __forceinline__ float factor(int i, int j, int e) const {
        return factors_[S::TRANSPOSED ? 2 * j + e % 2 : 2 * i + e / 2];
    }

private:
    const float *a_, *b_;
    int blocks_, height_, first_;
    float factors_[COUNT];
};

// Without scales of blocks.
template <class S>
struct NoBlockScales {
    template <class Args>
    __device__ __forceinline__ NoBlockScales(const Args&, const Place&, int) {}
    __device__ __forceinline__ void load(int) {}
    __device__ __forceinline__ float factor(int, int, int) const { return 1.0f; }
};
