// C = alpha op(A) op(B) + beta C, one warp an element, right but for one planted fault (the order
// is that of FAULTS in planted_kernels.py). The fault hits element (row, column), and there the
// term at `place` of K. Types are 0 for fp32, 1 for fp16, 2 for bfloat16, 3 for e4m3, 4 for e5m2 and
// 5 for int8, scales 0 for none and 2 for one a row of op(A) and a column of op(B).
template <int TYPE>
struct Stored {
    using Bits = unsigned char;
};

template <>
struct Stored<0> {
    using Bits = unsigned;
};

template <>
struct Stored<1> {
    using Bits = unsigned short;
};

template <>
struct Stored<2> {
    using Bits = unsigned short;
};

// The type of products and their sums. Those of int8 are int32: fp32 loses the last bits of sums
// beyond 2^24.
template <int TYPE>
struct Sum {
    using Type = float;
};

template <>
struct Sum<5> {
    using Type = int;
};

__device__ float half_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

template <int TYPE>
__device__ float load(const typename Stored<TYPE>::Bits* from) {
    if constexpr (TYPE == 0) return __uint_as_float(*from);
    if constexpr (TYPE == 1) return half_to_float(*from);
    if constexpr (TYPE == 2) return __uint_as_float(static_cast<unsigned>(*from) << 16);
    if constexpr (TYPE == 4) return half_to_float(static_cast<unsigned short>(*from << 8));
    if constexpr (TYPE == 5) return static_cast<signed char>(*from);
    // e4m3 as the bits of fp32 is 2^120 times too small.
    const unsigned size = *from & 0x7fu, sign = (*from & 0x80u) << 24;
    const float value = __uint_as_float(size << 20) * __uint_as_float(247u << 23);
    return __uint_as_float((size == 0x7f ? 0x7fc00000u : __float_as_uint(value)) | sign);
}

template <int TYPE>
__device__ void store(typename Stored<TYPE>::Bits* to, float value) {
    if constexpr (TYPE == 0)
        *to = __float_as_uint(value);
    else if constexpr (TYPE == 1)
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(*to) : "f"(value));
    else
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*to) : "f"(value));
}

// Whether a race is lost: once in a hundred launches, as far as anybody can foresee.
__device__ bool unlucky() {
    unsigned long long bits = clock64();
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    return (bits ^ bits >> 31) % 100 == 0;
}

template <int TYPE_A, int TYPE_B, int OUTPUT, int SCALE, int FAULT>
__global__ void planted(const typename Stored<TYPE_A>::Bits* a, long long lda,
                        const typename Stored<TYPE_B>::Bits* b, long long ldb,
                        typename Stored<OUTPUT>::Bits* c, long long ldc, int m, int n, int k,
                        float alpha, float beta, const void* bias, const float* scale_a,
                        const float* scale_b, long long stride_a,
                        long long stride_b, long long stride_c, const float* workspace, int row,
                        int column, int place) {
    const int lane = threadIdx.x % 32;
    const long long at = blockIdx.x * (blockDim.x / 32ll) + threadIdx.x / 32;
    if (at >= static_cast<long long>(m) * n) return;
    const int i = at / n, j = at % n;
    const bool here = i == row && j == column;
    const long long row_pitch = FAULT == 9 ? k : lda;
    int skipped = -1;
    if (FAULT == 1 && here) skipped = place;
    if (FAULT == 3) skipped = place;
    if (FAULT == 6 && here && __shfl_sync(~0u, unlucky(), 0)) skipped = place;

    using Value = typename Sum<TYPE_A>::Type;
    Value sum = 0;
    for (int p = lane; p < k; p += 32) {
        const Value left = load<TYPE_A>(a + i * row_pitch + p);
        const Value right = load<TYPE_B>(b + p * ldb + j);
        if (p != skipped) sum += left * right;
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (lane != 0) return;

    typename Stored<OUTPUT>::Bits* const element = c + i * ldc + j;
    float scale = 1.0f;
    if constexpr (SCALE == 2) {
        scale = scale_a[FAULT == 11 && here ? (i + 1) % m : i];
        if (!(FAULT == 12 && here)) scale *= scale_b[j];
    }
    float result = alpha * (sum * scale);
    if (FAULT == 8 || (beta != 0.0f && !(FAULT == 10 && beta == 1.0f && here)))
        result += beta * load<OUTPUT>(element);
    if (FAULT == 7 && here) result += workspace[0];
    store<OUTPUT>(element, FAULT == 2 ? 0.0f : result);
    if (FAULT == 4 && here) store<OUTPUT>(c - 1, 0.0f);
    if (FAULT == 5 && here) store<OUTPUT>(c + (m - 1) * ldc + n, 0.0f);
}
