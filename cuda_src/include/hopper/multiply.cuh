// The main loop of a consumer of `wgmma`: waits until a stage is full, multiplies it, releases it.
#pragma once

#include "common/tf32.cuh"
#include "hopper/shape.cuh"

// A stage has been read: its readers arrive at `empty` of all blocks that load parts of it. A
// multiplication is over for all warps of a warpgroup at once, so one of them arrives for all.
template <class S>
__device__ __forceinline__ void release(const Stages<S>& stages, int stage, bool read = true) {
    Barrier* empty = stages.empty(stage);
    const int warp = threadIdx.x / 32 % 4;
    // One lane arrives for all that have read scales.
    if constexpr (S::BLOCK_SCALED) __syncwarp();
    const bool arrives = elected() && read;
    if constexpr (S::CLUSTER_TILES > 1) {
        const ClusterPlace<S> place;
#pragma unroll
        for (int tile = 0; tile < S::CLUSTER_TILES; ++tile) {
            const bool shares = S::NEIGHBOURHOOD == S::CLUSTER_TILES ||
                                tile % S::CLUSTER_M == place.m || tile / S::CLUSTER_M == place.n;
            const bool signals = S::READERS == 4 || tile % 4 == warp;
            barrier_arrive_at(empty, place.k * S::CLUSTER_TILES + tile,
                              arrives && shares && signals);
        }
    } else {
        barrier_arrive(empty, arrives && (S::READERS == 4 || warp == 0));
    }
}

// Whether the stage of step `step` of a block's last `steps` will be loaded again. Else nobody
// waits for its release, which could come after the end of another block.
template <class S>
__device__ __forceinline__ bool reloaded(int step, int steps) {
    return S::PERSISTENT || step + S::STAGES < steps;
}

// d = A B^T over `steps` stages of a unit, both from shared memory. A stage is released when the
// multiplications of the next one are in flight.
template <class S>
__device__ __forceinline__ void multiply_shared(typename S::Sum (&d)[S::MMAS][S::SUMS],
                                                const Stages<S>& stages,
                                                PipelineState<S::STAGES>& at, int steps, int row) {
    const Descriptor a = S::A::start(stages.a(0)), b = S::B::start(stages.b(0));
    int previous = 0;
    for (int i = 0; i < steps; ++i, at.next()) {
        barrier_wait(stages.full(at.stage), at.phase);
        const unsigned stage = at.stage * S::STAGE_PIECES;
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < S::STEPS; ++step) {
#pragma unroll
            for (int mma = 0; mma < S::MMAS; ++mma)
                wgmma_shared<S::TILE_N, S::TYPE_A, S::TYPE_B, !S::A_ALONG_K, !S::B_ALONG_K>(
                    d[mma], S::A::at(a, stage, row + 64 * mma, step), S::B::at(b, stage, 0, step),
                    step > 0 || i > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (i > 0) release(stages, previous, reloaded<S>(i - 1, steps));
        previous = at.stage;
    }
    wgmma_wait<0>();
    if (steps > 0) release(stages, previous, reloaded<S>(steps - 1, steps));
}

// A of one step in registers, as `wgmma_registers` takes it: for three products, in two parts.
template <class S>
struct Fragments {
    unsigned high[S::MMAS][4], low[S::PRODUCTS == 3 ? S::MMAS : 1][4];

    __device__ __forceinline__ void load(const char* a, int row, int step, int warp, int lane) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // of the step's columns of K
            const int k = step * S::A::STEP + 4 * half + lane % 4;
            if constexpr (S::A_ALONG_K) {
                const char* lines = a + k / S::A::PER_LINE * S::A::BLOCK_BYTES;
#pragma unroll
                for (int i = 0; i < 2 * S::MMAS; ++i) {
                    const int line = row + 16 * warp + lane / 4 + i / 2 * 64 + i % 2 * 8;
                    put(i, half, lines + swizzled(line, k % S::A::PER_LINE * 4));
                }
            } else {
                const int first = row + 16 * S::MMAS * warp + 2 * S::MMAS * (lane / 4);
                const char* lines = a + first / S::A::PER_LINE * S::A::BLOCK_BYTES;
                const char* place = lines + swizzled(k, first % S::A::PER_LINE * 4);
                alignas(16) float values[2 * S::MMAS];
                copy_vector<2 * S::MMAS>(values, reinterpret_cast<const float*>(place));
#pragma unroll
                for (int i = 0; i < 2 * S::MMAS; ++i) put(i, half, values + i);
            }
        }
    }

