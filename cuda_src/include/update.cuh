// The last step of a product: c = act(alpha sums + beta c + bias).
#pragma once

#include "epilogue.cuh"
#include "vector.cuh"

// For VECTOR sums, the first of them in `column` of C; beta = 0 never reads c.
template <int VECTOR, int EPILOGUE>
__device__ __forceinline__ void update(float* c, const float* sums, float alpha, float beta,
                                       const float* bias, int column) {
    alignas(16) float values[VECTOR];
    if (beta != 0.0f) {
        copy_vector<VECTOR>(values, c);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) values[i] = fmaf(alpha, sums[i], beta * values[i]);
    } else {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) values[i] = alpha * sums[i];
    }
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) values[i] = finish<EPILOGUE>(values[i], bias, column + i);
    copy_vector<VECTOR>(c, values);
}
