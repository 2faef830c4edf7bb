// The roles of a block of `wgmma`: bring operands, split them, multiply them.
#pragma once

#include "common/tf32.cuh"
#include "hopper/shape.cuh"

// One thread brings the stages of all units.
template <class S, class Result>
__device__ void produce(const Arguments<Result>& given, const Maps& maps, const Stages<S>& stages) {
    const Tiles<S> tiles(given);
    // Blocks of a cluster are numbered along x first; those along y have P in common.
    const int at_x = tiles.rank() % S::CLUSTER_X;
    const int at_y = tiles.rank() / S::CLUSTER_X % S::CLUSTER_Y;
    constexpr int ALONG_X = (1 << S::CLUSTER_X) - 1;
    constexpr int ALONG_Y = ((1 << S::CLUSTER_X * S::CLUSTER_Y) - 1) / ALONG_X;
    const unsigned short with_p = ALONG_Y << at_x, with_q = ALONG_X << at_y * S::CLUSTER_X;
    auto walk = tiles.walk(given);
    RingPlace<S::STAGES> at;
    Unit unit;
    while (walk.next(unit)) {
        int x, y;
        tiles.locate(unit.tile, x, y);
        const int matrix_p = given.batch_p ? unit.matrix : 0;
        const int matrix_q = given.batch_q ? unit.matrix : 0;
        for (int step = unit.begin; step < unit.end; ++step, at.next()) {
            Barrier* full = stages.full(at.stage);
            barrier_wait(stages.empty(at.stage), at.phase ^ 1);
            barrier_expect(full, S::COPIED_BYTES);
            S::P::template load<S::CLUSTER_Y>(stages.p(at.stage), maps.p, full, x, step * S::BK,
                                              matrix_p, at_y, with_p);
            S::Q::template load<S::CLUSTER_X>(stages.q(at.stage), maps.q, full, y, step * S::BK,
                                              matrix_q, at_x, with_q);
            if constexpr (S::PASS)
                S::Q::template load<S::CLUSTER_X>(stages.low(at.stage), maps.low, full, y,
                                                  step * S::BK, matrix_q, at_x, with_q);
        }
    }
}

// Three warps make the low part of Q: what the tensor cores do not see of fp32.
template <class S, class Result>
__device__ void split(const Arguments<Result>& given, const Stages<S>& stages, int thread) {
    constexpr int PIECES = S::Q::BYTES / PIECE;
    const Tiles<S> tiles(given);
    auto walk = tiles.walk(given);
    RingPlace<S::STAGES> at;
    Unit unit;
    while (walk.next(unit)) {
        for (int step = unit.begin; step < unit.end; ++step, at.next()) {
            barrier_wait(stages.full(at.stage), at.phase);
            const float4* from = reinterpret_cast<const float4*>(stages.q(at.stage));
            float4* to = reinterpret_cast<float4*>(stages.low(at.stage));
#pragma unroll 2
            for (int i = thread; i < PIECES; i += S::SPLITTERS) {
                const float4 q = from[i];
                to[i] = make_float4(tf32_rest(q.x), tf32_rest(q.y), tf32_rest(q.z), tf32_rest(q.w));
            }
            fence_async_shared();
            __syncwarp();
            if (thread % 32 == 0) barrier_arrive(stages.split(at.stage));
        }
    }
}

// A warp has read a stage; every warp of those that have tells all who bring parts of it.
template <class S>
__device__ __forceinline__ void release(const Stages<S>& stages, int stage, bool read = true) {
    Barrier* empty = stages.empty(stage);
    const bool speaks = elected() && read;
    if constexpr (S::NEIGHBOURHOOD > 1) {
        const int rank = cluster_rank(), x = rank % S::CLUSTER_X, y = rank / S::CLUSTER_X;
#pragma unroll
        for (int other = 0; other < S::CLUSTER; ++other)
            if (S::NEIGHBOURHOOD == S::CLUSTER || other % S::CLUSTER_X == x ||
                other / S::CLUSTER_X == y)
                barrier_arrive_at(empty, other, speaks);
    } else {
        barrier_arrive(empty, speaks);
    }
}

// d = P Q^T over `steps` stages of a unit, both from shared memory. A stage is released when the
// multiplications of the next one are under way.
template <class S>
__device__ __forceinline__ void multiply_shared(float (&d)[S::BLOCKS][S::SUMS],
                                                const Stages<S>& stages, RingPlace<S::STAGES>& at,
                                                int steps, int row) {
    int previous = 0;
    for (int i = 0; i < steps; ++i, at.next()) {
        barrier_wait(stages.full(at.stage), at.phase);
        const char *p = stages.p(at.stage), *q = stages.q(at.stage);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < S::STEPS; ++step) {
#pragma unroll
            for (int block = 0; block < S::BLOCKS; ++block)
                wgmma_shared<S::BY, S::KIND, !S::ALONG_K_P, !S::ALONG_K_Q>(
                    d[block], S::P::at(p, row + 64 * block, step), S::Q::at(q, 0, step), i + step);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (i > 0) release(stages, previous);
        previous = at.stage;
    }
    wgmma_wait<0>();
    if (steps > 0) release(stages, previous);
}

// P of one step in registers, as `wgmma_registers` takes it: for three products, in two parts.
template <class S>
struct Fragments {
    unsigned high[S::BLOCKS][4], low[S::PRODUCTS == 3 ? S::BLOCKS : 1][4];

