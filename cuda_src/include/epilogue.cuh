// What is done to an element of C before it is stored.
//
// EPILOGUE bit 0: a bias for each column; bits 1 and up: the activation, 0 none, 1 ReLU, 2 GELU.
#pragma once

#include "number.cuh"

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
