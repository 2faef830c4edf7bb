// C = A B for one row times one column, a block of 64 threads for each 64 steps of K; the last
// block adds up what all have left in the workspace. With one defect, to show that the harness sees
// it; 0 is sound.
enum Defect {
    NONE,
    LEAVES_THE_COUNTER,
    ADDS_UP_TOO_EARLY,
    SHUFFLES_HALF_A_WARP,
    SHUFFLES_ON_TWO_PATHS,
    SHUFFLES_WITHOUT_THE_EXITED,
};

template <int DEFECT>
__device__ float sum_of_warp(float value) {
    if (DEFECT == SHUFFLES_WITHOUT_THE_EXITED && threadIdx.x == 40) return value;
    if (DEFECT == SHUFFLES_ON_TWO_PATHS && threadIdx.x % 2)
        return value + __shfl_xor_sync(0xffffffff, value, 1);
    const unsigned mask = DEFECT == SHUFFLES_HALF_A_WARP ? 0xffff : 0xffffffff;
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(mask, value, step);
    return value;
}

template <int DEFECT>
__global__ void broken_fused(const float* a, long long, const float* b, long long ldb, float* c,
                             long long, int, int, int, float alpha, float, const float*, long long,
                             long long, long long, float* workspace, unsigned* counters) {
    extern __shared__ float warps[];
    const int k = blockIdx.x * 64 + threadIdx.x;
    const float sum = sum_of_warp<DEFECT>(a[k] * b[k * ldb]);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
        workspace[blockIdx.x] = warps[0] + warps[1];
        __threadfence();
        last = atomicAdd(counters, 1u) == (DEFECT == ADDS_UP_TOO_EARLY ? 1 : gridDim.x - 1);
    }
    if (!__syncthreads_or(last)) return;
    if (threadIdx.x != 0) return;
    float total = 0.0f;
    for (unsigned i = 0; i < gridDim.x; ++i) total += __ldcg(workspace + i);
    *c = alpha * total;
    if (DEFECT != LEAVES_THE_COUNTER) *counters = 0;
}
