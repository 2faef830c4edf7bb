// Rung 12. C = alpha A B^T + beta C in bfloat16 on tensor cores: copies fill a ring of stages.
//
//        128                      A block of 8 warps computes a 128 x 128 tile of C, a warp 64 x 32
//      +----+----+----+----+      of it in products of 16 x 8. The tiles of 64 steps along K lie in
//      | w0 | w1 | w2 | w3 |      a ring of stages:
//  128 |    |    |    |    |
//      +----+----+----+----+        1. wait for the oldest copies (cp.async), and barrier;
//      | w4 | w5 | w6 | w7 |        2. copy a tile into the stage that was multiplied last;
//      |    |    |    |    |        3. four times a warp reads fragments of 16 steps (ldmatrix) and
//      +----+----+----+----+           multiplies them: 16 instructions of 2,048 multiply-adds.
//
// ldmatrix reads the same 16 bytes of 8 rows at once. Piece p of row r lies at p ^ r % 8 (a
// swizzle): the 8 pieces are in 8 different groups of four banks, and the threads that copy a row
// still fill all of them.
//
// Constraints: sm_80; A and B^T row-major, rows at multiples of 16 bytes; m, n multiples of 128, k
// of 64; the grid covers C, its x along M.
#include "common/depth.cuh"
#include "common/epilogue.cuh"
#include "mma/instructions.cuh"
#include "mma/swizzled_tile.cuh"

constexpr int BM = 128, BN = 128, BK = 64, WM = 64, WN = 32, STAGES = 3;
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int LINE = BK * 2, PIECE = 16, STAGE = (BM + BN) * LINE;  // bytes

// Byte `byte` of a row of a tile: pieces change places with the row's number.
__device__ __forceinline__ int place(int row, int byte) {
    return row * LINE + (byte ^ row % 8 * PIECE);
}

__global__ void __launch_bounds__(THREADS, 2)
    ring(const BFloat* __restrict__ a, long long lda, const BFloat* __restrict__ b, long long ldb,
         BFloat* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta) {
    extern __shared__ __align__(128) char stages[];  // each a tile of A and one of B
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / (BN / WN) * WM, warp_column = warp % (BN / WN) * WN;
    // The first vector of each operand that this thread copies.
    const int row = threadIdx.x / (LINE / PIECE), piece = threadIdx.x % (LINE / PIECE);
    a += (static_cast<long long>(blockIdx.x) * BM + row) * lda + piece * 8;
    b += (static_cast<long long>(blockIdx.y) * BN + row) * ldb + piece * 8;

    const int tiles = summed(k / BK, alpha);  // 0 if alpha is 0: A and B are not read then
    const auto copy = [&](int tile) {
        if (tile < tiles) {
            constexpr int ROWS = THREADS / (LINE / PIECE);  // that the block copies at once
            char* a_tile = stages + tile % STAGES * STAGE;
            char* b_tile = a_tile + BM * LINE;
#pragma unroll
            for (int i = 0; i < BM; i += ROWS)
                copy_async_part<PIECE>(a_tile + place(row + i, piece * PIECE), a + i * lda, PIECE);
#pragma unroll
            for (int i = 0; i < BN; i += ROWS)
                copy_async_part<PIECE>(b_tile + place(row + i, piece * PIECE), b + i * ldb, PIECE);
            a += BK;
            b += BK;
        }
        commit_copies();  // an empty group at the end keeps the count
    };
#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) copy(tile);

    float sums[WM / 16][WN / 8][4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        wait_copies<STAGES - 2>();
        __syncthreads();  // the tile is there for all, and the one before has been read
        copy(tile + STAGES - 1);
        const char* a_tile = stages + tile % STAGES * STAGE;
        const char* b_tile = a_tile + BM * LINE;
#pragma unroll
        for (int step = 0; step < BK / 16; ++step) {
            // Each lane gives the address of a row of one of four 8 x 8 matrices.
            unsigned a_values[WM / 16][4], b_values[WN / 8][2];
#pragma unroll
            for (int i = 0; i < WM / 16; ++i) {
                const int at = warp_row + i * 16 + lane % 16;
                ldmatrix_x4(a_values[i], a_tile + place(at, step * 32 + lane / 16 * PIECE));
            }
#pragma unroll
            for (int j = 0; j < WN / 16; ++j) {
                unsigned both[4];
                const int at = warp_column + j * 16 + lane / 16 * 8 + lane % 8;
                ldmatrix_x4(both, b_tile + place(at, step * 32 + lane / 8 % 2 * PIECE));
#pragma unroll
                for (int r = 0; r < 4; ++r) b_values[2 * j + r / 2][r % 2] = both[r];
            }
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
#pragma unroll
                for (int j = 0; j < WN / 8; ++j)
                    mma16816<ElementType::BF16>(sums[i][j], a_values[i], b_values[j]);
        }
    }

    // A lane has two neighbours in rows `lane / 4` and `lane / 4 + 8` of each product.
    c += (static_cast<long long>(blockIdx.x) * BM + warp_row + lane / 4) * ldc;
    c += static_cast<long long>(blockIdx.y) * BN + warp_column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < WM / 16 * 2; ++i)
#pragma unroll
        for (int j = 0; j < WN / 8; ++j)
            update<2, Epilogue::NONE, BFloat>(c + i * 8 * ldc + j * 8,
                                              &sums[i / 2][j][i % 2 * 2], alpha, beta, nullptr, 0);
}