private:
    // Row i % 2 of the thread's two in instruction i / 2.
    __device__ __forceinline__ void put(int i, int half, const void* place) {
        const float x = *static_cast<const float*>(place);
        const int mma = i / 2, slot = 2 * half + i % 2;
        if constexpr (S::PRODUCTS == 3) {
            high[mma][slot] = tf32_nearest(x);
            low[mma][slot] = tf32_nearest(x - float_of(high[mma][slot]));
        } else {
            high[mma][slot] = bits_of(x);  // rounded on the way into shared memory
        }
    }
};

// d += A B^T of one step; small products first.
template <class S>
__device__ __forceinline__ void multiply_step(float (&d)[S::MMAS][S::SUMS], const Fragments<S>& a,
                                              Descriptor b, unsigned stage, int step,
                                              int add) {
    const Descriptor high = S::B::at(b, stage, 0, step);
#pragma unroll
    for (int mma = 0; mma < S::MMAS; ++mma) {
        if constexpr (S::PRODUCTS == 3) {
            wgmma_registers<S::TILE_N>(d[mma], a.low[mma], high, add);
            wgmma_registers<S::TILE_N>(d[mma], a.high[mma],
                                       S::B::at(b, stage + S::B::BYTES / PIECE, 0, step), 1);
        }
        wgmma_registers<S::TILE_N>(d[mma], a.high[mma], high, S::PRODUCTS == 3 ? 1 : add);
    }
}

// d = A B^T over `steps` stages of a unit, A through registers: the fragments of one step are
// loaded while the AHEAD - 1 steps before are multiplied. Every PROMOTE stages the sums of the
// tensor cores, which truncate as they add, are promoted: added to sums in fp32.
template <class S>
__device__ __forceinline__ void multiply_registers(float (&d)[S::MMAS][S::SUMS],
                                                   const Stages<S>& stages,
                                                   PipelineState<S::STAGES>& at, int steps,
                                                   int row) {
    // More would make ptxas wait for each multiplication.
    constexpr int AHEAD = S::PRODUCTS == 3 ? 2 : 4;
    static_assert(S::STEPS % AHEAD == 0, "the fragments of a step have their place");
    const int warp = threadIdx.x % WARPGROUP / 32, lane = threadIdx.x % 32;
    float parts[S::MMAS][S::SUMS];
    float (&sums)[S::MMAS][S::SUMS] = S::PROMOTE > 0 ? parts : d;
    Fragments<S> a[AHEAD];
    const Descriptor b = S::B::start(stages.b(0));
    int previous = 0, add = 0;
    bool reading = false;  // whether `previous` is still to be released
    if constexpr (S::PROMOTE > 0) {
#pragma unroll
        for (int i = 0; i < S::MMAS * S::SUMS; ++i) d[i / S::SUMS][i % S::SUMS] = 0.0f;
    }
    for (int i = 0; i < steps; ++i, at.next()) {
        barrier_wait(stages.full(at.stage), at.phase);
        if constexpr (S::SPLITS) barrier_wait(stages.split(at.stage), at.phase);
        const unsigned stage = at.stage * S::STAGE_PIECES;
#pragma unroll
        for (int step = 0; step < S::STEPS; ++step) {
            a[step % AHEAD].load(stages.a(at.stage), row, step, warp, lane);
            wgmma_fence();
            multiply_step<S>(sums, a[step % AHEAD], b, stage, step, add);
            add = 1;
            wgmma_commit();
            wgmma_wait<AHEAD - 1>();
            if (step == AHEAD - 2) release(stages, previous, reading && reloaded<S>(i - 1, steps));
        }
        previous = at.stage;
        reading = true;
        if constexpr (S::PROMOTE > 0) {
            if ((i + 1) % S::PROMOTE == 0 || i + 1 == steps) {
                wgmma_wait<0>();
                release(stages, previous, reloaded<S>(i, steps));
                reading = false;
                add = 0;
#pragma unroll
                for (int j = 0; j < S::MMAS; ++j) {
                    wgmma_hold(parts[j]);
#pragma unroll
                    for (int s = 0; s < S::SUMS; ++s) d[j][s] += parts[j][s];
                }
            }
        }
    }
    wgmma_wait<0>();
    if (reading) release(stages, previous, reloaded<S>(steps - 1, steps));
}
