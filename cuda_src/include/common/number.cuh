// Numbers as A, B, C and the bias are stored, and their way to fp32, in which everything is
// computed, and back.
//
// Rounding is to the nearest, ties to even; what is too large becomes infinite, NaN stays NaN.
#pragma once

#include "common/vector.cuh"

// As the rows of `ELEMENT_TYPES` in autotune/problem/precision.py. A test compares them.
enum class ElementType { F32, F16, BF16 };

struct Half {
    unsigned short bits;
};

struct BFloat {
    unsigned short bits;
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

// The same by the number of the type.
template <int TYPE>
using Number = Element<static_cast<ElementType>(TYPE)>;

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

// Loads VECTOR consecutive numbers, of 16 bytes at most, as one; their address is aligned to all of
// them, and so is `values` to 16 bytes.
template <int VECTOR, typename T>
__device__ __forceinline__ void load_numbers(float* values, const T* from) {
    if constexpr (sizeof(T) == sizeof(float)) {
        copy_vector<VECTOR>(values, from);
    } else if constexpr (VECTOR == 1) {
        values[0] = to_float(*from);
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
    if constexpr (sizeof(T) == sizeof(float)) {
        copy_vector<VECTOR>(to, values);
    } else if constexpr (VECTOR == 1) {
        *to = from_float<T>(values[0]);
    } else {
        Vector<VECTOR / 2> words;
#pragma unroll
        for (int i = 0; i < VECTOR; i += 2)
            words.word[i / 2] = pack_pair<T>(values[i], values[i + 1]);
        *reinterpret_cast<Vector<VECTOR / 2>*>(to) = words;
    }
}
