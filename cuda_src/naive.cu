// C = act(alpha op(A) op(B) + beta C + bias) in fp32, one thread an element of C, all from global
// memory.
//
//            N ->               A block of S x S threads computes S x S elements of C. Each thread
//        +---+---+---+          walks along a row of op(A) and a column of op(B): two loads for one
//     M  | 0 | 1 | 2 |          multiply-add, 0.25 FLOP a byte.
//     |  +---+---+---+
//     v  | 3 | 4 | 5 |          COALESCED = 1: threadIdx.x runs along N. The threads of a warp
//        +---+---+---+          share elements of A and read neighbours in B and C.
//      blocks by blockIdx.x,    COALESCED = 0: threadIdx.x runs along M. The threads of a warp read
//      matrices by blockIdx.z   A (unless it is stored transposed) and C whole rows apart.
//
// Params: COALESCED, TRANS_A, TRANS_B (whether A and B are stored transposed), EPILOGUE.
// Constraints: blockDim.x = blockDim.y; gridDim.x covers C, gridDim.z is the batch.
#include "common/dependent_launch.cuh"
#include "common/depth.cuh"
#include "common/epilogue.cuh"

template <class Params>
__global__ void __launch_bounds__(1024)
    naive(const float* __restrict__ a, long long lda, const float* __restrict__ b, long long ldb,
          float* __restrict__ c, long long ldc, int m, int n, int k, float alpha, float beta,
          const float* __restrict__ bias, long long stride_a, long long stride_b,
          long long stride_c) {
    const int side = blockDim.x;
    const int blocks_along_n = (n - 1) / side + 1;
    const long long row = static_cast<long long>(blockIdx.x / blocks_along_n) * side +
                          (Params::COALESCED ? threadIdx.y : threadIdx.x);
    const long long column = static_cast<long long>(blockIdx.x % blocks_along_n) * side +
                             (Params::COALESCED ? threadIdx.x : threadIdx.y);
    if (row >= m || column >= n) return;

    wait_for_primary();
    // One step along K in each operand, as it is stored.
    const long long a_step = Params::TRANS_A ? lda : 1;
    const long long b_step = Params::TRANS_B ? 1 : ldb;
    a += blockIdx.z * stride_a + (Params::TRANS_A ? row : row * lda);
    b += blockIdx.z * stride_b + (Params::TRANS_B ? column * ldb : column);
    float sum = 0.0f;
    const int depth = summed(k, alpha);
    for (int p = 0; p < depth; ++p) sum = fmaf(a[p * a_step], b[p * b_step], sum);

    launch_dependents();
    c += blockIdx.z * stride_c + row * ldc + column;
    const float value = beta == 0.0f ? alpha * sum : fmaf(alpha, sum, beta * *c);
    *c = finish<Params::EPILOGUE>(value, bias, column);
}
