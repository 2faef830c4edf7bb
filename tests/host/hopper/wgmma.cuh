// The functions of cuda_src/include/hopper/wgmma.cuh on the host.
#pragma once

#include "common/number.cuh"
#include "hopper/barrier.cuh"

using Descriptor = unsigned long long;

inline void wgmma_fence() { host::wgmma_fence(); }

inline void wgmma_commit() { host::wgmma_commit(); }

template <int PENDING>
inline void wgmma_wait(HOST_AT) {
    host::wgmma_wait(PENDING, at);
}

template <int COUNT>
inline void wgmma_hold(float (&)[COUNT]) {}

template <int COUNT>
inline void wgmma_hold(int (&)[COUNT]) {}

template <int N, ElementType TYPE_A, ElementType TYPE_B, bool TRANSPOSED_A, bool TRANSPOSED_B>
inline void wgmma_shared(float (&d)[N / 2], Descriptor a, Descriptor b, int add) {
    static_assert(TYPE_A != ElementType::S8, "int8 has sums in int32");
    host::wgmma(N, static_cast<int>(TYPE_A), static_cast<int>(TYPE_B), d, nullptr, a, b,
                TRANSPOSED_A, TRANSPOSED_B, add != 0);
}

template <int N, ElementType TYPE_A, ElementType TYPE_B, bool TRANSPOSED_A, bool TRANSPOSED_B>
inline void wgmma_shared(int (&d)[N / 2], Descriptor a, Descriptor b, int add) {
    static_assert(TYPE_A == ElementType::S8 && TYPE_B == ElementType::S8, "int8 alone");
    host::wgmma(N, host::S8, host::S8, d, nullptr, a, b, TRANSPOSED_A, TRANSPOSED_B, add != 0);
}

template <int N>
inline void wgmma_registers(float (&d)[N / 2], const unsigned (&a)[4], Descriptor b, int add) {
    host::wgmma(N, host::TF32, host::TF32, d, a, 0, b, false, false, add != 0);
}

template <int COUNT, bool TRANSPOSED>
inline void stmatrix(void* row, const unsigned (&pairs)[COUNT], HOST_AT) {
    unsigned values[COUNT];
    for (int i = 0; i < COUNT; ++i) values[i] = pairs[i];
    host::move_matrices(values, COUNT, TRANSPOSED, false, row, at);
}
