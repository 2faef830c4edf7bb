// C = act(alpha (P_0 + P_1 + ... ) + beta C + bias): adds up partial sums, in order, so that the
// same inputs give the same bits.
//
//      workspace + start:  matrix of the batch (blockIdx.z) x share x m rows of `pitch` floats
//
// A block takes blockDim.x vectors of C; blockDim.y threads share the shares of each and add up in
// shared memory of blockDim.x blockDim.y VECTOR floats. The order of the additions depends on the
// launch only.
//
// Params: VECTOR (floats that a thread loads as one), EPILOGUE.
// Constraints: VECTOR divides n, ldc, stride_c and C's address (in floats); pitch is a multiple of
// 4.
#include "common/dependent_launch.cuh"
#include "common/epilogue.cuh"

template <class Params>
__global__ void split_k(const float* __restrict__ workspace, long long start, int splits,
                        float* __restrict__ c, long long ldc, long long stride_c, int m, int n,
                        int pitch, float alpha, float beta, const float* __restrict__ bias) {
    constexpr int VECTOR = Params::VECTOR;
    extern __shared__ __align__(16) float shared[];
    const int columns = n / VECTOR;
    const long long vector = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const bool inside = vector < static_cast<long long>(m) * columns;
    const int row = static_cast<int>(vector / columns);
    const int column = static_cast<int>(vector % columns) * VECTOR;
    const long long plane = static_cast<long long>(m) * pitch;
    const float* partials = workspace + start + blockIdx.z * splits * plane;
    partials += static_cast<long long>(row) * pitch + column;
    alignas(16) float sums[VECTOR] = {}, values[VECTOR];
    wait_for_primary();
    if (inside) {
#pragma unroll 4
        for (int split = threadIdx.y; split < splits; split += blockDim.y) {
            copy_vector<VECTOR>(values, partials + split * plane);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) sums[i] += values[i];
        }
    }
    launch_dependents();
    copy_vector<VECTOR>(shared + (threadIdx.y * blockDim.x + threadIdx.x) * VECTOR, sums);
    __syncthreads();
    if (threadIdx.y != 0 || !inside) return;
    for (int y = 1; y < blockDim.y; ++y) {
        copy_vector<VECTOR>(values, shared + (y * blockDim.x + threadIdx.x) * VECTOR);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) sums[i] += values[i];
    }
    c += blockIdx.z * stride_c + row * ldc + column;
    update<VECTOR, Params::EPILOGUE>(c, sums, alpha, beta, bias, column);
}
