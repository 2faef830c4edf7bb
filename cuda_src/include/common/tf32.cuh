// tf32: fp32 with 10 bits after the point. The tensor cores read the first 19 bits of a word.
#pragma once

#include "common/number.cuh"

// The nearest tf32, ties away from zero, as a word whose last 13 bits are zero.
__device__ __forceinline__ unsigned tf32_nearest(float x) {
#if defined(AUTOTUNE_HOST)
    return bits_of(host::round_to_tf32(x));
#else
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
#endif
}

// What the tensor cores do not read of a float, rounded to tf32: both together are within 2^-22 of
// it. 0 for an infinity, NaN for NaN.
__device__ __forceinline__ float tf32_rest(float x) {
    constexpr unsigned READ = 0xffffe000, HALF = 0x1000, INFINITE = 0x7f800000;
    const unsigned bits = bits_of(x), size = bits & 0x7fffffff;
    if (size >= INFINITE) return size > INFINITE ? x : 0.0f;
    return float_of((bits_of(x - float_of(bits & READ)) + HALF) & READ);
}
