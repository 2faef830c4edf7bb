// C = A B of 4 x 32 for each cluster of one warp a block: a block multiplies its share of K, the
// blocks store their sums in the shared memory of the first, and that adds them up. With one defect,
// to show that the harness sees it; 0 is sound.
#include "hopper/barrier.cuh"

enum Defect {
    NONE,
    READS_TOO_EARLY,
    NEVER_RELEASES,
    ENDS_BEFORE_IT_COMES,
    HAS_EXITED,
    BEGINS_ALONE,
    STORES_TOO_FAR,
    STORES_PAST_THE_END,
    STORES_MISALIGNED,
    ARRIVES_TWICE,
    LEAVES_LANES_OUT,
    WAITS_FOR_NOBODY,
    ARRIVES_AT_THE_EXITED,
    ANNOUNCES_TOO_MUCH,
};

template <class Params>
__global__ void __cluster_dims__(Params::BLOCKS, 1, 1)
    broken_exchange(const float* a, long long lda, const float* b, long long ldb, float* c,
                    long long ldc, int k, int defect) {
    constexpr int BLOCKS = Params::BLOCKS;
    extern __shared__ __align__(1024) char shared[];
    auto* const sums = reinterpret_cast<float4*>(shared);
    Barrier* const barrier = reinterpret_cast<Barrier*>(sums + BLOCKS * 32);
    const int rank = cluster_rank(), lane = threadIdx.x, row = lane / 8, column = lane % 8 * 4;
    if (lane == 0) barrier_init(barrier, 1);
    if (defect == BEGINS_ALONE) __syncthreads();
    else cluster_sync();
    if (defect == HAS_EXITED || defect == ARRIVES_AT_THE_EXITED) {
        if (rank == 0) return;
        cluster_sync();  // of those that are left
    }
    if (defect == ARRIVES_AT_THE_EXITED) barrier_arrive_at(barrier, 0, true);
    if (defect == ANNOUNCES_TOO_MUCH && lane == 0) barrier_expect(barrier, 1 << 20);
    if (defect == LEAVES_LANES_OUT && rank == 1 && lane > 20) return;
    if (defect == WAITS_FOR_NOBODY && rank == 1) barrier_wait(barrier, 0);
    if (defect == ARRIVES_TWICE) host::cluster_barrier_arrive(false);

    const int share = k / BLOCKS, first = blockIdx.x / BLOCKS * 4;
    float sum[4] = {};
    for (int p = rank * share; p < (rank + 1) * share; ++p)
        for (int i = 0; i < 4; ++i)
            sum[i] = fmaf(a[(first + row) * lda + p], b[p * ldb + column + i], sum[i]);
    const auto value = make_float4(sum[0], sum[1], sum[2], sum[3]);
    float4* const place = sums + rank * 32 + lane;
    if (defect == STORES_PAST_THE_END) cluster_store(place + 2 * BLOCKS * 32, 0, value);
    if (defect == STORES_MISALIGNED)
        host::cluster_store(reinterpret_cast<float*>(place) + 1, &value, sizeof value, 0);
    cluster_store(place, defect == STORES_TOO_FAR ? BLOCKS : 0, value);
    if (defect == NEVER_RELEASES && rank > 0) return;
    if (defect == ENDS_BEFORE_IT_COMES && rank == 0) return;
    if (defect == READS_TOO_EARLY || defect == NEVER_RELEASES) cluster_sync();
    else cluster_exchange();
    if (rank == 0) {
        for (int i = 0; i < 4; ++i) {
            float total = 0.0f;
            for (int other = 0; other < BLOCKS; ++other)
                total += reinterpret_cast<const float*>(sums + other * 32 + lane)[i];
            c[(first + row) * ldc + column + i] = total;
        }
    }
    if (defect == READS_TOO_EARLY) cluster_exchange();
}
