// The order in which a linear block index walks over the tiles of C.
#pragma once

struct BlockPosition {
    int row;
    int column;
};

__device__ __forceinline__ int ceil_div(int a, int b) { return (a - 1) / b + 1; }

// Walks down `group` tile rows before it steps to the next tile column, so that the blocks that
// run at the same time share rows of A and columns of B in L2:
//
//      0  2  4      group = 2 on 3 x 3 tiles
//      1  3  5
//      6  7  8
__device__ __forceinline__ BlockPosition grouped(int index, int rows, int columns, int group) {
    const int group_size = group * columns;
    const int first_row = index / group_size * group;
    const int height = min(group, rows - first_row);
    const int within = index % group_size;
    return {first_row + within % height, within / height};
}
