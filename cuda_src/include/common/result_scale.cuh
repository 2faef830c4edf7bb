// The scale of an fp8 C, and the largest magnitude of its elements before they are scaled (amax),
// from which the scale of the next C can follow (delayed scaling).
#pragma once

#include "common/choice.cuh"
#include "common/epilogue.cuh"

class ResultScale {
public:
    // Without a `scale`, it is 1.
    __device__ __forceinline__ explicit ResultScale(const float* scale)
        : factor_(scale != nullptr ? __ldg(scale) : 1.0f) {}

    // The scaled value, which is rounded to fp8. Elements beyond the edges and NaN do not count for
    // amax.
    __device__ __forceinline__ float apply(float value, bool inside = true) {
        if (inside) largest_ = fmaxf(largest_, fabsf(value));
        return value * factor_;
    }

    // VECTOR elements of C from their sums, from `column` on, before they are rounded.
    template <int VECTOR, Epilogue EPILOGUE, typename B>
    __device__ __forceinline__ void finish_vector(float* values, const float* sums, float alpha,
                                                  const B* bias, int column) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i)
            values[i] = apply(finish<EPILOGUE>(alpha * sums[i], bias, column + i));
    }

    // The same, rounded and stored.
    template <int VECTOR, Epilogue EPILOGUE, typename T, typename B>
    __device__ __forceinline__ void update(T* c, const float* sums, float alpha, const B* bias,
                                           int column) {
        alignas(16) float values[VECTOR];
        finish_vector<VECTOR, EPILOGUE>(values, sums, alpha, bias, column);
        store_numbers<VECTOR>(c, values);
    }

    // Raises `amax`, unless it is null, to the largest magnitude. All lanes of a warp call it
    // together.
    __device__ __forceinline__ void raise(float* amax) {
        if (amax == nullptr) return;
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            largest_ = fmaxf(largest_, __shfl_xor_sync(0xffffffff, largest_, distance));
        // Positive floats have the order of their bits.
        if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned*>(amax), bits_of(largest_));
    }

private:
    const float factor_;
    float largest_ = 0.0f;
};

// Of other types of C.
struct NoResultScale {
    __device__ __forceinline__ explicit NoResultScale(const float*) {}
    __device__ __forceinline__ void raise(float*) {}
};

// Whether C is fp8.
template <typename T>
constexpr bool IS_FP8 = false;
template <>
inline constexpr bool IS_FP8<E4M3> = true;
template <>
inline constexpr bool IS_FP8<E5M2> = true;

template <typename T>
using ScaleOf = typename If<IS_FP8<T>, ResultScale, NoResultScale>::Type;
