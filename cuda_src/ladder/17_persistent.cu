// Rung 17. C = alpha A B^T + beta C in bfloat16: blocks that stay, and store while they load.
//
//        256                       Two blocks of a cluster compute 256 x 256 of C, each 128 x 256:
//      +--------------------+      a producer copies A and half of B (for both), two consumers
//   64 |    consumer 0      |      multiply 64 rows each.
//      +--------------------+
//   64 |    consumer 1      |      The grid has as many blocks as SMs. A block takes one tile after
//      +--------------------+      the other, down the rows of C first:
//
//      producer   | loads of tile 0      | loads of tile 1      | ...
//      consumer      | multiply tile 0 | store | multiply tile 1 | store | ...
//
// While the consumers store a tile, the first stages of the next one arrive. C goes through shared
// memory, 64 columns at a time in two buffers, as lines of 128 bytes, swizzled like the operands:
// the copy engine writes whole lines (TMA) while the threads go on.
//
// Constraints: sm_90a; A, B^T and C row-major, rows at multiples of 16 bytes; m and n multiples of
// 256, k of 64; an even number of blocks along x, in clusters of two.
#include "common/depth.cuh"
#include "common/epilogue.cuh"
#include "hopper/tma_tile.cuh"

constexpr int BM = 128, BN = 256, BK = 64, STAGES = 4, CONSUMERS = 2, WARPGROUP = 128, CLUSTER = 2;
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
constexpr int STAGE = (BM + BN) * LINE;                           // bytes
constexpr int BUFFER = 64 * LINE, STAGED = CONSUMERS * 2 * BUFFER;  // of C

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    persistent(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
               const __grid_constant__ TensorMap map_c, BFloat* __restrict__ c, long long ldc,
               int m, int n, int k, float alpha, float beta) {
    extern __shared__ __align__(1024) char stages[];  // each a tile of A and one of B
    char* staged = stages + STAGES * STAGE;
    Barrier* full = reinterpret_cast<Barrier*>(staged + STAGED);
    Barrier* empty = full + STAGES;
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
    const int rows = m / (CLUSTER * BM), count = rows * (n / BN);  // of a cluster's tiles
    const int first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;
    int step = 0;  // of the block along K, over all its tiles
    if (warp < 4) {
        registers_lower<40>();
        if (warp == 0 && elected()) {
            const int half = cluster_rank() * (BN / CLUSTER);
            for (int at = first; at < count; at += stride) {
                const int row = (at % rows * CLUSTER + cluster_rank()) * BM;
                const int column = at / rows * BN;
                for (int tile = 0; tile < tiles; ++tile, ++step) {
                    const int stage = step % STAGES;
                    char* a_tile = stages + stage * STAGE;
                    char* b_half = a_tile + (BM + half) * LINE;
                    barrier_wait(empty + stage, step / STAGES % 2 ^ 1);
                    barrier_expect(full + stage, STAGE);
                    tma_load(a_tile, &map_a, full + stage, tile * BK, row, 0);
                    tma_load_multicast(b_half, &map_b, full + stage, tile * BK, column + half, 0,
                                       (1 << CLUSTER) - 1);
                }
            }
        }
    } else {
        registers_raise<232>();
        const int consumer = warp / 4 - 1;
        char* buffers = staged + consumer * 2 * BUFFER;
        // One thread of a warpgroup says to both blocks that it has read a stage.
        const auto release = [&](int step) {
            const bool arrives = warp % 4 == 0 && elected();
#pragma unroll
            for (int block = 0; block < CLUSTER; ++block)
                barrier_arrive_at(empty + step % STAGES, block, arrives);
        };
        for (int at = first; at < count; at += stride) {
            const int row = (at % rows * CLUSTER + cluster_rank()) * BM + consumer * 64;
            const int column = at / rows * BN;
            float sums[BN / 2] = {};
            for (int tile = 0; tile < tiles; ++tile, ++step) {
                barrier_wait(full + step % STAGES, step / STAGES % 2);
                const char* a_tile = stages + step % STAGES * STAGE;
                const Descriptor at_a = descriptor(a_tile + consumer * 64 * LINE, PIECE);
                const Descriptor at_b = descriptor(a_tile + BM * LINE, PIECE);
                wgmma_fence();
#pragma unroll
                for (int part = 0; part < BK / 16; ++part)
                    wgmma_shared<BN, ElementType::BF16, ElementType::BF16, false, false>(
                        sums, moved(at_a, part * 32 / PIECE), moved(at_b, part * 32 / PIECE), 1);
                wgmma_commit();
                wgmma_wait<1>();
                if (tile > 0) release(step - 1);
            }
            wgmma_wait<0>();
            wgmma_hold(sums);
            if (tiles > 0) release(step - 1);

#pragma unroll
            for (int strip = 0; strip < BN / 64; ++strip) {
                char* buffer = buffers + strip % 2 * BUFFER;
                if (threadIdx.x % WARPGROUP == 0) tma_store_wait<1>();  // the buffer has been read
                named_sync(1 + consumer, WARPGROUP);
#pragma unroll
                for (int i = 0; i < 4; ++i) {  // 16 columns: four matrices of 8 x 8
                    unsigned pairs[4];
#pragma unroll
                    for (int pair = 0; pair < 4; ++pair) {
                        const int of = strip * 32 + i * 8 + pair * 2;
                        const long long r = row + warp % 4 * 16 + lane / 4 + pair % 2 * 8;
                        float values[2];
                        finish_vector<2, Epilogue::NONE, BFloat>(
                            values, c + r * ldc + column + of / 4 * 8 + lane % 4 * 2, &sums[of],
                            alpha, beta, nullptr, 0);
                        pairs[pair] = pack_pair<BFloat>(values[0], values[1]);
                    }
                    stmatrix<4, false>(buffer + swizzled(warp % 4 * 16 + lane % 16,
                                                         i * 32 + lane / 16 * PIECE),
                                       pairs);
                }
                fence_async_shared();  // the copy engine sees what the threads have stored
                named_sync(1 + consumer, WARPGROUP);
                if (threadIdx.x % WARPGROUP == 0) {
                    tma_store(&map_c, buffer, column + strip * 64, row, 0);
                    tma_store_commit();
                }
            }
        }
        if (threadIdx.x % WARPGROUP == 0) tma_store_wait<0>();
    }
    __syncwarp();
    cluster_sync();  // the other block may still arrive at this one's barriers
}
