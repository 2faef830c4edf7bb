// Products of small matrices on the tensor cores by one warp (mma.sync), and the loads of their
// operands from shared memory (ldmatrix).
//
// Lane 4 g + t of a warp holds, of D += A B with D of 16 x 8 in fp32, or int32 for int8:
//
//   d[0], d[1]   D(g, 2t), D(g, 2t + 1)          d[2], d[3]   the same of row g + 8
//   16-bit, K of 16, two in each register, the lower half first:
//     a[0]   A(g, 2t), A(g, 2t + 1)      a[1]   of row g + 8     a[2], a[3]   of K + 8
//     b[0]   B(2t, g), B(2t + 1, g)      b[1]   of K + 8
//   tf32, K of 8, one in each register:
//     a[0]   A(g, t)                     a[1]   of row g + 8     a[2], a[3]   of K + 4
//     b[0]   B(t, g)                     b[1]   of K + 4
//   8-bit, K of 32, four in each register, the lowest byte first:
//     a[0]   A(g, 4t) ... A(g, 4t + 3)   a[1]   of row g + 8     a[2], a[3]   of K + 16
//     b[0]   B(4t, g) ... B(4t + 3, g)   b[1]   of K + 16
//
// Needed: sm_80, but sm_75 for ldmatrix and mma1688_f16, and sm_89 for fp8. On the host all are
// emulated.
#pragma once

#include "common/number.cuh"

// The type of the sums of products.
template <ElementType TYPE>
struct Accumulator {
    using Type = float;
};

template <>
struct Accumulator<ElementType::S8> {
    using Type = int;
};

// f16 or bf16, K of 16.
template <ElementType TYPE>
__device__ __forceinline__ void mma16816(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    static_assert(TYPE != ElementType::F32, "f16 or bf16");
#if defined(AUTOTUNE_HOST)
    host::mma16816(static_cast<int>(TYPE), d, a, b);
#elif __CUDA_ARCH__ >= 800
    if constexpr (TYPE == ElementType::F16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
#endif
}

// fp8, K of 32; the sums keep about 14 bits.
template <ElementType TYPE_A, ElementType TYPE_B>
__device__ __forceinline__ void mma16832(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    constexpr bool A_E5M2 = TYPE_A == ElementType::E5M2, B_E5M2 = TYPE_B == ElementType::E5M2;
    static_assert((A_E5M2 || TYPE_A == ElementType::E4M3) &&
                      (B_E5M2 || TYPE_B == ElementType::E4M3),
                  "e4m3 or e5m2");
#if defined(AUTOTUNE_HOST)
    host::mma16832(static_cast<int>(TYPE_A), static_cast<int>(TYPE_B), d, a, b);
#elif __CUDA_ARCH__ >= 890
#define MULTIPLY(type_a, type_b)                                             \
    asm("mma.sync.aligned.m16n8k32.row.col.f32." type_a "." type_b ".f32 "   \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"    \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                     \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if constexpr (!A_E5M2 && !B_E5M2) MULTIPLY("e4m3", "e4m3");
    if constexpr (!A_E5M2 && B_E5M2) MULTIPLY("e4m3", "e5m2");
    if constexpr (A_E5M2 && !B_E5M2) MULTIPLY("e5m2", "e4m3");
    if constexpr (A_E5M2 && B_E5M2) MULTIPLY("e5m2", "e5m2");
#undef MULTIPLY
#endif
}

// int8, K of 32; the sums wrap around.
template <ElementType TYPE_A, ElementType TYPE_B>
__device__ __forceinline__ void mma16832(int (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    static_assert(TYPE_A == ElementType::S8 && TYPE_B == ElementType::S8, "int8 alone");
#if defined(AUTOTUNE_HOST)
    host::mma16832(host::S8, host::S8, d, a, b);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// tf32, K of 8; the lower 13 bits of A and B are not looked at.
__device__ __forceinline__ void mma1688_tf32(float (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
#if defined(AUTOTUNE_HOST)
    host::mma1688_tf32(d, a, b);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// f16, K of 8: a[0], a[1] and b are the halves of K + 0 or of K + 8 of the larger product.
__device__ __forceinline__ void mma1688_f16(float (&d)[4], const unsigned (&a)[2], unsigned b) {
#if defined(AUTOTUNE_HOST)
    host::mma1688_f16(d, a, b);
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
#endif
}

// Matrices of 8 rows of 16 bytes in shared memory. Lane 8 i + r says where row r of matrix i is;
// lane 4 g + t gets bytes 4 t to 4 t + 3 of row g of matrix i in r[i]. The addresses that lanes
// 16 and up of a load of two matrices give are not looked at.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void* row) {
#if defined(AUTOTUNE_HOST)
    host::ldmatrix(r, 4, row, false);
#else
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x2(unsigned (&r)[2], const void* row) {
#if defined(AUTOTUNE_HOST)
    host::ldmatrix(r, 2, row, false);
#else
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
#endif
}

// The same, each matrix of 8 x 8 16-bit elements transposed: lane 4 g + t gets column g of rows
// 2 t (in the lower half of r[i]) and 2 t + 1.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], const void* row) {
#if defined(AUTOTUNE_HOST)
    host::ldmatrix(r, 4, row, true);
#else
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x2_trans(unsigned (&r)[2], const void* row) {
#if defined(AUTOTUNE_HOST)
    host::ldmatrix(r, 2, row, true);
#else
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
#endif
}
