// A thread's part of a tile product: which sums it keeps, its operands' fragments, their product.
#pragma once

#include "common/vector.cuh"

// A lane's place in its warp of LM x LN lanes. Lanes go down pairs of rows, so that each quarter of
// the warp, which shared memory serves at once, reads two pieces of A and four of B.
template <int LM, int LN>
struct Lane {
    static_assert(LM * LN == 32 && LM % 2 == 0, "a warp has 32 lanes");
    const int row, column;
    __device__ __forceinline__ explicit Lane(int lane)
        : row(lane / (2 * LN) * 2 + lane % 2), column(lane / 2 % LN) {}
};

// Reads a fragment of COUNT values in pieces of 4 that are 4 LANES apart.
template <int COUNT, int LANES>
__device__ __forceinline__ void load_fragment(float* fragment, const float* shared) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) copy_vector<4>(fragment + i, shared + i * LANES);
}

// The path of a thread over its sums, which decides the operand that the register reuse cache
// serves: along rows, along columns, along rows in alternating direction, along pairs of rows or of
// columns, where each product shares an operand with the one before it:
//
//      ROW_PAIRS:   0 3 4 7      COLUMN_PAIRS:   0 1
//                   1 2 5 6                      3 2
//
// As `ORDERS` in autotune/families/shared/cuda_enums.py. A test compares them.
enum class Order { ROWS, COLUMNS, SNAKE, ROW_PAIRS, COLUMN_PAIRS };

// sums += a b^T.
template <int TM, int TN, Order ORDER>
__device__ __forceinline__ void outer_product(float (&sums)[TM][TN], const float* a,
                                              const float* b) {
    constexpr bool PAIRS = ORDER == Order::ROW_PAIRS || ORDER == Order::COLUMN_PAIRS;
    constexpr bool BY_COLUMN = ORDER == Order::COLUMNS || ORDER == Order::COLUMN_PAIRS;
    constexpr bool ALTERNATING = PAIRS || ORDER == Order::SNAKE;
    constexpr int OUTER = BY_COLUMN ? TN : TM, INNER = BY_COLUMN ? TM : TN;
    constexpr int WIDTH = PAIRS ? 2 : 1;
#pragma unroll
    for (int first = 0; first < OUTER; first += WIDTH) {
#pragma unroll
        for (int step = 0; step < INNER; ++step) {
#pragma unroll
            for (int w = 0; w < WIDTH; ++w) {
                const int outer = first + (step % 2 ? WIDTH - 1 - w : w);
                const int inner = ALTERNATING && first / WIDTH % 2 ? INNER - 1 - step : step;
                const int i = BY_COLUMN ? inner : outer, j = BY_COLUMN ? outer : inner;
                sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
            }
        }
    }
}
