// Normalises each row of a matrix to mean 0 and variance 1, with CUB's block reduction.
//
// A block has a row; a thread keeps its floats in registers.
//
// Parameters (macros):
//   block_size_x        threads of a block
//   row_length          floats of a row
//   vector_width        floats of a load: 1, 2 or 4
//   reduction           CUB's algorithm: 0 raking, 1 raking for commutative sums, 2 warp reductions
//   fewest_blocks       blocks that an SM has to hold, which limits registers
//   two_pass            1: the variance is summed around the mean; 0: from sums of squares
//
// Constraints: block_size_x * vector_width divides row_length.

#include <cub/block/block_reduce.cuh>

#if reduction == 0
#define block_algorithm cub::BLOCK_REDUCE_RAKING
#elif reduction == 1
#define block_algorithm cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY
#else
#define block_algorithm cub::BLOCK_REDUCE_WARP_REDUCTIONS
#endif

struct alignas(4 * vector_width) Pack {
    float lane[vector_width];
};

using Reduce = cub::BlockReduce<float, block_size_x, block_algorithm>;

__device__ float sum_of_block(float value, Reduce::TempStorage& storage, float& shared) {
    const float sum = Reduce(storage).Sum(value);
    if (threadIdx.x == 0) shared = sum;
    __syncthreads();
    const float result = shared;
    __syncthreads();
    return result;
}

extern "C" __global__ void __launch_bounds__(block_size_x, fewest_blocks)
layer_norm(const float* __restrict__ in, float* __restrict__ out, float epsilon) {
    __shared__ Reduce::TempStorage storage;
    __shared__ float shared;
    constexpr int loads = row_length / (block_size_x * vector_width);
    const Pack* from = (const Pack*)(in + (size_t)blockIdx.x * row_length) + threadIdx.x;
    Pack* to = (Pack*)(out + (size_t)blockIdx.x * row_length) + threadIdx.x;
    Pack kept[loads];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < loads; ++i) {
        kept[i] = from[i * block_size_x];
#pragma unroll
        for (int j = 0; j < vector_width; ++j) {
            sum += kept[i].lane[j];
            if (!two_pass) squares += kept[i].lane[j] * kept[i].lane[j];
        }
    }
    const float mean = sum_of_block(sum, storage, shared) / row_length;
    if (two_pass) {
#pragma unroll
        for (int i = 0; i < loads; ++i) {
#pragma unroll
            for (int j = 0; j < vector_width; ++j) {
                const float off = kept[i].lane[j] - mean;
                squares += off * off;
            }
        }
    }
    float variance = sum_of_block(squares, storage, shared) / row_length;
    if (!two_pass) variance -= mean * mean;
    const float scale = rsqrtf(variance + epsilon);
#pragma unroll
    for (int i = 0; i < loads; ++i) {
#pragma unroll
        for (int j = 0; j < vector_width; ++j) kept[i].lane[j] = scale * (kept[i].lane[j] - mean);
        to[i * block_size_x] = kept[i];
    }
}
