// 16 bytes as words: from any address, and split into what tf32 keeps and what it leaves.
#pragma once

struct alignas(16) Words {
    unsigned word[4];
};

// The word that starts `bits`, below 32, into the pair.
__device__ __forceinline__ unsigned shifted(unsigned low, unsigned high, int bits) {
#if defined(AUTOTUNE_HOST)
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> bits);
#else
    return __funnelshift_r(low, high, bits);
#endif
}

// The 16 bytes that start `skip` bytes into the pair: a multiple of BYTES below 16.
template <int BYTES>
__device__ __forceinline__ Words middle(const Words& low, const Words& high, int skip) {
    unsigned word[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) word[i] = i < 4 ? low.word[i] : high.word[i - 4];
    // Steps with constant indices keep the words in registers.
#pragma unroll
    for (int i = 0; i < 6; ++i) word[i] = skip & 8 ? word[i + 2] : word[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) word[i] = skip & 4 ? word[i + 1] : word[i];
    if constexpr (BYTES < 4)
#pragma unroll
        for (int i = 0; i < 4; ++i) word[i] = shifted(word[i], word[i + 1], skip % 4 * 8);
    return {{word[0], word[1], word[2], word[3]}};
}

// What tf32, of which the tensor cores read the first 19 bits, leaves of a float, rounded to tf32:
// both together are within 2^-22 of it. 0 for an infinity, NaN for NaN.
__device__ __forceinline__ unsigned tf32_rest(unsigned bits) {
    constexpr unsigned KEPT = 0xffffe000, HALF = 0x1000, INFINITE = 0x7f800000;
    const unsigned size = bits & 0x7fffffff;
    if (size >= INFINITE) return size > INFINITE ? bits | 0x00400000 : 0;
#if defined(AUTOTUNE_HOST)
    const unsigned kept = bits & KEPT;
    float rest, high;
    std::memcpy(&rest, &bits, 4);
    std::memcpy(&high, &kept, 4);
    rest -= high;
    std::memcpy(&bits, &rest, 4);
#else
    bits = __float_as_uint(__uint_as_float(bits) - __uint_as_float(bits & KEPT));
#endif
    return (bits + HALF) & KEPT;
}

__device__ __forceinline__ Words tf32_rest(const Words& from) {
    Words rest;
#pragma unroll
    for (int i = 0; i < 4; ++i) rest.word[i] = tf32_rest(from.word[i]);
    return rest;
}
