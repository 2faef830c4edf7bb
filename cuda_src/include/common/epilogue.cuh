// The epilogue of a GEMM: C = act(alpha sums + beta C + bias).
//
// GELU, its tanh form and SiLU are x P(x), where P rises from 0 to 1 and P(-x) = 1 - P(x). They are
// computed as max(x, 0) - |x| P(-|x|), so that nothing cancels: the tail P(-|x|) is at most 1/2, and
// its error counts only times |x| P(-|x|), which is at most 0.17 (SiLU: 0.28).
//
// Tails for a C of 16 bits are right to 2^-15, a sixteenth of what rounding to fp16 may change, and
// to 1.3e-6 times 1 / |x|; those for fp32 to about 2^-21. tests/host/test_activations_host.py has
// the errors. -0 stays -0, NaN stays NaN, and an infinity gives the limit: infinity or -0.
#pragma once

#include "common/number.cuh"

// A bias for each column, an activation, or both; as `EPILOGUES` in autotune/problem/fields.py. A
// test compares them. Even numbers are activations, and the next number adds a bias.
enum class Epilogue {
    NONE,
    BIAS,
    RELU,
    BIAS_RELU,
    GELU,
    BIAS_GELU,
    GELU_TANH,
    BIAS_GELU_TANH,
    SILU,
    BIAS_SILU
};

__device__ constexpr bool has_bias(Epilogue epilogue) {
    return static_cast<int>(epilogue) % 2 != 0;
}

// The epilogue without its bias.
__device__ constexpr Epilogue activation_of(Epilogue epilogue) {
    return static_cast<Epilogue>(static_cast<int>(epilogue) / 2 * 2);
}

// 2^x to 2^-22 of its size; 0 where that is below 2^-126.
__device__ __forceinline__ float approximate_exp2(float x) {
#if defined(AUTOTUNE_HOST)
    return x < -126.0f ? 0.0f : exp2f(x);
#else
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#endif
}

// 1 / x to a unit in the last place.
__device__ __forceinline__ float approximate_reciprocal(float x) {
#if defined(AUTOTUNE_HOST)
    return 1.0f / x;
#else
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#endif
}

// `x`, but a zero of the sign of `zero` instead of negative numbers. NaN stays NaN.
__device__ __forceinline__ float without_negatives(float x, float zero) {
#if __CUDA_ARCH__ >= 800
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(zero));
    return result;
#else
    return x < 0.0f ? zero : x;
#endif
}

template <int COUNT>
__device__ __forceinline__ float polynomial(const float (&coefficients)[COUNT], float x) {
    float result = coefficients[COUNT - 1];
#pragma unroll
    for (int i = COUNT - 2; i >= 0; --i) result = fmaf(result, x, coefficients[i]);
    return result;
}

// P(-size) of an activation, for 0 <= size <= 128.
//
// GELU: P is the normal distribution function, and log2 P(-size) nearly a parabola. Minimax fits to
// it for sizes up to 5.5 weigh the error of size P(-size); beyond, they keep falling.
// The others: P(-size) = e / (1 + e), where e is a power of 2 and at most 1.
template <Epilogue ACTIVATION, bool FOR_16_BITS>
__device__ __forceinline__ float tail(float size) {
    if constexpr (ACTIVATION == Epilogue::GELU) {
        if constexpr (FOR_16_BITS) {
            constexpr float LOG2_TAIL[] = {-1.0f,           -1.15118599e+0f, -4.58709627e-1f,
                                           -5.36134727e-2f, 8.28520767e-3f,  -8.60434782e-4f,
                                           5.10473983e-5f,  -1.22719109e-6f};
            return approximate_exp2(polynomial(LOG2_TAIL, size));
        } else {
            constexpr float LOG2_TAIL[] = {-1.0f,           -1.15110791e+0f, -4.59191561e-1f,
                                           -5.25250509e-2f, 7.06510525e-3f,  -9.29134112e-5f,
                                           -2.36535547e-4f, 6.44030879e-5f,  -8.97951122e-6f,
                                           6.81054871e-7f,  -2.21964527e-8f};
            return approximate_exp2(polynomial(LOG2_TAIL, size));
        }
    } else {
        constexpr float LOG2_E = 1.44269504f;
        constexpr float SLOPE = -2.30220819f;  // -2 sqrt(2 / pi) log2(e)
        const float power =
            ACTIVATION == Epilogue::SILU
                ? -LOG2_E * size
                : size * fmaf(size * size, 0.044715f * SLOPE, SLOPE);
        const float e = approximate_exp2(power);
        if constexpr (FOR_16_BITS) {
            // A minimax fit of 1 / (1 + e).
            constexpr float RECIPROCAL[] = {9.99977946e-1f, -9.98898149e-1f, 9.84599829e-1f,
                                            -9.0373975e-1f, 6.74277186e-1f,  -3.31880003e-1f,
                                            7.56740123e-2f};
            return e * polynomial(RECIPROCAL, e);
        } else {
            return e * approximate_reciprocal(1.0f + e);
        }
    }
}

// The activation of a value that becomes an element of type T.
template <Epilogue EPILOGUE, typename T>
__device__ __forceinline__ float activate(float value) {
    constexpr Epilogue ACTIVATION = activation_of(EPILOGUE);
    if constexpr (ACTIVATION == Epilogue::NONE) {
        return value;
    } else if constexpr (ACTIVATION == Epilogue::RELU) {
        return without_negatives(value, 0.0f);
    } else {
        // Beyond 128 all tails are 0, also times an infinity.
        const float size = fminf(fabsf(value), 128.0f);
        return fmaf(-size, tail<ACTIVATION, sizeof(T) == 2>(size), without_negatives(value, -0.0f));
    }
}

// `value` is alpha op(A) op(B) + beta C of an element in `column`; without a bias, `bias` is not
// read and may be null. T is the type of C and the bias.
template <Epilogue EPILOGUE, typename T>
__device__ __forceinline__ float finish(float value, const T* bias, int column) {
    if constexpr (has_bias(EPILOGUE)) value += to_float(bias[column]);
    return activate<EPILOGUE, T>(value);
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
