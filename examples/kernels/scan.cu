// Inclusive prefix sums of the rows of a matrix of whole numbers.
//
// A block has a row, in chunks of block_size_x * items numbers. A thread adds its adjacent numbers,
// the block scans the sums of its threads, and the last sum is carried to the next chunk.
//
// Parameters (macros):
//   block_size_x    threads of a block, a multiple of 32
//   items           numbers of a thread in a chunk
//   vector_width    numbers of a load: 1, 2 or 4
//   fewest_blocks   blocks that an SM has to hold, which limits registers
//   use_shuffle     1: warps scan by shuffles; 0: the block scans in shared memory alone
//
// Constraints: vector_width divides items; block_size_x * items divides the columns.

struct alignas(4 * vector_width) Pack {
    unsigned int lane[vector_width];
};

extern "C" __global__ void __launch_bounds__(block_size_x, fewest_blocks)
scan_rows(const unsigned int* __restrict__ in, unsigned int* __restrict__ out, int columns) {
    __shared__ unsigned int sums[use_shuffle ? 32 : block_size_x];
    unsigned int carry = 0;
    for (int start = 0; start < columns; start += block_size_x * items) {
        const size_t at = (size_t)blockIdx.x * columns + start + threadIdx.x * items;
        unsigned int kept[items];
        unsigned int sum = 0;
#pragma unroll
        for (int i = 0; i < items / vector_width; ++i) {
            const Pack pack = ((const Pack*)(in + at))[i];
#pragma unroll
            for (int j = 0; j < vector_width; ++j)
                kept[i * vector_width + j] = sum += pack.lane[j];
        }
        unsigned int before, total;  // the sums of the threads before this one, and of all
        __syncthreads();
#if use_shuffle
        constexpr int warps = block_size_x / 32;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        unsigned int scanned = sum;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const unsigned int other = __shfl_up_sync(0xffffffffu, scanned, step);
            if (lane >= step) scanned += other;
        }
        if (lane == 31) sums[warp] = scanned;
        __syncthreads();
        before = scanned - sum;
        total = 0;
#pragma unroll
        for (int i = 0; i < warps; ++i) {
            if (i == warp) before += total;
            total += sums[i];
        }
#else
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int step = 1; step < block_size_x; step *= 2) {
            const unsigned int other = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
            __syncthreads();
            sums[threadIdx.x] += other;
            __syncthreads();
        }
        before = sums[threadIdx.x] - sum;
        total = sums[block_size_x - 1];
#endif
#pragma unroll
        for (int i = 0; i < items / vector_width; ++i) {
            Pack pack;
#pragma unroll
            for (int j = 0; j < vector_width; ++j)
                pack.lane[j] = carry + before + kept[i * vector_width + j];
            ((Pack*)(out + at))[i] = pack;
        }
        carry += total;
    }
}
