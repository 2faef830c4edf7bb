// A thread's part of a tile product: which sums it keeps, its operands' fragments, their product.
#pragma once

#include "common/vector.cuh"

// The value, computed once: without this ptxas saves a register by computing it again in the loop.
__device__ __forceinline__ int once(int value) {
#if !defined(AUTOTUNE_HOST)
    asm volatile("" : "+r"(value));
#endif
    return value;
}

// A lane's place in its warp of LM x LN lanes. Lanes go down pairs of rows, so that each quarter of
// the warp, which shared memory serves at once, reads two pieces of A and four of B.
template <int LM, int LN>
struct Lane {
    static_assert(LM * LN == 32 && LM % 2 == 0, "a warp has 32 lanes");
    const int row, column;
    __device__ __forceinline__ explicit Lane(int lane)
        : row(lane / (2 * LN) * 2 + lane % 2), column(lane / 2 % LN) {}
};

// The first row and column of a block in C, and of a thread in its block.
struct Place {
    int row, column, thread_row, thread_column;
};

// Reads a fragment of COUNT values in pieces of 4 that are 4 LANES apart.
template <int COUNT, int LANES>
__device__ __forceinline__ void load_fragment(float* fragment, const float* shared) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) copy_vector<4>(fragment + i, shared + i * LANES);
}

// sums += a b^T. The path over the sums decides which operand the register reuse cache serves:
// ORDER 0 goes along rows, 1 along columns, 2 along rows in alternating direction, 3 along pairs of
// rows and 4 along pairs of columns, where each product shares an operand with the one before it:
//
//      3:   0 3 4 7      4:   0 1
//           1 2 5 6           3 2
template <int TM, int TN, int ORDER>
__device__ __forceinline__ void outer_product(float (&sums)[TM][TN], const float* a,
                                              const float* b) {
    constexpr bool BY_COLUMN = ORDER == 1 || ORDER == 4;
    constexpr int OUTER = BY_COLUMN ? TN : TM, INNER = BY_COLUMN ? TM : TN;
    constexpr int WIDTH = ORDER < 3 ? 1 : 2;
#pragma unroll
    for (int first = 0; first < OUTER; first += WIDTH) {
#pragma unroll
        for (int step = 0; step < INNER; ++step) {
#pragma unroll
            for (int w = 0; w < WIDTH; ++w) {
                const int outer = first + (step % 2 ? WIDTH - 1 - w : w);
                const int inner = ORDER >= 2 && first / WIDTH % 2 ? INNER - 1 - step : step;
                const int i = BY_COLUMN ? inner : outer, j = BY_COLUMN ? outer : inner;
                sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
            }
        }
    }
}
