// Partial sums of the blocks that share a tile become one: each block leaves its sums in the
// workspace, and the last one to arrive adds them up in the order of the shares. Whichever block
// comes last, the same inputs give the same bits. Sums of int8 products are int32 and travel as the
// bits of floats.
//
// A thread's sums are COUNT floats or int32, kept in pieces of 4; those of neighbouring threads lie
// side by side, so that a piece of all THREADS threads is one run of memory. Sums of FFMA that wait
// in shared memory are kept one by one: pieces of 4 would need neighbouring registers, which costs
// the main loop bank conflicts (1034 instead of 178 for 1024 FFMA of 16x8 sums in SASS).
//
// `put_sums` and `add_sums` take the place of a thread's own first piece, so that all pieces lie at
// constant offsets from it. With the thread as part of each offset, NVRTC 12 and 13.0 compute every
// address apart: 128 loads from shared memory then wait for one another.
#pragma once

#include "common/number.cuh"
#include "common/vector.cuh"

__device__ __forceinline__ float4 vector_of(const int* sums) {
    return make_float4(float_of(sums[0]), float_of(sums[1]), float_of(sums[2]), float_of(sums[3]));
}

__device__ __forceinline__ void add_vector(int* sums, float4 values) {
    sums[0] += bits_of(values.x);
    sums[1] += bits_of(values.y);
    sums[2] += bits_of(values.z);
    sums[3] += bits_of(values.w);
}

template <int COUNT, int THREADS, int PIECE = 4>
__device__ __forceinline__ void put_sums(float* own, const float* sums) {
#pragma unroll
    for (int i = 0; i < COUNT; i += PIECE) copy_vector<PIECE>(own + i * THREADS, sums + i);
}

template <int COUNT, int THREADS, int PIECE = 4>
__device__ __forceinline__ void put_sums(float* own, const int* sums) {
    static_assert(PIECE == 4, "int32 in whole pieces");
#pragma unroll
    for (int i = 0; i < COUNT; i += 4)
        *reinterpret_cast<float4*>(own + i * THREADS) = vector_of(sums + i);
}

// Adds sums that lie in shared memory.
template <int COUNT, int THREADS, int PIECE = 4>
__device__ __forceinline__ void add_sums(float* sums, const float* own) {
#pragma unroll
    for (int i = 0; i < COUNT; i += PIECE) {
        alignas(16) float piece[PIECE];
        copy_vector<PIECE>(piece, own + i * THREADS);
#pragma unroll
        for (int j = 0; j < PIECE; ++j) sums[i + j] += piece[j];
    }
}

template <int COUNT, int THREADS, int PIECE = 4>
__device__ __forceinline__ void add_sums(int* sums, const float* own) {
    static_assert(PIECE == 4, "int32 in whole pieces");
#pragma unroll
    for (int i = 0; i < COUNT; i += 4)
        add_vector(sums + i, *reinterpret_cast<const float4*>(own + i * THREADS));
}

// Adds up the sums of a block's slices in the first slice; `shared` is free for it.
template <int COUNT, int THREADS, int SLICES, int PIECE = 4, class Sum>
__device__ __forceinline__ void add_slices(Sum* sums, float* shared, int slice, int thread) {
    constexpr int SIZE = COUNT * THREADS;
    float* const own = shared + PIECE * thread;
    __syncthreads();
    if (slice > 0) put_sums<COUNT, THREADS, PIECE>(own + (slice - 1) * SIZE, sums);
    __syncthreads();
    if (slice > 0) return;
    for (int other = 0; other < SLICES - 1; ++other)
        add_sums<COUNT, THREADS, PIECE>(sums, own + other * SIZE);
}

// One thread of a block counts it among those of its tile, behind a barrier after its stores, and
// gets the number of blocks that came before. The last one then acquires the sums of all: a fence
// of one thread covers what barriers make it see of the others of its block, both ways. A tile's
// counter is 0 before its first block and after the last one.
__device__ __forceinline__ int arrive(int* counters, long long tile = 0) {
    __threadfence();
    return atomicAdd(counters + tile, 1);
}

__device__ __forceinline__ void acquire(int* counter, bool last) {
    if (last) *counter = 0;
    __threadfence();
}

// Leaves the sums of this block's share of a tile; true for the last block of the tile. All threads
// of the block call it; the THREADS that are `active` hold COUNT sums each.
template <int COUNT, int THREADS, class Sum, class Share>
__device__ __forceinline__ bool leave_sums(const Sum* sums, const Share& share, float* partials,
                                           int* counter, bool active, int thread) {
    if (active) {
        float* const place = partials + share.slot(share.index()) * (COUNT * THREADS);
        // Offsets by the thread here: constant ones cost a stream-K loop 64 bank conflicts.
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
            put_sums<4, THREADS>(place + (i * THREADS + 4 * thread), sums + i);
    }
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
        last = arrive(counter) == share.count() - 1;
        acquire(counter, last);
    }
    return __syncthreads_or(last);
}

// PIECES pieces of a thread's sums, from `piece` on, added up over all shares of a tile in their
// order. The loads of a batch of shares are in flight together. L1 does not see what
// other SMs wrote.
template <int PIECES, int COUNT, int THREADS, class Sum, class Share>
__device__ __forceinline__ void add_shares(Sum (&sums)[PIECES][4], const Share& share,
                                           const float* partials, int piece, int thread) {
    constexpr int BATCH = 4;
#pragma unroll
    for (int i = 0; i < PIECES * 4; ++i) sums[i / 4][i % 4] = 0;
    for (int first = 0; first < share.count(); first += BATCH) {
        float4 parts[BATCH][PIECES];
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            const bool valid = first + b < share.count();
            const float* start = partials + share.slot(first + b) * (COUNT * THREADS);
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
                const float* place = start + 4 * ((piece + p) * THREADS + thread);
                parts[b][p] = valid ? __ldcg(reinterpret_cast<const float4*>(place))
                                    : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
        }
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
#pragma unroll
            for (int p = 0; p < PIECES; ++p) add_vector(sums[p], parts[b][p]);
        }
    }
}