    __device__ __forceinline__ void load(const char* p, int row, int step, int warp, int lane) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // of the step's columns of K
            const int k = step * S::P::STEP + 4 * half + lane % 4;
            if constexpr (S::ALONG_K_P) {
                const char* lines = p + k / S::P::PER_LINE * S::P::BLOCK_BYTES;
#pragma unroll
                for (int i = 0; i < 2 * S::BLOCKS; ++i) {
                    const int line = row + 16 * warp + lane / 4 + i / 2 * 64 + i % 2 * 8;
                    put(i, half, lines + swizzled(line, k % S::P::PER_LINE * 4));
                }
            } else {
                const int first = row + 16 * S::BLOCKS * warp + 2 * S::BLOCKS * (lane / 4);
                const char* lines = p + first / S::P::PER_LINE * S::P::BLOCK_BYTES;
                const char* place = lines + swizzled(k, first % S::P::PER_LINE * 4);
                alignas(16) float x[2 * S::BLOCKS];
                copy_vector<2 * S::BLOCKS>(x, reinterpret_cast<const float*>(place));
#pragma unroll
                for (int i = 0; i < 2 * S::BLOCKS; ++i) put(i, half, x + i);
            }
        }
    }

private:
    // Row i % 2 of the thread's two in block i / 2.
    __device__ __forceinline__ void put(int i, int half, const void* place) {
        const float x = *static_cast<const float*>(place);
        const int block = i / 2, slot = 2 * half + i % 2;
        if constexpr (S::PRODUCTS == 3) {
            high[block][slot] = tf32_nearest(x);
            low[block][slot] = tf32_nearest(x - float_of(high[block][slot]));
        } else {
            high[block][slot] = bits_of(x);  // rounded on the way into shared memory
        }
    }
};

// d += P Q^T of one step; small products first.
template <class S>
__device__ __forceinline__ void multiply_step(float (&d)[S::BLOCKS][S::SUMS], const Fragments<S>& p,
                                              const char* q, const char* q_low, int step, int add) {
    const Descriptor all = S::Q::at(q, 0, step);
#pragma unroll
    for (int block = 0; block < S::BLOCKS; ++block) {
        if constexpr (S::PRODUCTS == 3) {
            wgmma_registers<S::BY>(d[block], p.low[block], all, add);
            wgmma_registers<S::BY>(d[block], p.high[block], S::Q::at(q_low, 0, step), 1);
        }
        wgmma_registers<S::BY>(d[block], p.high[block], all, S::PRODUCTS == 3 ? 1 : add);
    }
}

// d = P Q^T over `steps` stages of a unit, P through registers: those of one step are loaded while
// the AHEAD - 1 steps before are multiplied. Every PROMOTE stages, what the tensor cores have added
// up, which they truncate, moves to sums in fp32.
template <class S>
__device__ __forceinline__ void multiply_registers(float (&d)[S::BLOCKS][S::SUMS],
                                                   const Stages<S>& stages,
                                                   RingPlace<S::STAGES>& at, int steps, int row) {
    // More would make ptxas wait for each multiplication.
    constexpr int AHEAD = S::PRODUCTS == 3 ? 2 : 4;
    static_assert(S::STEPS % AHEAD == 0, "the fragments of a step have their place");
    const int warp = threadIdx.x % WARPGROUP / 32, lane = threadIdx.x % 32;
    float parts[S::BLOCKS][S::SUMS];
    float (&sums)[S::BLOCKS][S::SUMS] = S::PROMOTE > 0 ? parts : d;
    Fragments<S> p[AHEAD];
    int previous = 0, add = 0;
    bool held = false;  // whether `previous` is still to be released
    if constexpr (S::PROMOTE > 0) {
#pragma unroll
        for (int i = 0; i < S::BLOCKS * S::SUMS; ++i) d[i / S::SUMS][i % S::SUMS] = 0.0f;
    }
    for (int i = 0; i < steps; ++i, at.next()) {
        barrier_wait(stages.full(at.stage), at.phase);
        if constexpr (S::SPLITS) barrier_wait(stages.split(at.stage), at.phase);
        const char *q = stages.q(at.stage), *q_low = stages.low(at.stage);
#pragma unroll
        for (int step = 0; step < S::STEPS; ++step) {
            p[step % AHEAD].load(stages.p(at.stage), row, step, warp, lane);
            wgmma_fence();
            multiply_step<S>(sums, p[step % AHEAD], q, q_low, step, add);
            add = 1;
            wgmma_commit();
            wgmma_wait<AHEAD - 1>();
            if (step == AHEAD - 2) release(stages, previous, held);
        }
        previous = at.stage;
        held = true;
        if constexpr (S::PROMOTE > 0) {
            if ((i + 1) % S::PROMOTE == 0 || i + 1 == steps) {
                wgmma_wait<0>();
                release(stages, previous);
                held = false;
                add = 0;
#pragma unroll
                for (int j = 0; j < S::BLOCKS; ++j) {
                    wgmma_hold(parts[j]);
#pragma unroll
                    for (int s = 0; s < S::SUMS; ++s) d[j][s] += parts[j][s];
                }
            }
        }
    }
    wgmma_wait<0>();
    if (held) release(stages, previous);
}
