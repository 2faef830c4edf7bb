// The last step of a product: c = act(alpha sums + beta c + bias), rounded once to C's type.
#pragma once

#include "epilogue.cuh"
#include "number.cuh"

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
