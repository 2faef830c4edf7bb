// Rung 16. C = alpha A B^T + beta C in bfloat16: two blocks of a cluster share their tile of B.
//
//        256                       A block of three warpgroups computes a 128 x 256 tile of C. One
//      +--------------------+      thread of the first copies tiles of 64 steps along K into a ring
//   64 |    consumer 0      |      of stages (TMA); the other two warpgroups multiply them, 64 rows
//      +--------------------+      each, in instructions of 64 x 256 x 16.
//   64 |    consumer 1      |
//      +--------------------+        producer:  wait for `empty`, order the copies
//                                    consumer:  wait for `full`, multiply, arrive at `empty`
//
//         block 0      block 1     The two blocks of a cluster are neighbours along M: they read
//        +--------+   +--------+   the same B. Each copies half of it into both (multicast), and
//        | A0     |   | A1     |   so reads 256 rows from L2 for a stage instead of 384.
//        +--------+   +--------+
//        | B half | = | B half |   `full` counts the bytes of both blocks' copies. A stage is empty
//        | B half | = | B half |   when the consumers of both have read it: each arrives at the
//        +--------+   +--------+   barriers of both.
//
// Constraints: sm_90a; A and B^T row-major, rows at multiples of 16 bytes; m and n multiples of
// 256, k of 64; the grid covers C, its x along M, in clusters of two.
#include "common/depth.cuh"
#include "common/epilogue.cuh"
#include "hopper/tma_tile.cuh"

constexpr int BM = 128, BN = 256, BK = 64, STAGES = 4, CONSUMERS = 2, WARPGROUP = 128, CLUSTER = 2;
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
constexpr int STAGE = (BM + BN) * LINE;  // bytes

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    cluster(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
            BFloat* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta) {
    extern __shared__ __align__(1024) char stages[];  // each a tile of A and one of B
    Barrier* full = reinterpret_cast<Barrier*>(stages + STAGES * STAGE);
    Barrier* empty = full + STAGES;
    const int first_row = blockIdx.x * BM, first_column = blockIdx.y * BN;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + stage, 1);
            barrier_init(empty + stage, CLUSTER * CONSUMERS);
        }
        barrier_init_fence();
    }
    cluster_sync();  // the other block's barriers are there, too

    const int tiles = summed(k / BK, alpha);  // 0 if alpha is 0: A and B are not read then
    const int warp = warp_uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
    if (warp < 4) {
        registers_lower<40>();
        if (warp > 0 || !elected()) return;
        const int half = cluster_rank() * (BN / CLUSTER);
        for (int tile = 0; tile < tiles; ++tile) {
            const int stage = tile % STAGES;
            char* a_tile = stages + stage * STAGE;
            char* b_half = a_tile + (BM + half) * LINE;
            barrier_wait(empty + stage, tile / STAGES % 2 ^ 1);  // passes at once the first time
            barrier_expect(full + stage, STAGE);
            tma_load(a_tile, &map_a, full + stage, tile * BK, first_row, 0);
            tma_load_multicast(b_half, &map_b, full + stage, tile * BK, first_column + half, 0,
                               (1 << CLUSTER) - 1);
        }
        return;
    }
    registers_raise<232>();
    const int consumer_row = (warp / 4 - 1) * 64;
    // One thread of a warpgroup says to both blocks that it has read the stage of a tile, if
    // another tile will be loaded there: else the other block may have ended.
    const auto release = [&](int tile) {
        const bool arrives = warp % 4 == 0 && elected() && tile + STAGES < tiles;
#pragma unroll
        for (int block = 0; block < CLUSTER; ++block)
            barrier_arrive_at(empty + tile % STAGES, block, arrives);
    };
    float sums[BN / 2] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        barrier_wait(full + tile % STAGES, tile / STAGES % 2);
        const char* a_tile = stages + tile % STAGES * STAGE;
        const Descriptor at_a = descriptor(a_tile + consumer_row * LINE, PIECE);
        const Descriptor at_b = descriptor(a_tile + BM * LINE, PIECE);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < BK / 16; ++step)
            wgmma_shared<BN, ElementType::BF16, ElementType::BF16, false, false>(
                sums, moved(at_a, step * 32 / PIECE), moved(at_b, step * 32 / PIECE), 1);
        wgmma_commit();
        wgmma_wait<1>();
        if (tile > 0) release(tile - 1);
    }
    wgmma_wait<0>();
    wgmma_hold(sums);

    // A lane has two neighbours in rows `lane / 4` and `lane / 4 + 8` of its warp's 16.
    c += (static_cast<long long>(first_row) + consumer_row + warp % 4 * 16 + lane / 4) * ldc;
    c += static_cast<long long>(first_column) + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < BN / 2; j += 2)
        update<2, Epilogue::NONE, BFloat>(c + j / 2 % 2 * 8 * ldc + j / 4 * 8, &sums[j], alpha,
                                          beta, nullptr, 0);
}
