// Multiplies a sparse matrix in CSR with a vector, y = A x, with a cooperative group for each row.
//
// Parameters (macros):
//   block_size_x    threads of a block
//   row_threads     threads of a group, which share a row: a power of two up to 32
//   rows_each       rows of a group, one after the other
//   unroll          elements of a thread in flight
//   read_only       1: x is read through the read-only path
//   streaming       1: the matrix is read past the caches' other contents
//
// Constraints: row_threads divides block_size_x.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void __launch_bounds__(block_size_x)
spmv(const int* __restrict__ starts, const int* __restrict__ places,
     const float* __restrict__ values, const float* x, float* __restrict__ y, int rows) {
    constexpr int unrolled = unroll;  // a pragma does not expand macros
    const auto group = cg::tiled_partition<row_threads>(cg::this_thread_block());
    const int first = (blockIdx.x * (block_size_x / row_threads) + threadIdx.x / row_threads) *
                      rows_each;
    for (int row = first; row < min(first + rows_each, rows); ++row) {
        const int end = starts[row + 1];
        float sum = 0.0f;
#pragma unroll unrolled
        for (int i = starts[row] + group.thread_rank(); i < end; i += row_threads) {
            const int place = streaming ? __ldcs(places + i) : places[i];
            const float value = streaming ? __ldcs(values + i) : values[i];
            sum += value * (read_only ? __ldg(x + place) : x[place]);
        }
#pragma unroll
        for (int step = row_threads / 2; step > 0; step /= 2) sum += group.shfl_xor(sum, step);
        if (group.thread_rank() == 0) y[row] = sum;
    }
}
