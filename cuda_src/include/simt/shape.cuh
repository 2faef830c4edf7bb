// The constants that follow from the parameters of `simt`, and its schedule.
#pragma once

#include "common/call.cuh"
#include "common/epilogue.cuh"
#include "k_sharing/block_share.cuh"
#include "k_sharing/reduction.cuh"
#include "simt/fragments.cuh"
#include "simt/operand_tile.cuh"

template <class Params>
struct Shape : Params {
    using Params::BK, Params::BM, Params::BN, Params::SLICES, Params::TM, Params::TN, Params::WM,
        Params::WN;

    static constexpr int THREADS = 32 * (BM / WM) * (BN / WN);  // of a slice
    static constexpr int LM = WM / TM, LN = WN / TN;            // lanes of a warp
    static constexpr int STEPS = BK / SLICES, SUMS = TM * TN;
    static constexpr bool STREAM = Params::REDUCTION == Reduction::STREAM;
    static constexpr bool FUSED = STREAM || Params::REDUCTION == Reduction::FUSED;
    static constexpr bool SEPARATE = Params::REDUCTION == Reduction::SEPARATE;

    using TileA = OperandTile<BM, BK, THREADS * SLICES, Params::VA, !Params::TRANS_A, Params::ASYNC,
                              Params::CHECK>;
    using TileB = OperandTile<BN, BK, THREADS * SLICES, Params::VB, Params::TRANS_B, Params::ASYNC,
                              Params::CHECK>;
    using Share = typename BlockShare<STREAM>::Type;
    // Floats of a stage, and of the sums of finished chunks in front of the stages.
    static constexpr int STAGE = TileA::SIZE + TileB::SIZE;
    static constexpr int WAITING = Params::CHUNKS > 1 ? SLICES * BM * BN : 0;

    static_assert(Params::STAGES >= 2 && (Params::ASYNC || Params::STAGES == 2),
                  "registers stage one tile ahead");
    static_assert(STEPS % Params::FRAGMENTS == 0, "sets of fragments alternate");
};

// The work of a launch of `simt`, as simt/launches.py in Python makes it: the elements from the
// pointers of A, B and the workspace to what the kernel reads and writes there, and its tiles.
struct SimtSchedule {
    long long start_a;
    long long start_b;
    long long start_partials;
    int group;
    int streamed;
    int workers;
};

using SimtGemm = Gemm<float, float, float>;

// Where a thread of a slice works, for a tile of C.
template <class S>
__device__ __forceinline__ Place place_of(const SimtGemm& call, int group, int thread, int tile) {
    const BlockPosition block =
        grouped(tile, ceil_div(call.m, S::BM), ceil_div(call.n, S::BN), group);
    const Lane<S::LM, S::LN> lane(thread % 32);
    const int warp = thread / 32;
    return {block.row * S::BM, block.column * S::BN, warp % (S::BM / S::WM) * S::WM + lane.row * 4,
            warp / (S::BM / S::WM) * S::WN + lane.column * 4};
}
