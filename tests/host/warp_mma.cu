// C = A B for 16 x 8 x 32 in 8 bits, 16 x 8 x 16 in 16 bits, or 16 x 8 x 8 with HALF = 1 or in tf32,
// by one warp that holds its operands as the PTX ISA says. 16-bit operands come from shared memory by
// ldmatrix. With one defect, to show that the harness sees it; 0 is sound.
#include "mma/instructions.cuh"
#include "common/number.cuh"

enum Defect { NONE, EXCHANGES_REGISTERS, LEAVES_LANES_OUT, LOADS_MISALIGNED, LOADS_BEFORE_BARRIER };

template <int TYPE_A, int TYPE_B, int HALF, int DEFECT>
__global__ void warp_mma(const typename Number<TYPE_A>::Type* a, long long lda,
                         const typename Number<TYPE_B>::Type* b, long long ldb, float* c,
                         long long ldc, int, int, int k, float alpha, float, const float*,
                         long long, long long, long long) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    float d[4] = {};
    if constexpr (sizeof(*a) == 1) {
        unsigned of_a[4] = {}, of_b[2] = {};
        for (int i = 0; i < 16; ++i) {
            const int k = 4 * t + i % 4 + i / 8 * 16, row = g + i / 4 % 2 * 8;
            of_a[i / 4] |= byte_of(a[row * lda + k]) << i % 4 * 8;
        }
        for (int i = 0; i < 8; ++i)
            of_b[i / 4] |= byte_of(b[(4 * t + i % 4 + i / 4 * 16) * ldb + g]) << i % 4 * 8;
        if (DEFECT == EXCHANGES_REGISTERS) of_a[1] = of_a[2];
        constexpr auto A = static_cast<ElementType>(TYPE_A), B = static_cast<ElementType>(TYPE_B);
        typename Accumulator<A>::Type sums[4] = {};
        mma16832<A, B>(sums, of_a, of_b);
        for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(sums[i]);
    } else if constexpr (TYPE_A == 0) {
        unsigned of_a[4], of_b[2];
        for (int i = 0; i < 4; ++i) of_a[i] = bits_of(a[(g + i % 2 * 8) * lda + t + i / 2 * 4]);
        for (int i = 0; i < 2; ++i) of_b[i] = bits_of(b[(t + i * 4) * ldb + g]);
        if (DEFECT == EXCHANGES_REGISTERS) of_a[1] = of_a[2];
        mma1688_tf32(d, of_a, of_b);
    } else {
        extern __shared__ __align__(16) unsigned short tiles[];
        unsigned short *tile_a = tiles, *tile_b = tiles + 16 * k;
        for (int i = lane; i < 16 * k; i += 32) tile_a[i] = a[i / k * lda + i % k].bits;
        for (int i = lane; i < k * 8; i += 32) tile_b[i] = b[i / 8 * ldb + i % 8].bits;
        if (DEFECT != LOADS_BEFORE_BARRIER) __syncwarp();
        const int row = lane % 16, shift = DEFECT == LOADS_MISALIGNED;
        if (DEFECT == LEAVES_LANES_OUT && lane == 31) return;
        if constexpr (HALF) {
            unsigned of_a[2], of_b[2];
            ldmatrix_x2(of_a, tile_a + row * k + shift);
            ldmatrix_x2_trans(of_b, tile_b + lane % 8 * 8);
            mma1688_f16(d, of_a, of_b[0]);
        } else {
            unsigned of_a[4], of_b[2];
            ldmatrix_x4(of_a, tile_a + row * k + lane / 16 * 8 + shift);
            ldmatrix_x2_trans(of_b, tile_b + row * 8);
            if (DEFECT == EXCHANGES_REGISTERS) of_a[1] = of_a[2];
            mma16816<static_cast<ElementType>(TYPE_A)>(d, of_a, of_b);
        }
    }
    for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * ldc + t * 2 + i % 2] = alpha * d[i];
}
