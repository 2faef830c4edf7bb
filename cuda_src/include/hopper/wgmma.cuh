// The tensor cores of Hopper: D[64][N] += A[64][K] B[N][K]^T by one warpgroup of 128 threads
// (wgmma, sm_90a).
//
// B comes from shared memory and A from there or from registers. Multiplications are asynchronous:
// `fence`, multiply, `commit`, and `wait` before the sums are read or the operands overwritten. The
// K of an instruction is 32 bytes.
//
// Sums of a thread, lane `l` of warp `w`:  d[i] is D[16 w + l / 4 + 8 (i / 2 % 2)]
//                                                  [8 (i / 4) + 2 (l % 4) + i % 2]
#pragma once

#include "common/number.cuh"
#include "hopper/barrier.cuh"

using Descriptor = unsigned long long;

// Before the first multiplication that uses registers written by other instructions.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes a group of multiplications.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most PENDING groups are under way.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps what reads or writes the sums on its side of this point.
template <int COUNT>
__device__ __forceinline__ void wgmma_hold(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int COUNT>
__device__ __forceinline__ void wgmma_hold(int (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

// An instruction names all its registers one by one: R<N> are the names of the sums, D<N> the sums,
// and SIZES lists N with the numbers of the operands that follow them.
#define D(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R8 "%0, %1, %2, %3"
#define R16 R8 ", %4, %5, %6, %7"
#define R24 R16 ", %8, %9, %10, %11"
#define R32 R24 ", %12, %13, %14, %15"
#define R40 R32 ", %16, %17, %18, %19"
#define R48 R40 ", %20, %21, %22, %23"
#define R56 R48 ", %24, %25, %26, %27"
#define R64 R56 ", %28, %29, %30, %31"
#define R72 R64 ", %32, %33, %34, %35"
#define R80 R72 ", %36, %37, %38, %39"
#define R88 R80 ", %40, %41, %42, %43"
#define R96 R88 ", %44, %45, %46, %47"
#define R104 R96 ", %48, %49, %50, %51"
#define R112 R104 ", %52, %53, %54, %55"
#define R120 R112 ", %56, %57, %58, %59"
#define R128 R120 ", %60, %61, %62, %63"
#define R136 R128 ", %64, %65, %66, %67"
#define R144 R136 ", %68, %69, %70, %71"
#define R152 R144 ", %72, %73, %74, %75"
#define R160 R152 ", %76, %77, %78, %79"
#define R168 R160 ", %80, %81, %82, %83"
#define R176 R168 ", %84, %85, %86, %87"
#define R184 R176 ", %88, %89, %90, %91"
#define R192 R184 ", %92, %93, %94, %95"
#define R200 R192 ", %96, %97, %98, %99"
#define R208 R200 ", %100, %101, %102, %103"
#define R216 R208 ", %104, %105, %106, %107"
#define R224 R216 ", %108, %109, %110, %111"
#define R232 R224 ", %112, %113, %114, %115"
#define R240 R232 ", %116, %117, %118, %119"
#define R248 R240 ", %120, %121, %122, %123"
#define R256 R248 ", %124, %125, %126, %127"
#define D8 D(0)
#define D16 D8, D(4)
#define D24 D16, D(8)
#define D32 D24, D(12)
#define D40 D32, D(16)
#define D48 D40, D(20)
#define D56 D48, D(24)
#define D64 D56, D(28)
#define D72 D64, D(32)
#define D80 D72, D(36)
#define D88 D80, D(40)
#define D96 D88, D(44)
#define D104 D96, D(48)
#define D112 D104, D(52)
#define D120 D112, D(56)
#define D128 D120, D(60)
#define D136 D128, D(64)
#define D144 D136, D(68)
#define D152 D144, D(72)
#define D160 D152, D(76)
#define D168 D160, D(80)
#define D176 D168, D(84)
#define D184 D176, D(88)
#define D192 D184, D(92)
#define D200 D192, D(96)
#define D208 D200, D(100)
#define D216 D208, D(104)
#define D224 D216, D(108)
#define D232 D224, D(112)
#define D240 D232, D(116)
#define D248 D240, D(120)
#define D256 D248, D(124)
#define SIZES(X)                         \
    X(8, 4, 5, 6, 7, 8, 9)               \
    X(16, 8, 9, 10, 11, 12, 13)          \
    X(24, 12, 13, 14, 15, 16, 17)        \
    X(32, 16, 17, 18, 19, 20, 21)        \
    X(40, 20, 21, 22, 23, 24, 25)        \
    X(48, 24, 25, 26, 27, 28, 29)        \
    X(56, 28, 29, 30, 31, 32, 33)        \
    X(64, 32, 33, 34, 35, 36, 37)        \
    X(72, 36, 37, 38, 39, 40, 41)        \
    X(80, 40, 41, 42, 43, 44, 45)        \
    X(88, 44, 45, 46, 47, 48, 49)        \
    X(96, 48, 49, 50, 51, 52, 53)        \
    X(104, 52, 53, 54, 55, 56, 57)       \
    X(112, 56, 57, 58, 59, 60, 61)       \
    X(120, 60, 61, 62, 63, 64, 65)       \
    X(128, 64, 65, 66, 67, 68, 69)       \
    X(136, 68, 69, 70, 71, 72, 73)       \
    X(144, 72, 73, 74, 75, 76, 77)       \
    X(152, 76, 77, 78, 79, 80, 81)       \
    X(160, 80, 81, 82, 83, 84, 85)       \
    X(168, 84, 85, 86, 87, 88, 89)       \
    X(176, 88, 89, 90, 91, 92, 93)       \
    X(184, 92, 93, 94, 95, 96, 97)       \
    X(192, 96, 97, 98, 99, 100, 101)     \
    X(200, 100, 101, 102, 103, 104, 105) \
    X(208, 104, 105, 106, 107, 108, 109) \
    X(216, 108, 109, 110, 111, 112, 113) \
    X(224, 112, 113, 114, 115, 116, 117) \
    X(232, 116, 117, 118, 119, 120, 121) \
    X(240, 120, 121, 122, 123, 124, 125) \
    X(248, 124, 125, 126, 127, 128, 129) \
    X(256, 128, 129, 130, 131, 132, 133)

#define ADDING(add) "{\n.reg .pred add;\nsetp.ne.b32 add, %" #add ", 0;\n"
#define WGMMA(n, k, sum, a, b) \
    "wgmma.mma_async.sync.aligned.m64n" #n "k" #k "." sum "." a "." b " {" R##n "}, "

// The instructions of N columns. Each N has a class of its own, since a compiler reads a function
// template again for each instance: one function for all N takes the front end three times as long.
template <int N>
struct Floats;

#define SIXTEEN(n, type, a_, b_, add_, ta_, tb_)                                          \
    asm volatile(ADDING(add_) WGMMA(n, 16, "f32", type, type) "%" #a_ ", %" #b_           \
                                                              ", add, 1, 1, %" #ta_       \
                                                              ", %" #tb_ ";\n}"           \
                 : D##n                                                                   \
                 : "l"(a), "l"(b), "r"(add), "n"(int{TRANSPOSED_A}), "n"(int{TRANSPOSED_B}))
#define ALONG_K(n, k, type_a, type_b, a_, b_, add_)                                           \
    asm volatile(ADDING(add_) WGMMA(n, k, "f32", type_a, type_b) "%" #a_ ", %" #b_            \
                                                                 ", add, 1, 1;\n}"            \
                 : D##n                                                                       \
                 : "l"(a), "l"(b), "r"(add))
#define INSTRUCTIONS(n, r0, r1, r2, r3, r4, r5)                                                  \
    template <>                                                                                  \
    struct Floats<n> {                                                                           \
        template <ElementType TYPE_A, ElementType TYPE_B, bool TRANSPOSED_A, bool TRANSPOSED_B>  \
        __device__ static __forceinline__ void shared(float (&d)[n / 2], Descriptor a,           \
                                                      Descriptor b, int add) {                   \
            constexpr bool F32 = TYPE_A == ElementType::F32, F16 = TYPE_A == ElementType::F16,   \
                           BF16 = TYPE_A == ElementType::BF16, FP8 = !F32 && !F16 && !BF16;      \
            constexpr bool A_E5M2 = TYPE_A == ElementType::E5M2,                                 \
                           B_E5M2 = TYPE_B == ElementType::E5M2;                                 \
            if constexpr (F32) ALONG_K(n, 8, "tf32", "tf32", r0, r1, r2);                        \
            if constexpr (F16) SIXTEEN(n, "f16", r0, r1, r2, r3, r4);                            \
            if constexpr (BF16) SIXTEEN(n, "bf16", r0, r1, r2, r3, r4);                          \
            if constexpr (FP8 && !A_E5M2 && !B_E5M2) ALONG_K(n, 32, "e4m3", "e4m3", r0, r1, r2); \
            if constexpr (FP8 && !A_E5M2 && B_E5M2) ALONG_K(n, 32, "e4m3", "e5m2", r0, r1, r2);  \
            if constexpr (FP8 && A_E5M2 && !B_E5M2) ALONG_K(n, 32, "e5m2", "e4m3", r0, r1, r2);  \
            if constexpr (FP8 && A_E5M2 && B_E5M2) ALONG_K(n, 32, "e5m2", "e5m2", r0, r1, r2);   \
        }                                                                                        \
        template <class A>                                                                       \
        __device__ static __forceinline__ void registers(float (&d)[n / 2], const A& a,          \
                                                         Descriptor b, int add) {                \
            asm volatile(ADDING(r5) WGMMA(n, 8, "f32", "tf32", "tf32") "{%" #r0 ", %" #r1        \
                                                                       ", %" #r2 ", %" #r3       \
                                                                       "}, %" #r4                \
                                                                       ", add, 1, 1;\n}"         \
                         : D##n                                                                  \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));        \
        }                                                                                        \
    };
SIZES(INSTRUCTIONS)
#undef INSTRUCTIONS
#undef ALONG_K
#undef SIXTEEN

template <int N>
struct Integers;

#undef D
#define D(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define INSTRUCTIONS(n, r0, r1, r2, r3, r4, r5)                                        \
    template <>                                                                        \
    struct Integers<n> {                                                               \
        template <class Sum>                                                           \
        __device__ static __forceinline__ void shared(Sum (&d)[n / 2], Descriptor a,   \
                                                      Descriptor b, int add) {         \
            asm volatile(ADDING(r2) WGMMA(n, 32, "s32", "s8", "s8") "%" #r0 ", %" #r1  \
                                                                    ", add;\n}"        \
                         : D##n                                                        \
                         : "l"(a), "l"(b), "r"(add));                                  \
        }                                                                              \
    };
SIZES(INSTRUCTIONS)
#undef INSTRUCTIONS

#undef D
#undef SIZES
#undef ADDING
#undef WGMMA
#undef R8
#undef D8
#undef R16
#undef D16
#undef R24
#undef D24
#undef R32
#undef D32
#undef R40
#undef D40
#undef R48
#undef D48
#undef R56
#undef D56
#undef R64
#undef D64
#undef R72
#undef D72
#undef R80
#undef D80
#undef R88
#undef D88
#undef R96
#undef D96
#undef R104
#undef D104
#undef R112
#undef D112
#undef R120
#undef D120
#undef R128
#undef D128
#undef R136
#undef D136
#undef R144
#undef D144
#undef R152
#undef D152
#undef R160
#undef D160
#undef R168
#undef D168
#undef R176
#undef D176
#undef R184
#undef D184
#undef R192
#undef D192
#undef R200
#undef D200
#undef R208
#undef D208
#undef R216
#undef D216
#undef R224
#undef D224
#undef R232
#undef D232
#undef R240
#undef D240
#undef R248
#undef D248
#undef R256
#undef D256

// d += A B^T, or d = A B^T if `add` is 0, of operands in shared memory. TRANSPOSED: the operand's
// lines do not run along K, which 16-bit types allow.
template <int N, ElementType TYPE_A, ElementType TYPE_B, bool TRANSPOSED_A, bool TRANSPOSED_B>
__device__ __forceinline__ void wgmma_shared(float (&d)[N / 2], Descriptor a, Descriptor b,
                                             int add) {
    static_assert(TYPE_A == ElementType::F16 || TYPE_A == ElementType::BF16 ||
                      (!TRANSPOSED_A && !TRANSPOSED_B),
                  "operands that are not of 16 bits run along K");
    Floats<N>::template shared<TYPE_A, TYPE_B, TRANSPOSED_A, TRANSPOSED_B>(d, a, b, add);
}

// The same in tf32 with A from registers, of each 8 columns of K: rows l / 4 and l / 4 + 8 in
// column l % 4, then in column l % 4 + 4.
template <int N>
__device__ __forceinline__ void wgmma_registers(float (&d)[N / 2], const unsigned (&a)[4],
                                                Descriptor b, int add) {
    Floats<N>::registers(d, a, b, add);
}

// The exact sums of int8. N is 8, 16, 24, 32 or a multiple of 16.
template <int N, ElementType TYPE_A, ElementType TYPE_B, bool TRANSPOSED_A, bool TRANSPOSED_B>
__device__ __forceinline__ void wgmma_shared(int (&d)[N / 2], Descriptor a, Descriptor b, int add) {
    static_assert(TYPE_A == ElementType::S8 && TYPE_B == ElementType::S8, "int8 alone");
    static_assert(!TRANSPOSED_A && !TRANSPOSED_B, "int8 operands run along K");
    Integers<N>::shared(d, a, b, add);
}

// COUNT 8x8 matrices of 16-bit numbers, 2 or 4, into shared memory, TRANSPOSED or not: lane l gives
// the address of row l % 8 of matrix l / 8 (of no matrix: any), and holds columns 2 (l % 4) and + 1
// of row l / 4 of each.
template <int COUNT, bool TRANSPOSED>
__device__ __forceinline__ void stmatrix(void* row, const unsigned (&pairs)[COUNT]) {
#define STORE_2(trans)                                                                          \
    asm volatile("stmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 [%0], {%1, %2};" ::"r"(     \
                     shared_address(row)),                                                      \
                 "r"(pairs[0]), "r"(pairs[1])                                                   \
                 : "memory")
#define STORE_4(trans)                                                                          \
    asm volatile("stmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 [%0], {%1, %2, %3, %4};" :: \
                     "r"(shared_address(row)),                                                  \
                 "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])                     \
                 : "memory")
    if constexpr (COUNT == 4 && TRANSPOSED) STORE_4(".trans");
    if constexpr (COUNT == 4 && !TRANSPOSED) STORE_4("");
    if constexpr (COUNT == 2 && TRANSPOSED) STORE_2(".trans");
    if constexpr (COUNT == 2 && !TRANSPOSED) STORE_2("");
#undef STORE_2
#undef STORE_4
}
