// Where a block and a thread work in C.
#pragma once

// The first row and column of a block in C, and of a warp or thread in its block.
struct Place {
    int row, column, thread_row, thread_column;
};

// The value, kept in a register: without this ptxas saves the register by computing the value again
// in the loop.
__device__ __forceinline__ int kept(int value) {
#if !defined(AUTOTUNE_HOST)
    asm volatile("" : "+r"(value));
#endif
    return value;
}
