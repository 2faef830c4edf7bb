// Rung 14. C = alpha A B^T + beta C in bfloat16: one thread copies whole tiles (TMA).
//
//        128                       A block of one warpgroup (4 warps) computes a 128 x 128 tile of
//      +--------------------+      C, in instructions of 64 x 128 x 16. The tiles of 64 steps along
//   64 |     w0 ... w3      |      K lie in a ring of stages:
//      +--------------------+
//   64 |     w0 ... w3      |        1. wait at the barrier `full` of the oldest stage, which
//      +--------------------+           counts its bytes;
//                                    2. issue 8 instructions, which read A and B where they lie;
//                                    3. wait for them, and barrier;
//                                    4. one thread orders the next tile into the same stage.
//
// A copy is one instruction of one thread for 128 rows. The copy engine computes the addresses, and
// swizzles as the tensor map says.
//
// Constraints: sm_90a; A and B^T row-major, rows at multiples of 16 bytes; m, n multiples of 128, k
// of 64; the grid covers C, its x along M.
#include "common/depth.cuh"
#include "common/epilogue.cuh"
#include "hopper/tma_tile.cuh"

constexpr int BM = 128, BN = 128, BK = 64, STAGES = 3, THREADS = 128;
constexpr int STAGE = (BM + BN) * LINE;  // bytes

__global__ void __launch_bounds__(THREADS, 2)
    tma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
        BFloat* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta) {
    extern __shared__ __align__(1024) char stages[];  // each a tile of A and one of B
    Barrier* full = reinterpret_cast<Barrier*>(stages + STAGES * STAGE);
    const int warp = warp_uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
    const int first_row = blockIdx.x * BM, first_column = blockIdx.y * BN;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) barrier_init(full + stage, 1);
        barrier_init_fence();
    }
    __syncthreads();

    const int tiles = summed(k / BK, alpha);  // 0 if alpha is 0: A and B are not read then
    const auto copy = [&](int tile) {
        if (tile >= tiles || warp > 0 || !elected()) return;
        const int stage = tile % STAGES;
        char* a_tile = stages + stage * STAGE;
        barrier_expect(full + stage, STAGE);
        tma_load(a_tile, &map_a, full + stage, tile * BK, first_row, 0);
        tma_load(a_tile + BM * LINE, &map_b, full + stage, tile * BK, first_column, 0);
    };
    for (int tile = 0; tile < STAGES; ++tile) copy(tile);

    float sums[BM / 64][BN / 2] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        barrier_wait(full + tile % STAGES, tile / STAGES % 2);
        const char* a_tile = stages + tile % STAGES * STAGE;
        const Descriptor at_a = descriptor(a_tile, PIECE);
        const Descriptor at_b = descriptor(a_tile + BM * LINE, PIECE);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < BK / 16; ++step)
#pragma unroll
            for (int i = 0; i < BM / 64; ++i)
                wgmma_shared<BN, ElementType::BF16, ElementType::BF16, false, false>(
                    sums[i], moved(at_a, (i * 64 * LINE + step * 32) / PIECE),
                    moved(at_b, step * 32 / PIECE), 1);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();  // all have read the stage
        copy(tile + STAGES);
    }

    // A lane has two neighbours in rows `lane / 4` and `lane / 4 + 8` of its warp's 16.
    c += (static_cast<long long>(first_row) + warp * 16 + lane / 4) * ldc;
    c += static_cast<long long>(first_column) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < BM / 64; ++i) {
        wgmma_hold(sums[i]);
#pragma unroll
        for (int j = 0; j < BN / 2; j += 2)
            update<2, Epilogue::NONE, BFloat>(c + (i * 64 + j / 2 % 2 * 8) * ldc + j / 4 * 8,
                                              &sums[i][j], alpha, beta, nullptr, 0);
    }
}
