// Division by a number that the host knows, in three instructions.
#pragma once

// `magic` is ceil(2^(31 + s) / value) + 2^32 s, where s is the least with 2^s >= value. Exact for x
// in 0..2^31 - 1: (x magic) >> (31 + s) exceeds x / value by less than x / 2^31 / value, and
// x / value is no closer than 1 / value to the next integer.
struct Divisor {
    int value;
    long long magic;

    __device__ __forceinline__ int divide(int x) const {
        const auto factor = static_cast<unsigned>(magic);
        return static_cast<int>(__umulhi(2u * static_cast<unsigned>(x), factor) >> (magic >> 32));
    }
};
