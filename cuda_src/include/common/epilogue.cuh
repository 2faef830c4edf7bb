// The epilogue of a GEMM: C = act(alpha sums + beta C + bias).
#pragma once

#include "common/number.cuh"

// A bias for each column, an activation, or both; as `EPILOGUES` in autotune/problem/fields.py. A
// test compares them.
enum class Epilogue { NONE, BIAS, RELU, BIAS_RELU, GELU, BIAS_GELU };

__device__ constexpr bool has_bias(Epilogue epilogue) {
    return epilogue == Epilogue::BIAS || epilogue == Epilogue::BIAS_RELU ||
           epilogue == Epilogue::BIAS_GELU;
}

// `value` is alpha op(A) op(B) + beta C of an element in `column`; without a bias, `bias` is not
// read and may be null. NaN stays NaN.
template <Epilogue EPILOGUE, typename T>
__device__ __forceinline__ float finish(float value, const T* bias, int column) {
    if constexpr (has_bias(EPILOGUE)) value += to_float(bias[column]);
    if constexpr (EPILOGUE == Epilogue::RELU || EPILOGUE == Epilogue::BIAS_RELU)
        value = value < 0.0f ? 0.0f : value;
    if constexpr (EPILOGUE == Epilogue::GELU || EPILOGUE == Epilogue::BIAS_GELU) {
        constexpr float SQRT_HALF = 0.70710678f;
        value *= 0.5f + 0.5f * erff(SQRT_HALF * value);
    }
    return value;
}

// VECTOR elements of C from their sums, from `column` on, rounded once to C's type. C is aligned to
// VECTOR elements, which are 16 bytes at most. beta = 0 never reads C.
template <int VECTOR, Epilogue EPILOGUE, typename T>
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
