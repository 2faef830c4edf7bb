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

// The remainder of an fp32 number after the bits that the tensor cores read, rounded to tf32: both
// together are within 2^-22 of the number. 0 for an infinity. NaN for NaN, whose payload may lie in
// the bits that are not read: a constant, since to keep the rest of it costs 2 % of a kernel's
// time.
__device__ __forceinline__ unsigned tf32_remainder(unsigned bits) {
    constexpr unsigned READ = 0xffffe000, HALF = 0x1000;
    constexpr unsigned INFINITE = 0x7f800000, NAN_BITS = 0x7fffe000;
    const unsigned size = bits & 0x7fffffff;
    if (size >= INFINITE) return size > INFINITE ? NAN_BITS : 0;
    return (bits_of(float_of(bits) - float_of(bits & READ)) + HALF) & READ;
}

__device__ __forceinline__ Vector<4> tf32_remainder(const Vector<4>& numbers) {
    Vector<4> remainder;
#pragma unroll
    for (int i = 0; i < 4; ++i) remainder.word[i] = tf32_remainder(numbers.word[i]);
    return remainder;
}
