// Adds the sum of n floats to total[0].
//
// The blocks stride through the input together. Each reduces its share in registers, then in its
// warps, then in shared memory, and adds one number to the total.
//
// Parameters (macros):
//   block_size_x    threads of a block
//   num_blocks      blocks of the grid
//   vector_width    floats of a load: 1, 2 or 4
//   unroll          independent sums of a thread
//   use_shuffle     1: warps reduce by shuffles; 0: the block reduces in shared memory alone
//
// Constraints: block_size_x is a power of two from 32 on; n is a multiple of vector_width.

struct alignas(4 * vector_width) Pack {
    float lane[vector_width];
};

__device__ float sum_of(const Pack& pack) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < vector_width; ++i) sum += pack.lane[i];
    return sum;
}

extern "C" __global__ void __launch_bounds__(block_size_x)
reduce_sum(const float* __restrict__ x, float* __restrict__ total, int n) {
    const Pack* packs = (const Pack*)x;
    const int count = n / vector_width, stride = num_blocks * block_size_x;
    int i = blockIdx.x * block_size_x + threadIdx.x;
    float sums[unroll] = {};
    for (; i < count - (unroll - 1) * stride; i += unroll * stride) {
#pragma unroll
        for (int j = 0; j < unroll; ++j) sums[j] += sum_of(packs[i + j * stride]);
    }
    for (; i < count; i += stride) sums[0] += sum_of(packs[i]);
#pragma unroll
    for (int j = 1; j < unroll; ++j) sums[0] += sums[j];
    float sum = sums[0];

#if use_shuffle
    __shared__ float warps[32];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = threadIdx.x < block_size_x / 32 ? warps[threadIdx.x] : 0.0f;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
#else
    __shared__ float threads[block_size_x];
    threads[threadIdx.x] = sum;
    __syncthreads();
#pragma unroll
    for (int step = block_size_x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) threads[threadIdx.x] += threads[threadIdx.x + step];
        __syncthreads();
    }
    sum = threads[0];
#endif
    if (threadIdx.x == 0) atomicAdd(total, sum);
}
