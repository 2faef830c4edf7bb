// The producer warpgroup of `wgmma`: one thread loads the stages, three warps make the low part of
// B.
#pragma once

#include "common/tf32.cuh"
#include "hopper/shape.cuh"

// One thread loads the stages of all units: it waits until a stage is empty and announces the bytes
// that will make it full.
template <class S, class Result>
__device__ void produce(const Arguments<Result>& args, const Maps& maps, const Stages<S>& stages) {
    const Tiles<S> tiles(args.schedule);
    const ClusterPlace<S>& place = tiles.place;
    // The blocks that share A lie along N, those that share B along M.
    constexpr int ALONG_M = (1 << S::CLUSTER_M) - 1;
    constexpr int ALONG_N = ((1 << S::CLUSTER_TILES) - 1) / ALONG_M;
    const int first = place.k * S::CLUSTER_TILES;
    const unsigned short sharers_a = ALONG_N << (first + place.m);
    const unsigned short sharers_b = ALONG_M << (first + place.n * S::CLUSTER_M);
    auto scheduler = tiles.scheduler();
    PipelineState<S::STAGES> at;
    WorkUnit unit;
    while (scheduler.next(unit)) {
        int m, n;
        tiles.locate(unit.tile, m, n);
        const int matrix_a = args.batch_a ? unit.matrix : 0;
        const int matrix_b = args.batch_b ? unit.matrix : 0;
#pragma unroll 1
        for (int step = unit.begin; step < unit.end; ++step, at.next()) {
            Barrier* full = stages.full(at.stage);
            barrier_wait(stages.empty(at.stage), at.phase ^ 1);
            barrier_expect(full, S::COPIED_BYTES);
            S::A::template load<S::CLUSTER_N, typename S::EvictA>(
                stages.a(at.stage), maps.a, full, m, step * S::TILE_K, matrix_a, place.n,
                sharers_a);
            S::B::template load<S::CLUSTER_M, typename S::EvictB>(
                stages.b(at.stage), maps.b, full, n, step * S::TILE_K, matrix_b, place.m,
                sharers_b);
            if constexpr (S::LOW_PACKED)
                S::B::template load<S::CLUSTER_M, typename S::EvictB>(
                    stages.low(at.stage), maps.low, full, n, step * S::TILE_K, matrix_b, place.m,
                    sharers_b);
        }
        if constexpr (!S::PERSISTENT) break;
    }
}

// Three warps make the low part of B: what the tensor cores do not read of fp32.
template <class S, class Result>
__device__ void split(const Arguments<Result>& args, const Stages<S>& stages, int thread) {
    constexpr int PIECES = S::B::BYTES / PIECE;
    const Tiles<S> tiles(args.schedule);
    auto scheduler = tiles.scheduler();
    PipelineState<S::STAGES> at;
    WorkUnit unit;
    while (scheduler.next(unit)) {
        for (int step = unit.begin; step < unit.end; ++step, at.next()) {
            barrier_wait(stages.full(at.stage), at.phase);
            const auto* from = reinterpret_cast<const Vector<4>*>(stages.b(at.stage));
            auto* to = reinterpret_cast<Vector<4>*>(stages.low(at.stage));
#pragma unroll 2
            for (int i = thread; i < PIECES; i += S::SPLITTERS) to[i] = tf32_remainder(from[i]);
            fence_async_shared();
            __syncwarp();
            if (thread % 32 == 0) barrier_arrive(stages.split(at.stage));
        }
        if constexpr (!S::PERSISTENT) break;
    }
}
