// What is done to an element of C before it is stored.
//
// EPILOGUE bit 0: a bias for each column; bits 1 and up: the activation, 0 none, 1 ReLU, 2 GELU.
#pragma once

#include "common/number.cuh"

// `value` is alpha op(A) op(B) + beta C of an element in `column`; without a bias, `bias` is not
// read and may be null. NaN stays NaN.
template <int EPILOGUE, typename T>
__device__ __forceinline__ float finish(float value, const T* bias, int column) {
    static_assert(0 <= EPILOGUE && EPILOGUE < 6, "an activation, with a bias or without");
    if constexpr (EPILOGUE & 1) value += to_float(bias[column]);
    if constexpr (EPILOGUE >> 1 == 1) value = value < 0.0f ? 0.0f : value;
    if constexpr (EPILOGUE >> 1 == 2) {
        constexpr float SQRT_HALF = 0.70710678f;
        value *= 0.5f + 0.5f * erff(SQRT_HALF * value);
    }
    return value;
}

// The last step of a GEMM: c = act(alpha sums + beta c + bias), rounded once to C's type.
//
// For VECTOR sums, the first of them in `column` of C; C is aligned to VECTOR elements, which are
// 16 bytes at most. beta = 0 never reads c.
template <int VECTOR, int EPILOGUE, typename T>
__device__ __forceinline__ void update(T* c, const float* sums, float alpha, float beta,
                                       const T* bias, int column) {
    alignas(16) float values[VECTOR];
    if (beta != 0.0f) {
        load_numbers<VECTOR>(values, c);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) values[i] = fmaf(alpha, sums[i], beta * values[i]);
    } else {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) values[i] = alpha * sums[i];
    }
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) values[i] = finish<EPILOGUE>(values[i], bias, column + i);
    store_numbers<VECTOR>(c, values);
}
