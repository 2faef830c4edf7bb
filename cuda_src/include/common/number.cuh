// Numbers as A, B, C and the bias are stored, and their way to fp32, in which everything is
// computed, and back.
//
// Rounding is to the nearest, ties to even; what is too large becomes infinite, NaN stays NaN.
// Types of 8 bits and int32 take the largest of their finite numbers instead, and int8 and int32 0
// for NaN.
#pragma once

#include "common/vector.cuh"

// As the rows of `ELEMENT_TYPES` in autotune/problem/element.py. A test compares them.
enum class ElementType { F32, F16, BF16, E4M3, E5M2, S8, S32 };

struct Half {
    unsigned short bits;
};

struct BFloat {
    unsigned short bits;
};

// fp8 with 4 bits of exponent and 3 of mantissa: no infinities, one NaN of either sign.
struct E4M3 {
    unsigned char bits;
};

// fp8 with 5 bits of exponent and 2 of mantissa: the upper half of a `Half`.
struct E5M2 {
    unsigned char bits;
};

// int8 of numbers that are known to be from -128 to 127, which are rounded only.
struct BoundedInt8 {
    signed char value;
};

// The C++ type of an element.
template <ElementType TYPE>
struct Element;

template <>
struct Element<ElementType::F32> {
    using Type = float;
};

template <>
struct Element<ElementType::F16> {
    using Type = Half;
};

template <>
struct Element<ElementType::BF16> {
    using Type = BFloat;
};

template <>
struct Element<ElementType::E4M3> {
    using Type = E4M3;
};

template <>
struct Element<ElementType::E5M2> {
    using Type = E5M2;
};

template <>
struct Element<ElementType::S8> {
    using Type = signed char;
};

template <>
struct Element<ElementType::S32> {
    using Type = int;
};

// The same by the number of the type.
template <int TYPE>
using Number = Element<static_cast<ElementType>(TYPE)>;

// The type of the bias of a C of type T: T, but bfloat16 for fp8.
template <typename T>
struct BiasOf {
    using Type = T;
};

template <>
struct BiasOf<E4M3> {
    using Type = BFloat;
};

template <>
struct BiasOf<E5M2> {
    using Type = BFloat;
};

template <ElementType TYPE>
using Bias = typename BiasOf<typename Element<TYPE>::Type>::Type;

__device__ __forceinline__ unsigned bits_of(float x) {
    const union {
        float value;
        unsigned bits;
    } both = {x};
    return both.bits;
}

__device__ __forceinline__ float float_of(unsigned bits) {
    const union {
        unsigned bits;
        float value;
    } both = {bits};
    return both.value;
}

__device__ __forceinline__ float to_float(float x) { return x; }

__device__ __forceinline__ float to_float(BFloat x) {
    return float_of(static_cast<unsigned>(x.bits) << 16);
}

__device__ __forceinline__ float to_float(Half x) {
#if defined(AUTOTUNE_HOST)
    _Float16 half;
    std::memcpy(&half, &x, sizeof half);
    return half;
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
#endif
}

__device__ __forceinline__ float to_float(signed char x) { return x; }

__device__ __forceinline__ float to_float(int x) { return static_cast<float>(x); }

__device__ __forceinline__ float to_float(E5M2 x) {
    return to_float(Half{static_cast<unsigned short>(x.bits << 8)});
}

__device__ __forceinline__ float to_float(E4M3 x) {
#if __CUDA_ARCH__ >= 890
    unsigned pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<unsigned short>(x.bits)));
    return to_float(Half{static_cast<unsigned short>(pair)});
#else
    // As bits of fp32 it is 2^120 times too small, or denormal where it is denormal itself.
    const unsigned sign = (x.bits & 0x80u) << 24, size = x.bits & 0x7fu;
    if (size == 0x7f) return float_of(0x7fc00000 | sign);
    return float_of(bits_of(float_of(size << 20) * float_of(247u << 23)) | sign);
#endif
}

// The number of type T that is nearest to `x`.
template <typename T>
__device__ __forceinline__ T from_float(float x);

template <>
__device__ __forceinline__ float from_float<float>(float x) {
    return x;
}

template <>
__device__ __forceinline__ BFloat from_float<BFloat>(float x) {
    BFloat result;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
#else
    // Half a unit less one, and one for odd numbers, carries into what is kept; what NaN carries
    // could make it a number.
    const unsigned bits = bits_of(x);
    const unsigned kept = x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
    result.bits = static_cast<unsigned short>(kept);
#endif
    return result;
}

template <>
__device__ __forceinline__ Half from_float<Half>(float x) {
    Half result;
#if defined(AUTOTUNE_HOST)
    const _Float16 half = x;
    std::memcpy(&result, &half, sizeof half);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
#endif
    return result;
}

