// C = act(alpha op(A) op(B) + beta C + bias) in fp32, with square tiles in shared memory
// (W = TILE_WIDTH).
//
//                    op(B)              A block of W x W threads computes a W x W tile of C, one
//                  +---+---+---+        element a thread, in phases of W steps along K:
//                  |   | # |   |
//                  +---+---+---+          1. each thread loads one element of the tile of op(A) and
//                  |   | # |   |             one of the tile of op(B), zeros past the edges;
//        op(A)     +---+---+---+          2. barrier: the tiles are complete;
//      +---+---+   +---+---+---+          3. each thread adds W products from the tiles to its sum;
//      | # | # |   |   | C |   |          4. barrier: the tiles may be overwritten.
//      +---+---+   +---+---+---+
//      |   |   |   |   |   |   |        Every element loaded is used W times: W / 4 FLOP a byte.
//      +---+---+   +---+---+---+
//
// Both tiles lie in one dynamic array, op(A) at 0 and op(B) at W W. An operand that is stored
// transposed is still read along its rows, so that neighbouring threads read neighbouring
// addresses; the stores into its tile then conflict in the banks, once a phase.
//
// Params: TILE_WIDTH (0 takes the width from blockDim.x, which the host chooses from the device's
// limits), TRANS_A, TRANS_B (whether A and B are stored transposed), EPILOGUE.
//
// Constraints: blockDim.x = blockDim.y = W, 4 <= W <= 32; 8 W W bytes of dynamic shared memory;
// gridDim.x covers C, gridDim.z is the batch.
#include "common/dependent_launch.cuh"
#include "common/depth.cuh"
#include "common/epilogue.cuh"

template <class Params>
__global__ void __launch_bounds__(Params::TILE_WIDTH == 0 ? 1024
                                                         : Params::TILE_WIDTH * Params::TILE_WIDTH)
    tiled(const float* __restrict__ a, long long lda, const float* __restrict__ b, long long ldb,
          float* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta,
          const float* __restrict__ bias, long long stride_a, long long stride_b,
          long long stride_c) {
    constexpr int TILE_WIDTH = Params::TILE_WIDTH;
    constexpr bool TRANS_A = Params::TRANS_A, TRANS_B = Params::TRANS_B;
    extern __shared__ float tiles[];
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    const int width = TILE_WIDTH == 0 ? blockDim.x : TILE_WIDTH;
    float* a_tile = tiles;                  // [row][depth]
    float* b_tile = tiles + width * width;  // [depth][column]

    const int x = threadIdx.x, y = threadIdx.y;
    const int tiles_along_n = (n - 1) / width + 1;
    const long long first_row = static_cast<long long>(blockIdx.x / tiles_along_n) * width;
    const long long first_column = static_cast<long long>(blockIdx.x % tiles_along_n) * width;

    // The element of each tile that this thread loads: x goes along the operand's rows as stored.
    const long long a_row = first_row + (TRANS_A ? x : y);
    const long long b_column = first_column + (TRANS_B ? y : x);
    const int a_place = TRANS_A ? x * width + y : y * width + x;
    const int b_place = TRANS_B ? x * width + y : y * width + x;

    wait_for_primary();
    float sum = 0.0f;
    const int depth = summed(k, alpha);
    for (long long first_depth = 0; first_depth < depth; first_depth += width) {
        const long long a_depth = first_depth + (TRANS_A ? y : x);
        const long long b_depth = first_depth + (TRANS_B ? x : y);
        a_tile[a_place] = a_row < m && a_depth < k
                              ? a[TRANS_A ? a_depth * lda + a_row : a_row * lda + a_depth]
                              : 0.0f;
        b_tile[b_place] = b_column < n && b_depth < k
                              ? b[TRANS_B ? b_column * ldb + b_depth : b_depth * ldb + b_column]
                              : 0.0f;
        __syncthreads();
        for (int p = 0; p < width; ++p)
            sum = fmaf(a_tile[y * width + p], b_tile[p * width + x], sum);
        __syncthreads();
    }

    launch_dependents();
    if (first_row + y < m && first_column + x < n) {
        c += blockIdx.z * stride_c + (first_row + y) * ldc + first_column + x;
        const float value = beta == 0.0f ? alpha * sum : fmaf(alpha, sum, beta * *c);
        *c = finish<Params::EPILOGUE>(value, bias, first_column + x);
    }
}
