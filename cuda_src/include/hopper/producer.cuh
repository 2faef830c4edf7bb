// The producer warpgroup of `wgmma`: one thread loads the stages, three warps make the low part of
// B.
#pragma once

#include "common/tf32.cuh"
#include "hopper/shape.cuh"

// The bulk copies of a block's k-tiles.
template <class S>
class Copies {
public:
    __device__ Copies(const Maps& maps, const Stages<S>& stages, const ClusterPlace<S>& place)
        : maps_(maps),
          stages_(stages),
          place_(place),
          sharers_a_(ALONG_N << (place.k * S::CLUSTER_TILES + place.m)),
          sharers_b_(ALONG_M << (place.k * S::CLUSTER_TILES + place.n * S::CLUSTER_M)) {}

    __device__ void a(int stage, int m, int step, int matrix) const {
        S::A::template load<S::CLUSTER_N, typename S::EvictA>(
            stages_.a(stage), maps_.a, stages_.full(stage), m, step * S::TILE_K, matrix, place_.n,
            sharers_a_);
    }

    __device__ void b(int stage, int n, int step, int matrix) const {
        copy_b(stages_.b(stage), maps_.b, stage, n, step, matrix);
    }

    __device__ void low(int stage, int n, int step, int matrix) const {
        copy_b(stages_.low(stage), maps_.low, stage, n, step, matrix);
    }

private:
    // The blocks that share A lie along N, those that share B along M.
    static constexpr int ALONG_M = (1 << S::CLUSTER_M) - 1;
    static constexpr int ALONG_N = ((1 << S::CLUSTER_TILES) - 1) / ALONG_M;

    __device__ void copy_b(char* to, const TensorMap* map, int stage, int n, int step,
                           int matrix) const {
        S::B::template load<S::CLUSTER_M, typename S::EvictB>(
            to, map, stages_.full(stage), n, step * S::TILE_K, matrix, place_.m, sharers_b_);
    }

    const Maps& maps_;
    const Stages<S>& stages_;
    const ClusterPlace<S>& place_;
    const unsigned short sharers_a_, sharers_b_;
};

// Loads the operand that does not depend on the primary, the B of the problem, into the first
// stages. The bytes are announced when the other follows. Returns the number of stages.
template <class S, class Result>
__device__ int load_ahead(const Arguments<Result>& args, const Maps& maps,
                          const Stages<S>& stages) {
    const Tiles<S> tiles(args);
    const Copies<S> copies(maps, stages, tiles.place);
    auto scheduler = tiles.scheduler();
    WorkUnit unit;
    if (!scheduler.next(unit)) return 0;
    int m, n;
    tiles.locate(unit.tile, m, n);
    const int count = min(S::STAGES, unit.end - unit.begin);
#pragma unroll 1
    for (int stage = 0; stage < count; ++stage) {
        if constexpr (S::TRANSPOSED)
            copies.a(stage, m, unit.begin + stage, matrix_of_a<S>(args, unit.matrix));
        else
            copies.b(stage, n, unit.begin + stage, matrix_of_b<S>(args, unit.matrix));
    }
    return count;
}

// One thread loads the stages of all units: it waits until a stage is empty and announces the bytes
// that will make it full. The first stages, `ahead` of them, have one operand already.
template <class S, class Result>
__device__ void produce(const Arguments<Result>& args, const Maps& maps, const Stages<S>& stages,
                        int ahead) {
    const Tiles<S> tiles(args);
    const Copies<S> copies(maps, stages, tiles.place);
    auto scheduler = tiles.scheduler();
    PipelineState<S::STAGES> at;
    WorkUnit unit;
    while (scheduler.next(unit)) {
        int m, n;
        tiles.locate(unit.tile, m, n);
        const int matrix_a = matrix_of_a<S>(args, unit.matrix);
        const int matrix_b = matrix_of_b<S>(args, unit.matrix);
#pragma unroll 1
        for (int step = unit.begin; step < unit.end; ++step, at.next()) {
            barrier_wait(stages.empty(at.stage), at.phase ^ 1);
            barrier_expect(stages.full(at.stage), S::COPIED_BYTES);
            const bool loaded = ahead > 0;
            if (!S::TRANSPOSED || !loaded) copies.a(at.stage, m, step, matrix_a);
            if (S::TRANSPOSED || !loaded) copies.b(at.stage, n, step, matrix_b);
            if constexpr (S::LOW_PACKED) copies.low(at.stage, n, step, matrix_b);
            if (loaded) --ahead;
        }
        if constexpr (!S::PERSISTENT) break;
    }
}

// Three warps make the low part of B: what the tensor cores do not read of fp32.
template <class S, class Result>
__device__ void split(const Arguments<Result>& args, const Stages<S>& stages, int thread) {
    constexpr int PIECES = S::B::BYTES / PIECE;
    const Tiles<S> tiles(args);
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
