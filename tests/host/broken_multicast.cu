// C = A B for 4 rows a block, 32 columns and whole stages of K, by clusters: each block loads 8 rows
// of every stage of B for all blocks of its cluster, and one warp of each block multiplies them. With
// one defect, to show that the harness sees it; those before DEFECTS are sound.
#include "hopper/tensor_map.cuh"

enum Defect {
    NONE,
    EXITS_ALONE,  // sound, as it releases only stages that are loaded again
    DEFECTS,
    EXITS_EARLY = DEFECTS,
    LEAVES_A_STAGE,
    BEGINS_ALONE,
    COUNTS_OWN_ARRIVALS,
    RELEASES_TOO_EARLY,
    LEAVES_A_BLOCK_OUT,
    LOADS_TOO_FAR,
    LOADS_FOR_NOBODY,
    EXPECTS_OWN_PART,
    EXPECTS_TOO_MUCH,
    ANNOUNCES_IN_VAIN,
    EXPECTS_LESS_AT_LAST,
    ARRIVES_TOO_FAR,
    LOADS_FOR_THE_EXITED,
};

template <class Params>
__global__ void __cluster_dims__(Params::BLOCKS, 1, 1)
    broken_multicast(const __grid_constant__ TensorMap map_b, const float* a, long long lda,
                     float* c, long long ldc, int k, int defect) {
    constexpr int BLOCKS = Params::BLOCKS, STAGES = 2;
    constexpr int ROWS = 8 * BLOCKS, PART = 8 * 32 * 4, STAGE = BLOCKS * PART;
    extern __shared__ __align__(1024) char shared[];
    Barrier* const full = reinterpret_cast<Barrier*>(shared + STAGES * STAGE);
    Barrier* const empty = full + STAGES;
    Barrier* const spare = empty + STAGES;
    const int rank = cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, defect == COUNTS_OWN_ARRIVALS ? 1 : BLOCKS);
        }
        barrier_init(spare, 1);
        barrier_init_fence();
    }
    if (defect == BEGINS_ALONE) __syncthreads();
    else cluster_sync();

    if (defect == LOADS_FOR_THE_EXITED) {
        if (rank == 1) return;
        cluster_sync();  // of those that are left
    }
    const int steps = k / ROWS;
    if (warp == 0 && lane == 0) {
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES, phase = step / STAGES % 2;
            barrier_wait(empty + stage, phase ^ 1);
            const bool last = step == steps - 1;
            const int bytes = defect == EXPECTS_OWN_PART                 ? PART
                              : defect == EXPECTS_TOO_MUCH               ? STAGE + 16
                              : defect == EXPECTS_LESS_AT_LAST && last   ? STAGE - PART
                                                                         : STAGE;
            barrier_expect(full + stage, bytes);
            const unsigned short blocks = defect == LEAVES_A_BLOCK_OUT ? 1
                                          : defect == LOADS_TOO_FAR    ? 1 << BLOCKS
                                          : defect == LOADS_FOR_NOBODY ? 0
                                                                       : (1 << BLOCKS) - 1;
            tma_load_multicast(shared + stage * STAGE + rank * PART, &map_b, full + stage, 0,
                               step * ROWS + rank * 8, 0, blocks);
        }
        if (defect == ANNOUNCES_IN_VAIN) barrier_expect(spare, 48);
    } else if (warp == 1) {
        float sums[4] = {};
        const float* rows = a + 4ll * blockIdx.x * lda;
        const int read = defect == LEAVES_A_STAGE && rank > 0 ? steps - 1 : steps;
        for (int step = 0; step < read; ++step) {
            const int stage = step % STAGES, phase = step / STAGES % 2;
            const bool releases = step + STAGES < steps || defect != EXITS_ALONE;
            barrier_wait(full + stage, phase);
            if (defect == RELEASES_TOO_EARLY && lane < BLOCKS)
                barrier_arrive_at(empty + stage, lane);
            const auto* b = reinterpret_cast<const float*>(shared + stage * STAGE);
            for (int p = 0; p < ROWS; ++p)
                for (int row = 0; row < 4; ++row)
                    sums[row] = fmaf(rows[row * lda + step * ROWS + p], b[p * 32 + lane], sums[row]);
            __syncwarp();
            if (defect == ARRIVES_TOO_FAR) barrier_arrive_at(empty + stage, BLOCKS, lane == 0);
            if (defect != RELEASES_TOO_EARLY && lane < BLOCKS && releases)
                barrier_arrive_at(empty + stage, lane);
        }
        for (int row = 0; row < 4; ++row) c[(4ll * blockIdx.x + row) * ldc + lane] = sums[row];
    }
    __syncwarp();
    if (defect != EXITS_ALONE && defect != EXITS_EARLY && defect != LEAVES_A_STAGE) cluster_sync();
}