// The bits of the fp8 number, with MANTISSA bits of mantissa and an exponent of 0 for numbers below
// 2^LEAST, that is nearest to `x`; of the `largest` for all above, and all ones for NaN.
template <int MANTISSA, int LEAST>
__device__ __forceinline__ unsigned char fp8_bits(float x, float largest) {
    const unsigned sign = bits_of(x) >> 24 & 0x80, size = bits_of(x) & 0x7fffffff;
    if (size > 0x7f800000) return 0x7f;
    const float whole = float_of(size) < largest ? float_of(size) : largest;
    unsigned kept;
    if (whole < float_of(static_cast<unsigned>(127 + LEAST) << 23)) {
        // The last bit of this sum is worth one denormal step.
        const float shift = float_of(static_cast<unsigned>(127 + LEAST - MANTISSA + 23) << 23);
        kept = bits_of(whole + shift) - bits_of(shift);
    } else {
        constexpr int DROPPED = 23 - MANTISSA;
        const unsigned bits = bits_of(whole), half = (1u << (DROPPED - 1)) - 1;
        kept = (bits + half + (bits >> DROPPED & 1)) >> DROPPED;
        kept -= static_cast<unsigned>(127 + LEAST - 1) << MANTISSA;
    }
    return static_cast<unsigned char>(sign | kept);
}

template <>
__device__ __forceinline__ E4M3 from_float<E4M3>(float x) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return {static_cast<unsigned char>(pair)};
#else
    return {fp8_bits<3, -6>(x, 448.0f)};
#endif
}

template <>
__device__ __forceinline__ E5M2 from_float<E5M2>(float x) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return {static_cast<unsigned char>(pair)};
#else
    return {fp8_bits<2, -14>(x, 57344.0f)};
#endif
}

// A word whose low byte is the int8 number that is nearest to `x`, from -128 to 127. The sum is
// never contracted with a product that `x` is: it would round that once instead of twice.
__device__ __forceinline__ unsigned nearest_byte(float x) {
    return bits_of(__fadd_rn(x, 12582912.0f));  // the last bit of the sum is worth 1
}

// The number that int8 has instead of `x`, before it is rounded.
__device__ __forceinline__ float bounded(float x) {
    return x == x ? fminf(fmaxf(x, -128.0f), 127.0f) : 0.0f;
}

template <>
__device__ __forceinline__ signed char from_float<signed char>(float x) {
    return static_cast<signed char>(nearest_byte(bounded(x)));
}

template <>
__device__ __forceinline__ BoundedInt8 from_float<BoundedInt8>(float x) {
    return {static_cast<signed char>(nearest_byte(x))};
}

template <>
__device__ __forceinline__ int from_float<int>(float x) {
#if defined(AUTOTUNE_HOST)
    if (!(x < 2147483648.0f)) return x == x ? 0x7fffffff : 0;
    if (x < -2147483648.0f) return -0x7fffffff - 1;
    return static_cast<int>(__builtin_nearbyintf(x));
#else
    int nearest;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(nearest) : "f"(x));
    return nearest;
#endif
}

// Two numbers of a 16-bit type in a word, `low` in its low half, where the first in memory is.
template <typename T>
__device__ __forceinline__ unsigned pack_pair(float low, float high) {
    return from_float<T>(low).bits | static_cast<unsigned>(from_float<T>(high).bits) << 16;
}

#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ unsigned pack_pair<Half>(float low, float high) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <>
__device__ __forceinline__ unsigned pack_pair<BFloat>(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
#endif

// The two numbers in a word.
template <typename T>
__device__ __forceinline__ float low_of(unsigned pair) {
    return to_float(T{static_cast<unsigned short>(pair)});
}

template <typename T>
__device__ __forceinline__ float high_of(unsigned pair) {
    return to_float(T{static_cast<unsigned short>(pair >> 16)});
}

__device__ __forceinline__ unsigned byte_of(E4M3 x) { return x.bits; }
__device__ __forceinline__ unsigned byte_of(E5M2 x) { return x.bits; }
__device__ __forceinline__ unsigned byte_of(signed char x) { return static_cast<unsigned char>(x); }
__device__ __forceinline__ unsigned byte_of(BoundedInt8 x) { return byte_of(x.value); }

// Four numbers of an 8-bit type in a word, the first in its low byte.
template <typename T>
__device__ __forceinline__ unsigned pack_four(const float* values) {
    unsigned word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) word |= byte_of(from_float<T>(values[i])) << 8 * i;
    return word;
}

