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

// Copies WIDTH floats (1, 2 or 4); both addresses are aligned to WIDTH floats.
template <int WIDTH>
__device__ __forceinline__ void copy_vector(float* to, const float* from) {
    using Type = typename Floats<WIDTH>::Type;
    *reinterpret_cast<Type*>(to) = *reinterpret_cast<const Type*>(from);
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
