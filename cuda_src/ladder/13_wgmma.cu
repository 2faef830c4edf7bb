// Rung 13. C = alpha A B^T + beta C in bfloat16: a warpgroup multiplies from shared memory (wgmma).
//
//        128                       A block of one warpgroup (4 warps) computes a 128 x 128 tile of
//      +--------------------+      C, in instructions of 64 x 128 x 16. The tiles of 64 steps along
//   64 |     w0 ... w3      |      K lie in a ring of stages:
//      +--------------------+
//   64 |     w0 ... w3      |        1. wait for the oldest copies (cp.async), and barrier;
//      +--------------------+        2. copy a tile into the stage that was multiplied last;
//                                    3. issue 8 instructions, which read A and B where they lie;
//                                    4. wait for them.
//
// No fragments: neither ldmatrix nor registers of operands. Descriptors tell the tensor cores where
// rows of 128 bytes lie, and that their pieces of 16 bytes are swizzled: p of row r at p ^ r % 8.
//
// Constraints: sm_90a; A and B^T row-major, rows at multiples of 16 bytes; m, n multiples of 128, k
// of 64; the grid covers C, its x along M.
#include "common/depth.cuh"
#include "common/epilogue.cuh"
#include "hopper/tma_tile.cuh"
#include "mma/swizzled_tile.cuh"

constexpr int BM = 128, BN = 128, BK = 64, STAGES = 3, THREADS = 128;
constexpr int STAGE = (BM + BN) * LINE;  // bytes

__global__ void __launch_bounds__(THREADS, 2)
    wgmma(const BFloat* __restrict__ a, long long lda, const BFloat* __restrict__ b, long long ldb,
          BFloat* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta) {
    extern __shared__ __align__(1024) char stages[];  // each a tile of A and one of B
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // The first vector of each operand that this thread copies.
    const int row = threadIdx.x / (LINE / PIECE), piece = threadIdx.x % (LINE / PIECE);
    a += (static_cast<long long>(blockIdx.x) * BM + row) * lda + piece * 8;
    b += (static_cast<long long>(blockIdx.y) * BN + row) * ldb + piece * 8;

    const int tiles = summed(k / BK, alpha);  // 0 if alpha is 0: A and B are not read then
    const auto copy = [&](int tile) {
        if (tile < tiles) {
            constexpr int ROWS = THREADS / (LINE / PIECE);  // that the block copies at once
            char* a_tile = stages + tile % STAGES * STAGE + swizzled(row, piece * PIECE);
            char* b_tile = a_tile + BM * LINE;
#pragma unroll
            for (int i = 0; i < BM; i += ROWS)
                copy_async_part<PIECE>(a_tile + i * LINE, a + i * lda, PIECE);
#pragma unroll
            for (int i = 0; i < BN; i += ROWS)
                copy_async_part<PIECE>(b_tile + i * LINE, b + i * ldb, PIECE);
            a += BK;
            b += BK;
        }
        commit_copies();  // an empty group at the end keeps the count
    };
#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) copy(tile);

    float sums[BM / 64][BN / 2] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        wait_copies<STAGES - 2>();
        fence_async_shared();  // the tensor cores see what the threads have copied
        __syncthreads();       // the tile is there for all, and the one before has been read
        copy(tile + STAGES - 1);
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
    }

    // A lane has two neighbours in rows `lane / 4` and `lane / 4 + 8` of its warp's 16.
    c += (static_cast<long long>(blockIdx.x) * BM + warp * 16 + lane / 4) * ldc;
    c += static_cast<long long>(blockIdx.y) * BN + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < BM / 64; ++i) {
        wgmma_hold(sums[i]);
#pragma unroll
        for (int j = 0; j < BN / 2; j += 2)
            update<2, Epilogue::NONE, BFloat>(c + (i * 64 + j / 2 % 2 * 8) * ldc + j / 4 * 8,
                                              &sums[i][j], alpha, beta, nullptr, 0);
    }
}
