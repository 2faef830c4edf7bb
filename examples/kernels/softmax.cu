// Softmax of each row of a matrix: out = exp(in - max) / sum of exp(in - max).
//
// block_size_x threads share a row, block_size_y rows are in a block. The rows are reduced by warp
// shuffles, and across warps in shared memory.
//
// Parameters (macros):
//   block_size_x    threads of a row, a multiple of 32
//   block_size_y    rows of a block
//   columns         floats of a row
//   vector_width    floats of a load: 1, 2 or 4
//   in_registers    1: a thread keeps its floats; 0: it reads the row three times
//   fast_exp        1: __expf instead of expf
//
// Constraints: block_size_x * vector_width divides columns; with in_registers a thread has at most
// 64 floats.

struct alignas(4 * vector_width) Pack {
    float lane[vector_width];
};

#define warps (block_size_x / 32)
#define loads (columns / (block_size_x * vector_width))

__device__ float power(float x) { return fast_exp ? __expf(x) : expf(x); }

template <bool MAXIMUM>
__device__ float of_row(float value, float (*shared)[warps]) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = MAXIMUM ? fmaxf(value, other) : value + other;
    }
    if (warps == 1) return value;
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.y][threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[threadIdx.y][0];
#pragma unroll
    for (int warp = 1; warp < warps; ++warp) {
        const float other = shared[threadIdx.y][warp];
        value = MAXIMUM ? fmaxf(value, other) : value + other;
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(block_size_x * block_size_y)
softmax(const float* __restrict__ in, float* __restrict__ out, int rows) {
    __shared__ float shared[block_size_y][warps];
    // Rows after the last one are computed again as the last one: all threads reach the barriers.
    const int row = min(blockIdx.x * block_size_y + threadIdx.y, rows - 1);
    const Pack* from = (const Pack*)(in + (size_t)row * columns) + threadIdx.x;
    Pack* to = (Pack*)(out + (size_t)row * columns) + threadIdx.x;
    Pack kept[in_registers ? loads : 1];
    float most = __int_as_float(0xff800000), sum = 0.0f;  // minus infinity
#pragma unroll
    for (int i = 0; i < loads; ++i) {
        const Pack pack = from[i * block_size_x];
        if (in_registers) kept[in_registers ? i : 0] = pack;
#pragma unroll
        for (int j = 0; j < vector_width; ++j) most = fmaxf(most, pack.lane[j]);
    }
    most = of_row<true>(most, shared);
#pragma unroll
    for (int i = 0; i < loads; ++i) {
        Pack pack = in_registers ? kept[in_registers ? i : 0] : from[i * block_size_x];
#pragma unroll
        for (int j = 0; j < vector_width; ++j) sum += pack.lane[j] = power(pack.lane[j] - most);
        if (in_registers) kept[in_registers ? i : 0] = pack;
    }
    const float scale = 1.0f / of_row<false>(sum, shared);
#pragma unroll
    for (int i = 0; i < loads; ++i) {
        Pack pack = in_registers ? kept[in_registers ? i : 0] : from[i * block_size_x];
#pragma unroll
        for (int j = 0; j < vector_width; ++j)
            pack.lane[j] = scale * (in_registers ? pack.lane[j] : power(pack.lane[j] - most));
        to[i * block_size_x] = pack;
    }
}
