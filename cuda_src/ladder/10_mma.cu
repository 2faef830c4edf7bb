// Rung 10. C = alpha A B^T + beta C in bfloat16 on tensor cores: warps multiply fragments.
//
//        128                      A block of 8 warps computes a 128 x 128 tile of C, a warp 64 x 32
//      +----+----+----+----+      of it in products of 16 x 8 (sums in fp32). For 64 steps of K:
//      | w0 | w1 | w2 | w3 |
//  128 |    |    |    |    |        1. the threads copy 128 rows of 64 elements of A and of B into
//      +----+----+----+----+           shared memory, in vectors of 16 bytes;
//      | w4 | w5 | w6 | w7 |        2. barrier;
//      |    |    |    |    |        3. four times a warp reads fragments of 16 steps (ldmatrix) and
//      +----+----+----+----+           multiplies them: 16 instructions of 2,048 multiply-adds;
//                                   4. barrier.
//
// ldmatrix reads the same 16 bytes of 8 rows at once. Rows are 128 bytes, so that the 8 pieces lie
// in the same four banks: it takes 8 cycles instead of one.
//
// Constraints: sm_80; A and B^T row-major, rows at multiples of 16 bytes; m, n multiples of 128, k
// of 64; the grid covers C, its x along M.
#include "common/depth.cuh"
#include "common/epilogue.cuh"
#include "mma/instructions.cuh"

constexpr int BM = 128, BN = 128, BK = 64, WM = 64, WN = 32;
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int LINE = BK * 2, PIECE = 16;  // bytes

// Byte `byte` of a row of a tile.
__device__ __forceinline__ int place(int row, int byte) { return row * LINE + byte; }

__global__ void __launch_bounds__(THREADS, 2)
    mma(const BFloat* __restrict__ a, long long lda, const BFloat* __restrict__ b, long long ldb,
        BFloat* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta) {
    __shared__ __align__(128) char a_tile[BM * LINE];
    __shared__ __align__(128) char b_tile[BN * LINE];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / (BN / WN) * WM, warp_column = warp % (BN / WN) * WN;
    // The first vector of each operand that this thread copies.
    const int row = threadIdx.x / (LINE / PIECE), piece = threadIdx.x % (LINE / PIECE);
    a += (static_cast<long long>(blockIdx.x) * BM + row) * lda + piece * 8;
    b += (static_cast<long long>(blockIdx.y) * BN + row) * ldb + piece * 8;

    float sums[WM / 16][WN / 8][4] = {};
    const int tiles = summed(k / BK, alpha);  // 0 if alpha is 0: A and B are not read then
    for (int tile = 0; tile < tiles; ++tile, a += BK, b += BK) {
        constexpr int ROWS = THREADS / (LINE / PIECE);  // that the block copies at once
#pragma unroll
        for (int i = 0; i < BM; i += ROWS)
            *reinterpret_cast<Vector<4>*>(a_tile + place(row + i, piece * PIECE)) =
                load_invariant<PIECE>(a + i * lda);
#pragma unroll
        for (int i = 0; i < BN; i += ROWS)
            *reinterpret_cast<Vector<4>*>(b_tile + place(row + i, piece * PIECE)) =
                load_invariant<PIECE>(b + i * ldb);
        __syncthreads();
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
        __syncthreads();
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
