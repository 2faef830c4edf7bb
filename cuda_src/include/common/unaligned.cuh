// 16 bytes from an address that is aligned to elements only, out of the two aligned vectors that
// they lie in.
#pragma once

#include "common/vector.cuh"

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
__device__ __forceinline__ Vector<4> middle(const Vector<4>& low, const Vector<4>& high, int skip) {
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
