// Multiplies a matrix with a vector, y = A x, in a file that is a program of its own:
//
//     nvcc -arch=native matvec.cu -o matvec && ./matvec
//
// block_size_x threads share a row, block_size_y rows are in a block.
//
// Parameters (macros):
//   block_size_x    threads of a row: a power of two
//   block_size_y    rows of a block
//   vector_width    floats of a load: 1, 2 or 4
//   unroll          loads of a thread in flight
//   read_only       1: x is read through the read-only path
//
// Constraints: the columns are a multiple of block_size_x * vector_width.

#include <cassert>
#include <cstdio>
#include <cstdlib>

#ifndef block_size_x
#define block_size_x 32
#define block_size_y 4
#define vector_width 4
#define unroll 2
#define read_only 1
#endif

struct alignas(4 * vector_width) Pack {
    float lane[vector_width];
};

extern "C" __global__ void __launch_bounds__(block_size_x * block_size_y)
matvec(const float* __restrict__ a, const float* x, float* y, int rows, int columns) {
    constexpr int unrolled = unroll;  // a pragma does not expand macros
    const int row = blockIdx.x * block_size_y + threadIdx.y;
    // Rows after the last one are computed again as the last one: all threads reach the barriers.
    const Pack* packs = (const Pack*)(a + (size_t)min(row, rows - 1) * columns);
    float sum = 0.0f;
#pragma unroll unrolled
    for (int i = threadIdx.x; i < columns / vector_width; i += block_size_x) {
        const Pack pack = packs[i];
#pragma unroll
        for (int j = 0; j < vector_width; ++j) {
            const float* at = x + i * vector_width + j;
            sum += pack.lane[j] * (read_only ? __ldg(at) : *at);
        }
    }
#pragma unroll
    for (int step = (block_size_x < 32 ? block_size_x : 32) / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
#if block_size_x > 32
    __shared__ float warps[block_size_y][block_size_x / 32];
    if (threadIdx.x % 32 == 0) warps[threadIdx.y][threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < block_size_x / 32; ++i) sum += warps[threadIdx.y][i];
#endif
    if (threadIdx.x == 0 && row < rows) y[row] = sum;
}

int main() {
    const int rows = 1000, columns = 4096;
    float *a, *x, *y;
    if (cudaMallocManaged(&a, sizeof(float) * rows * columns) != cudaSuccess ||
        cudaMallocManaged(&x, sizeof(float) * columns) != cudaSuccess ||
        cudaMallocManaged(&y, sizeof(float) * rows) != cudaSuccess) {
        std::fprintf(stderr, "no memory on a GPU\n");
        return EXIT_FAILURE;
    }
    for (int i = 0; i < rows * columns; ++i) a[i] = float(i / columns % 7);
    for (int i = 0; i < columns; ++i) x[i] = 1.0f;
    const dim3 block(block_size_x, block_size_y);
    matvec<<<(rows + block_size_y - 1) / block_size_y, block>>>(a, x, y, rows, columns);
    assert(cudaGetLastError() == cudaSuccess);
    cudaDeviceSynchronize();
    int wrong = 0;
    for (int i = 0; i < rows; ++i) wrong += y[i] != float(i % 7 * columns);
    std::printf("%d of %d rows are wrong\n", wrong, rows);
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
