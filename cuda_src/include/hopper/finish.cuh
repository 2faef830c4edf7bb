// The end of a unit of work of `wgmma`: its sums are scaled, those of shares added up, and C
// stored.
#pragma once

#include "common/scale.cuh"
#include "hopper/store.cuh"
#include "hopper/store_gated.cuh"

// What a sum becomes in place: fp32, or its bits where the sums are int32.
__device__ __forceinline__ void put_float(float& sum, float value) { sum = value; }
__device__ __forceinline__ void put_float(int& sum, float value) { sum = bits_of(value); }

// A warpgroup's sums in fp32, times the scales of the operands. (m, n) is where its tile starts.
template <class S, class Result>
__device__ __forceinline__ void scale_sums(typename S::Sum (&d)[S::MMAS][S::SUMS], int m, int n,
                                           int matrix, const Arguments<Result>& args,
                                           const Consumer<S>& consumer) {
    constexpr bool ROWS = S::SCALE == Scale::ROW, SCALED = ROWS || S::SCALE == Scale::TENSOR;
    const bool counted = args.alpha != 0.0f;  // else scales may be NaN
    // Of each row and each column of the kernel's product.
    const float* a = args.scale_a + (ROWS ? static_cast<long long>(matrix) * args.m : 0);
    const float* b = args.scale_b + (ROWS ? static_cast<long long>(matrix) * args.n : 0);
    const float* along_m = S::TRANSPOSED ? b : a;
    const float* along_n = S::TRANSPOSED ? a : b;
    const int last_m = (S::TRANSPOSED ? args.n : args.m) - 1;
    const int last_n = (S::TRANSPOSED ? args.m : args.n) - 1;
    float rows[2 * S::MMAS], columns[2] = {1.0f, 1.0f};
#pragma unroll
    for (int i = 0; i < 2 * S::MMAS; ++i)
        rows[i] = SCALED && counted
                      ? __ldg(along_m + (ROWS ? min(m + consumer.m(i / 2, i % 2), last_m) : 0))
                      : 1.0f;
    if constexpr (S::SCALE == Scale::TENSOR)
        columns[0] = columns[1] = counted ? __ldg(along_n) : 1.0f;
    // Each lane loads two of every 64 columns, and the lanes exchange them.
    constexpr int PAIRS = ROWS ? (S::SUMS + 31) / 32 : 0;
    float pairs[PAIRS + 1][2];
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; ++i)
        pairs[i / 2][i % 2] =
            counted ? __ldg(along_n + min(n + 64 * (i / 2) + 2 * consumer.lane + i % 2, last_n))
                    : 1.0f;
#pragma unroll
    for (int i = 0; i < S::SUMS; i += 4) {
        if constexpr (ROWS) {
#pragma unroll
            for (int e = 0; e < 2; ++e)
                columns[e] =
                    __shfl_sync(0xffffffff, pairs[i / 32][e], i % 32 + consumer.lane % 4);
        }
#pragma unroll
        for (int j = 0; j < 4 * S::MMAS; ++j) {
            auto& sum = d[j / 4][i + j % 4];
            const float factor = rows[j / 2] * columns[j % 2];
            put_float(sum, static_cast<float>(sum) * factor);
        }
        // Else the compiler loads and multiplies for the whole tile at once and runs out of
        // registers.
#pragma unroll
        for (int mma = 0; mma < S::MMAS; ++mma)
            wgmma_hold(reinterpret_cast<typename S::Sum (&)[4]>(d[mma][i]));
    }
}

// Adds up the shares of a unit, if there are several, and stores its tile or its part of a tile,
// part `part` of the `parts` that a cluster has. (m, n) is where it starts.
template <class S, class Result>
__device__ void finish_part(typename S::Sum (&d)[S::MMAS][S::SUMS], const WorkUnit& unit, int part,
                            int parts, const typename S::Scheduler& scheduler, int m, int n,
                            char* buffers, int* flags, const Arguments<Result>& args,
                            const TensorMap* map) {
    const Consumer<S> consumer;
    if constexpr (S::SHARED_K) {
        int* flag = flags + (S::PINGPONG ? consumer.group : 0);
        if (unit.shares > 1 &&
            !reduce_shares<S>(d, unit, part, parts, scheduler, args, consumer, flag))
            return;
    }
    buffers += consumer.group * S::STAGED_BYTES;
    m += consumer.row();
    if constexpr (S::OUTPUT == ElementType::S32) {
        store_sums<S>(d, m, n, unit.matrix, args, consumer);
    } else {
        constexpr bool INTEGERS = S::TYPE_A == ElementType::S8;
        if constexpr (INTEGERS || S::SCALE == Scale::TENSOR || S::SCALE == Scale::ROW)
            scale_sums<S>(d, m, n, unit.matrix, args, consumer);
        const auto& sums = reinterpret_cast<const float (&)[S::MMAS][S::SUMS]>(d);
        if constexpr (S::GATED)
            store_gated<S>(sums, buffers, m, n, unit.matrix, args, map, consumer);
        else
            store<S>(sums, buffers, m, n, unit.matrix, args, map, consumer);
    }
}
