// Loads and stores of 1, 2 or 4 consecutive floats as one access.
#pragma once

template <int WIDTH>
struct Vector;

template <>
struct Vector<1> {
    using Type = float;
};

template <>
struct Vector<2> {
    using Type = float2;
};

template <>
struct Vector<4> {
    using Type = float4;
};

// Copies WIDTH floats; both addresses are aligned to WIDTH floats.
template <int WIDTH>
__device__ __forceinline__ void copy_vector(float* to, const float* from) {
    using Type = typename Vector<WIDTH>::Type;
    *reinterpret_cast<Type*>(to) = *reinterpret_cast<const Type*>(from);
}
