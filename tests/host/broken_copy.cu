// C = alpha A B of 4 x 4 matrices, one block of 4 x 4 threads that copies A and B to shared memory
// asynchronously, with one defect, to show that the harness sees it; 0 is sound.
#include "common/async_copy.cuh"

enum Defect { NONE, WAITS_FOR_NOTHING, WAITS_WITHOUT_BARRIER, COPIES_PAST_A, COPIES_MISALIGNED };

template <int DEFECT>
__global__ void broken_copy(const float* a, long long lda, const float* b, long long ldb, float* c,
                            long long ldc, int, int, int, float alpha, float,
                            const float*, long long, long long, long long) {
    extern __shared__ float tiles[];
    const int x = threadIdx.x, y = threadIdx.y;
    if (x == 0) {
        const int shift = DEFECT == COPIES_PAST_A ? 4 : DEFECT == COPIES_MISALIGNED ? -1 : 0;
        copy_async<16>(tiles + y * 4, a + y * lda + shift, true);
        commit_copies();
        copy_async<16>(tiles + 16 + y * 4, b + y * ldb, true);
        commit_copies();
        wait_copies<DEFECT == WAITS_FOR_NOTHING ? 1 : 0>();
    }
    if (DEFECT != WAITS_WITHOUT_BARRIER) __syncthreads();
    float sum = 0.0f;
    for (int p = 0; p < 4; ++p) sum = fmaf(tiles[y * 4 + p], tiles[16 + p * 4 + x], sum);
    c[y * ldc + x] = alpha * sum;
}
