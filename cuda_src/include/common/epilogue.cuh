// The epilogue of a GEMM: C = act(alpha sums + beta C + bias), or with a residual, a matrix like C,
// C = alpha sums + beta C + bias + residual. SWIGLU makes one element of two sums, those of a gate
// and of a column beside it, C = silu(gate) up, so that C has half the columns of the product: of
// each 16 columns of op(B) the first 8 are gates, the others what these are for.
//
// All activations take few instructions, because nothing hides them all: on an H200 a bf16 C of 8.4
// million elements takes about 0.5 us longer for each (5 for SiLU, 7 for GELU's tanh form, 9 for
// GELU; ReLU is part of the rounding to 16 bits).
//
// GELU is x P(x), P the normal distribution function, and is computed as max(x, 0) - |x| P(-|x|),
// where nothing cancels: the tail P(-|x|) is at most 1/2, and its error counts |x| P(-|x|) times,
// 0.17 at most. For a C of 16 bits the tail is less accurate, but more so than rounding C; see
// `log2_gelu_tail`. NaN stays NaN. Infinity stays so. At -infinity GELU is 0, its limit; its tanh
// form and SiLU are NaN there, as PyTorch's.
#pragma once

#include "common/number.cuh"

// A bias for each column, an activation or a residual, or both; as `EPILOGUES` in
// autotune/problem/fields.py. A test compares them. Even numbers have no bias, and the next number
// adds one.
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
    BIAS_SILU,
    RESIDUAL,
    BIAS_RESIDUAL,
    SWIGLU
};

__device__ constexpr bool has_bias(Epilogue epilogue) {
    return static_cast<int>(epilogue) % 2 != 0;
}

// The epilogue without its bias.
__device__ constexpr Epilogue activation_of(Epilogue epilogue) {
    return static_cast<Epilogue>(static_cast<int>(epilogue) / 2 * 2);
}

__device__ constexpr bool has_residual(Epilogue epilogue) {
    return activation_of(epilogue) == Epilogue::RESIDUAL;
}

// Whether two columns of the product make one of C.
__device__ constexpr bool is_gated(Epilogue epilogue) { return epilogue == Epilogue::SWIGLU; }

// Columns of a gated product from a gate to what it is for.
constexpr int GATE_SPAN = 8;

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

// log2 P(-size) of the normal distribution function for sizes up to 13, nearly a parabola. Minimax
// fits that weigh the error of size P(-size): it is at most
//
//     fp32     5e-9, and 1e-6 of its size for sizes up to 5.5
//     fp16     3e-7, and 3e-5 for sizes up to 5
//     bf16     5e-6, and 3e-4 for sizes up to 4.5
//
// beside rounding. Beyond, the tail keeps falling, to less than 1e-30.
template <typename T>
__device__ __forceinline__ float log2_gelu_tail(float size);

template <>
__device__ __forceinline__ float log2_gelu_tail<float>(float size) {
    constexpr float FIT[] = {-1.0f,           -1.15110826e+0f, -4.59188849e-1f, -5.25325164e-2f,
                             7.07487529e-3f,  -1.00035621e-4f, -2.33425279e-4f, 6.35701435e-5f,
                             -8.84548081e-6f, 6.69161409e-7f,  -2.17492282e-8f};
    return polynomial(FIT, size);
}

template <>
__device__ __forceinline__ float log2_gelu_tail<Half>(float size) {
    constexpr float FIT[] = {-1.0f,          -1.15111697e+0f, -4.59000885e-1f, -5.31738624e-2f,
                             7.97517132e-3f, -7.50863983e-4f, 3.23295753e-5f};
    return polynomial(FIT, size);
}

template <>
__device__ __forceinline__ float log2_gelu_tail<BFloat>(float size) {
    constexpr float FIT[] = {-1.0f,           -1.15040195e+0f, -4.61612016e-1f,
                             -4.99913245e-2f, 6.30777236e-3f,  -3.65296262e-4f};
    return polynomial(FIT, size);
}

template <typename T>
__device__ __forceinline__ float gelu(float x) {
    // Beyond 13 the tail is as good as 0, also times an infinity.
    const float size = fminf(fabsf(x), 13.0f);
    return fmaf(-size, approximate_exp2(log2_gelu_tail<T>(size)), without_negatives(x, -0.0f));
}

// x / (1 + 2^power)
__device__ __forceinline__ float logistic_part(float x, float power) {
    return x * approximate_reciprocal(1.0f + approximate_exp2(power));
}

__device__ __forceinline__ float gelu_tanh(float x) {
    constexpr float FACTOR = -2.30220819f;  // -2 sqrt(2 / pi) log2(e)
    return logistic_part(x, x * fmaf(x * x, 0.044715f * FACTOR, FACTOR));
}

__device__ __forceinline__ float silu(float x) { return logistic_part(x, -1.44269504f * x); }

__device__ __forceinline__ float swiglu(float gate, float up) { return silu(gate) * up; }

// The activation of a value that becomes an element of type T.
template <Epilogue EPILOGUE, typename T>
__device__ __forceinline__ float activate(float value) {
    constexpr Epilogue ACTIVATION = activation_of(EPILOGUE);
    if constexpr (ACTIVATION == Epilogue::RELU)
        return without_negatives(value, 0.0f);
    else if constexpr (ACTIVATION == Epilogue::GELU)
        return gelu<T>(value);
    else if constexpr (ACTIVATION == Epilogue::GELU_TANH)
        return gelu_tanh(value);
    else if constexpr (ACTIVATION == Epilogue::SILU)
        return silu(value);
    else
        return value;
}

// `value` is alpha op(A) op(B) + beta C of an element in `column`; without a bias, `bias` is not
// read and may be null. T is the type of C and the bias.
template <Epilogue EPILOGUE, typename T>
__device__ __forceinline__ float finish(float value, const T* bias, int column) {
    if constexpr (has_bias(EPILOGUE)) {
        const auto bits = load_invariant<sizeof(T)>(bias + column);
        value += to_float(reinterpret_cast<const T&>(bits));
    }
    return activate<EPILOGUE, T>(value);
}

// VECTOR elements of C from their sums, from `column` on, before they are rounded. C and the
// residual are aligned to VECTOR elements, which are 16 bytes at most. beta = 0 never reads C;
// without a residual, `residual` is not read and may be null.
template <int VECTOR, Epilogue EPILOGUE, typename T>
__device__ __forceinline__ void finish_vector(float* values, const T* c, const float* sums,
                                              float alpha, float beta, const T* bias, int column,
                                              const T* residual = nullptr) {
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
    if constexpr (has_residual(EPILOGUE)) {
        alignas(16) const auto words = load_invariant<VECTOR * sizeof(T)>(residual);
        alignas(16) float added[VECTOR];
        load_numbers<VECTOR>(added, reinterpret_cast<const T*>(&words));
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) values[i] += added[i];
    }
}

// The same, rounded once to C's type and stored.
template <int VECTOR, Epilogue EPILOGUE, typename T>
__device__ __forceinline__ void update(T* c, const float* sums, float alpha, float beta,
                                       const T* bias, int column, const T* residual = nullptr) {
    alignas(16) float values[VECTOR];
    finish_vector<VECTOR, EPILOGUE>(values, c, sums, alpha, beta, bias, column, residual);
    store_numbers<VECTOR>(c, values);
}
