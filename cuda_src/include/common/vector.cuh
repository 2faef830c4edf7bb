// 4, 8 or 16 bytes that one instruction loads or stores.
#pragma once

template <int WORDS>
struct alignas(4 * WORDS) Vector {
    unsigned word[WORDS];
};

// The type that copies BYTES bytes (1, 2, 4, 8 or 16) as one.
template <int BYTES>
struct Bytes {
    using Type = Vector<BYTES / 4>;
};

template <>
struct Bytes<1> {
    using Type = unsigned char;
};

template <>
struct Bytes<2> {
    using Type = unsigned short;
};

// Floats that one instruction loads or stores.
template <int WIDTH>
struct Floats;

template <>
struct Floats<1> {
    using Type = float;
};

template <>
struct Floats<2> {
    using Type = float2;
};

template <>
struct Floats<4> {
    using Type = float4;
};

// BYTES bytes (2, 4, 8 or 16) that no thread writes while the kernel runs, so that the compiler may
// load them early.
template <int BYTES>
__device__ __forceinline__ typename Bytes<BYTES>::Type load_invariant(const void* from) {
    if constexpr (BYTES == 2) {
        return __ldg(static_cast<const unsigned short*>(from));
    } else if constexpr (BYTES == 4) {
        return {{__ldg(static_cast<const unsigned*>(from))}};
    } else if constexpr (BYTES == 8) {
        const uint2 words = __ldg(static_cast<const uint2*>(from));
        return {{words.x, words.y}};
    } else {
        const uint4 words = __ldg(static_cast<const uint4*>(from));
        return {{words.x, words.y, words.z, words.w}};
    }
}

// Copies WIDTH floats (1, 2 or 4); both addresses are aligned to WIDTH floats.
template <int WIDTH>
__device__ __forceinline__ void copy_vector(float* to, const float* from) {
    using Type = typename Floats<WIDTH>::Type;
    *reinterpret_cast<Type*>(to) = *reinterpret_cast<const Type*>(from);
}

// Copies WIDTH floats (1, 2 or 4) that no thread writes while the kernel runs.
template <int WIDTH>
__device__ __forceinline__ void load_vector(float* to, const float* from) {
    using Type = typename Floats<WIDTH>::Type;
    *reinterpret_cast<Type*>(to) = __ldg(reinterpret_cast<const Type*>(from));
}

__device__ __forceinline__ float4 vector_of(const float* values) {
    return make_float4(values[0], values[1], values[2], values[3]);
}

__device__ __forceinline__ void add_vector(float* sums, float4 values) {
    sums[0] += values.x;
    sums[1] += values.y;
    sums[2] += values.z;
    sums[3] += values.w;
}
