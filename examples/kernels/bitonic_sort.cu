// Sorts the keys of each row of a matrix by a bitonic network in dynamic shared memory.
//
// A block sorts `rows_each` rows at once. A step compares the keys of all pairs that are `stride`
// apart; its pairs are dealt to the threads in turns.
//
// Parameters (macros):
//   block_size_x    threads of a block, a multiple of 32
//   columns         keys of a row, a power of two
//   rows_each       rows of a block
//   vector_width    keys of a load: 1, 2 or 4
//   warp_steps      1: steps within 64 keys wait for the warp; 0: all wait for the block
//   unroll          pairs of a thread that are unrolled
//
// Constraints: the dynamic shared memory holds columns * rows_each keys; block_size_x divides half
// of them.

struct alignas(4 * vector_width) Pack {
    unsigned int lane[vector_width];
};

extern "C" __global__ void __launch_bounds__(block_size_x)
bitonic_sort(const unsigned int* __restrict__ in, unsigned int* __restrict__ out, int rows) {
    extern __shared__ unsigned int keys[];
    constexpr int unrolled = unroll;  // a pragma does not expand macros
    constexpr int count = columns * rows_each;
    const int packs = min(rows_each, rows - blockIdx.x * rows_each) * columns / vector_width;
    const size_t start = (size_t)blockIdx.x * count;
    for (int i = threadIdx.x; i < count / vector_width; i += block_size_x)
        ((Pack*)keys)[i] = i < packs ? ((const Pack*)(in + start))[i] : Pack{};
    __syncthreads();
    for (int size = 2; size <= columns; size *= 2) {
        for (int stride = size / 2; stride > 0; stride /= 2) {
#pragma unroll unrolled
            for (int pair = threadIdx.x; pair < count / 2; pair += block_size_x) {
                const int first = 2 * pair - pair % stride, second = first + stride;
                const bool rising = (first & size) == 0 || size == columns;
                const unsigned int low = min(keys[first], keys[second]);
                const unsigned int high = max(keys[first], keys[second]);
                keys[first] = rising ? low : high;
                keys[second] = rising ? high : low;
            }
            // A warp's pairs of these steps stay within the same 64 keys.
            if (warp_steps && stride <= 32 && stride > 1) __syncwarp();
            else __syncthreads();
        }
    }
    for (int i = threadIdx.x; i < packs; i += block_size_x)
        ((Pack*)(out + start))[i] = ((const Pack*)keys)[i];
}
