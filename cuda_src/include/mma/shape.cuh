// The constants that follow from the parameters of `mma`, and its schedule.
#pragma once

#include "common/call.cuh"
#include "common/epilogue.cuh"
#include "common/result_scale.cuh"
#include "common/scale.cuh"
#include "common/tile_order.cuh"
#include "mma/fragments.cuh"
#include "mma/swizzled_tile.cuh"

template <class Params>
struct Shape : Params {
    using Params::BK, Params::BM, Params::BN, Params::SLICES, Params::WM, Params::WN;

    using TypeA = typename Element<Params::TYPE_A>::Type;
    using TypeB = typename Element<Params::TYPE_B>::Type;
    using Result = typename Element<Params::OUTPUT>::Type;
    static constexpr bool FP8_RESULT = IS_FP8<Result>;
    using Scaling = ScaleOf<Result>;
    using Sum = typename Accumulator<Params::TYPE_A>::Type;
    using Args = Gemm<TypeA, TypeB, Result>;
    static constexpr bool APART = sizeof(TypeA) == 4;
    static constexpr int THREADS = 32 * (BM / WM) * (BN / WN);  // of a slice
    using RowsA = Rows<TypeA, WM, !Params::TRANS_A>;
    using RowsB = Rows<TypeB, WN, Params::TRANS_B>;
    // Blocks of 8 columns of which a thread holds 2 neighbours each.
    static constexpr int NEIGHBOURS = APART ? RowsB::W : Params::INTERLEAVED;

    using TileA = SwizzledTile<TypeA, BM, BK, THREADS * SLICES, Params::VA, !Params::TRANS_A,
                               APART && Params::TRANS_A, Params::ASYNC>;
    using TileB = SwizzledTile<TypeB, BN, BK, THREADS * SLICES, Params::VB, Params::TRANS_B,
                               APART && !Params::TRANS_B, Params::ASYNC, Params::INTERLEAVED>;
    using FragmentsA = Fragments<TypeA, TileA, WM, !Params::TRANS_A, true>;
    using FragmentsB = Fragments<TypeB, TileB, WN, Params::TRANS_B, false>;

    // Products of a warp, and steps of K of a slice.
    static constexpr int ROWS = FragmentsA::BLOCKS, COLUMNS = FragmentsB::BLOCKS;
    static constexpr int STEPS = BK / FragmentsA::STEP / SLICES, SUMS = ROWS * COLUMNS * 4;
    static constexpr int STAGE = TileA::SIZE + TileB::SIZE, AHEAD = Params::STAGES - 1;
    // One set of fragments is loaded while the other is multiplied, unless the registers are needed
    // for a second block.
    static constexpr int SETS = STEPS > 1 && Params::MIN_BLOCKS == 1 ? 2 : 1;

    static_assert(Params::STAGES >= 2 && STEPS >= 1 && (STEPS == 1 || STEPS % 2 == 0),
                  "sets of fragments alternate");
    static_assert(sizeof(TypeA) == sizeof(TypeB), "operands of one size");
    static_assert(sizeof(TypeA) != 1 || (!Params::TRANS_A && Params::TRANS_B),
                  "8-bit operands run along K");
    static_assert(Params::SCALE != Scale::BLOCK ||
                      (Params::PROMOTE == 1 && SCALE_BLOCK % (BK / SLICES) == 0),
                  "sums of one block of K");
    static_assert(!FP8_RESULT || !has_residual(Params::EPILOGUE), "fp8 results have no residual");
    static_assert(Params::OUTPUT != ElementType::S32 || !Params::STAGED, "int32 sums as they are");
};

template <class Params>
using MmaCall = Call<typename Element<Params::TYPE_A>::Type, typename Element<Params::TYPE_B>::Type,
                     typename Element<Params::OUTPUT>::Type>;

// The work of a launch of `mma`, as mma/launches.py in Python makes it: the elements from the
// pointers of A, B and the workspace to what the kernel reads and writes there, and its tiles.
struct MmaSchedule {
    long long start_a;
    long long start_b;
    long long start_partials;
    int group;
};

__device__ __forceinline__ MmaSchedule in_registers(const MmaSchedule& schedule) {
    return {schedule.start_a, schedule.start_b, schedule.start_partials, schedule.group};
}

// Where a warp of a slice works.
template <class S>
__device__ __forceinline__ Place place_of(const typename S::Args& args, int group, int thread) {
    const BlockPosition block =
        grouped(blockIdx.x, ceil_div(args.m, S::BM), ceil_div(args.n, S::BN), group);
    const int warp = thread / 32;
    return {block.row * S::BM, block.column * S::BN, warp % (S::BM / S::WM) * S::WM,
            warp / (S::BM / S::WM) * S::WN};
}