template <>
__device__ __forceinline__ unsigned pack_four<BoundedInt8>(const float* values) {
    const unsigned low = __byte_perm(nearest_byte(values[0]), nearest_byte(values[1]), 0x0040);
    const unsigned high = __byte_perm(nearest_byte(values[2]), nearest_byte(values[3]), 0x0040);
    return __byte_perm(low, high, 0x5410);
}

template <>
__device__ __forceinline__ unsigned pack_four<signed char>(const float* values) {
    float inside[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) inside[i] = bounded(values[i]);
    return pack_four<BoundedInt8>(inside);
}

#if __CUDA_ARCH__ >= 890
template <>
__device__ __forceinline__ unsigned pack_four<E4M3>(const float* values) {
    unsigned word;
    asm("{.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};}"
        : "=r"(word) : "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]));
    return word;
}

template <>
__device__ __forceinline__ unsigned pack_four<E5M2>(const float* values) {
    unsigned word;
    asm("{.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};}"
        : "=r"(word) : "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]));
    return word;
}
#endif

// The number of an 8-bit type in the low byte of a word.
template <typename T>
__device__ __forceinline__ float byte_number(unsigned word) {
    return to_float(T{static_cast<unsigned char>(word)});
}

template <>
__device__ __forceinline__ float byte_number<signed char>(unsigned word) {
    return static_cast<float>(static_cast<signed char>(word));
}

template <int WORDS>
__device__ __forceinline__ unsigned word_of(const Vector<WORDS>& words, int i) {
    return words.word[i];
}
__device__ __forceinline__ unsigned word_of(unsigned short half, int) { return half; }

// Copies numbers of 4 bytes as one, and converts those that are no floats.
template <int VECTOR>
__device__ __forceinline__ void copy_numbers(float* to, const float* from) {
    copy_vector<VECTOR>(to, from);
}

template <int VECTOR>
__device__ __forceinline__ void copy_numbers(float* to, const int* from) {
    const Vector<VECTOR> words = *reinterpret_cast<const Vector<VECTOR>*>(from);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) to[i] = to_float(static_cast<int>(words.word[i]));
}

template <int VECTOR>
__device__ __forceinline__ void copy_numbers(int* to, const float* from) {
    Vector<VECTOR> words;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i)
        words.word[i] = static_cast<unsigned>(from_float<int>(from[i]));
    *reinterpret_cast<Vector<VECTOR>*>(to) = words;
}

// Loads VECTOR consecutive numbers, of 16 bytes at most, as one; their address is aligned to all of
// them, and so is `values` to 16 bytes.
template <int VECTOR, typename T>
__device__ __forceinline__ void load_numbers(float* values, const T* from) {
    if constexpr (VECTOR == 1) {
        values[0] = to_float(*from);
    } else if constexpr (sizeof(T) == sizeof(float)) {
        copy_numbers<VECTOR>(values, from);
    } else if constexpr (sizeof(T) == 1) {
        const typename Bytes<VECTOR>::Type loaded =
            *reinterpret_cast<const typename Bytes<VECTOR>::Type*>(from);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i)
            values[i] = byte_number<T>(word_of(loaded, i / 4) >> 8 * (i % 4));
    } else {
        const Vector<VECTOR / 2> words = *reinterpret_cast<const Vector<VECTOR / 2>*>(from);
#pragma unroll
        for (int i = 0; i < VECTOR; i += 2) {
            values[i] = low_of<T>(words.word[i / 2]);
            values[i + 1] = high_of<T>(words.word[i / 2]);
        }
    }
}

// Rounds and stores VECTOR numbers as `load_numbers` loads them.
template <int VECTOR, typename T>
__device__ __forceinline__ void store_numbers(T* to, const float* values) {
    if constexpr (VECTOR == 1) {
        *to = from_float<T>(values[0]);
    } else if constexpr (sizeof(T) == sizeof(float)) {
        copy_numbers<VECTOR>(to, values);
    } else if constexpr (sizeof(T) == 1 && VECTOR == 2) {
        *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(
            byte_of(from_float<T>(values[0])) | byte_of(from_float<T>(values[1])) << 8);
    } else if constexpr (sizeof(T) == 1) {
        Vector<VECTOR / 4> words;
#pragma unroll
        for (int i = 0; i < VECTOR; i += 4) words.word[i / 4] = pack_four<T>(values + i);
        *reinterpret_cast<Vector<VECTOR / 4>*>(to) = words;
    } else {
        Vector<VECTOR / 2> words;
#pragma unroll
        for (int i = 0; i < VECTOR; i += 2)
            words.word[i / 2] = pack_pair<T>(values[i], values[i + 1]);
        *reinterpret_cast<Vector<VECTOR / 2>*>(to) = words;
    }
}
