// Three warps of the producer warpgroup of `wgmma` load the scales of blocks of K into the stages
// that they belong to: of each stage one warp. Of a block they are those of the tile's rows of A,
// and then those of its blocks of columns of B. Beyond the edges, where nothing is stored, the last
// ones.
#pragma once

#include "hopper/shape.cuh"

template <class S, class Result>
__device__ void load_scales(const Arguments<Result>& args, const Stages<S>& stages, int warp,
                            int lane) {
    constexpr int WARPS = 3, BLOCKS = S::TILE_K / SCALE_BLOCK;
    constexpr int ROWS = S::TRANSPOSED ? S::TILE_N : S::TILE_M, FEW = S::BLOCK_SCALES - ROWS;
    constexpr int EACH = (ROWS + 31) / 32, APART = S::TRANSPOSED ? 64 : SCALE_BLOCK;
    const Tiles<S> tiles(args);
    const int blocks = (args.k + SCALE_BLOCK - 1) / SCALE_BLOCK;
    const int blocks_n = (args.n + SCALE_BLOCK - 1) / SCALE_BLOCK;
    auto scheduler = tiles.scheduler();
    PipelineState<S::STAGES> at;
    WorkUnit unit;
    int turn = 0;
    while (scheduler.next(unit)) {
        int m, n;
        tiles.locate(unit.tile, m, n);
        const int row = (S::TRANSPOSED ? n : m) + lane;
        const int column = (S::TRANSPOSED ? m : n) + APART * min(lane, FEW - 1);
        const int block_n = min(column / SCALE_BLOCK, blocks_n - 1);
        const float* scale_b =
            args.scale_b + (static_cast<long long>(unit.matrix) * blocks_n + block_n) * blocks;
        for (int step = unit.begin; step < unit.end; ++step, at.next()) {
            const bool own = turn == warp;
            turn = turn == WARPS - 1 ? 0 : turn + 1;
            if (!own) continue;
            float of_rows[BLOCKS][EACH], of_columns[BLOCKS];
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i) {
                const int block = min(step * BLOCKS + i, blocks - 1);
                const float* scale_a =
                    args.scale_a + (static_cast<long long>(unit.matrix) * blocks + block) * args.m;
#pragma unroll
                for (int j = 0; j < EACH; ++j)
                    of_rows[i][j] = __ldg(scale_a + min(row + 32 * j, args.m - 1));
                of_columns[i] = __ldg(scale_b + block);
            }
            barrier_wait(stages.empty(at.stage), at.phase ^ 1);
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i) {
                float* to = stages.scales(at.stage) + i * S::BLOCK_SCALES;
#pragma unroll
                for (int j = 0; j < EACH; ++j)
                    if (ROWS % 32 == 0 || lane + 32 * j < ROWS) to[lane + 32 * j] = of_rows[i][j];
                if (lane < FEW) to[ROWS + lane] = of_columns[i];
            }
            barrier_arrive(stages.full(at.stage));
        }
        if constexpr (!S::PERSISTENT) break;
    }
}
