// The epilogue of `simt`: adds up what slices and blocks have of a tile, and stores it.
#pragma once

#include "k_sharing/last_block.cuh"
#include "simt/shape.cuh"

// The LN lanes of a row hold 4 neighbours each. Where C allows vectors of VC < 4 only, they
// exchange their values so that lanes with neighbouring columns store them at the same time:
//
//      lane        0  1   2  3   4  5   6  7      VC = 1, LN = 8: columns that lanes store at once,
//      first       0  4   1  5   2  6   3  7      instead of 0, 4, 8 ... of which each is in a
//      second      8 12   9 13  10 14  11 15      16-byte piece of its own
template <int LN, int VC>
struct RowExchange {
    static_assert((LN == 4 || LN == 8) && (VC == 1 || VC == 2), "lanes of a row, vectors of C");

    // A bit of the value's number trades places with a bit of the lane's, for each bit.
    static __device__ __forceinline__ void exchange(float (&values)[4], const float* from) {
#pragma unroll
        for (int v = 0; v < 4; ++v) values[v] = from[v];
        swap_bit<2>(values, LN / 2);
        if constexpr (VC == 1) swap_bit<1>(values, LN / 4);
    }

    // Column of value `v` after the exchange, from the first of the lane's own four on.
    static __device__ __forceinline__ int column(int lane, int v) {
        constexpr int HIGH = LN / 2, LOW = LN / 4;
        int within = lane;
        if constexpr (VC == 2)
            within = 2 * ((lane & (HIGH - 1)) * 2 + lane / HIGH);
        else
            within = (lane & (LOW - 1)) * 4 + lane / HIGH * 2 + lane / LOW % 2;
        return v / VC * LN * VC + within - 4 * lane;
    }

private:
    template <int STEP>
    static __device__ __forceinline__ void swap_bit(float (&values)[4], int lanes) {
        // Neighbouring columns are two lanes apart (simt/fragments.cuh).
        const bool upper = threadIdx.x / 2 & lanes;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
            if (v & STEP) continue;
            const float sent = upper ? values[v] : values[v + STEP];
            const float received = __shfl_xor_sync(~0u, sent, 2 * lanes);
            (upper ? values[v] : values[v + STEP]) = received;
        }
    }
};

// Stores a thread's sums: into C, or, where another launch adds up, into the block's partial C,
// whose rows are a multiple of 4 long.
template <class S>
class Target {
public:
    __device__ __forceinline__ Target(const SimtGemm& call, const Place& at, float* partials)
        : call_(call), at_(at), pitch_(S::SEPARATE ? ceil_div(call.n, 4) * 4LL : call.ldc),
          start_(S::SEPARATE ? partials + plane() * call.m * pitch_
                             : call.c + blockIdx.z * call.stride_c) {}

    // Four sums, from (i, j) of the thread's tile on. All lanes of a warp call it together.
    __device__ __forceinline__ void store(int i, int j, const float* piece) const {
        const int row = at_.row + at_.thread_row + i / 4 * 4 * S::LM + i % 4;
        const int column = at_.column + at_.thread_column + j / 4 * 4 * S::LN;
        if constexpr (S::SEPARATE) {
            if (!S::CHECK || (row < call_.m && column < call_.n))
                copy_vector<4>(start_ + row * pitch_ + column, piece);
        } else if constexpr (S::VC == 4) {
            update_at<4>(row, column, piece);
        } else {
            using Exchange = RowExchange<S::LN, S::VC>;
            float values[4];
            Exchange::exchange(values, piece);
            const int lane = threadIdx.x / 2 % S::LN;
#pragma unroll
            for (int v = 0; v < 4; v += S::VC)
                update_at<S::VC>(row, column + Exchange::column(lane, v), values + v);
        }
    }

private:
    template <int VECTOR>
    __device__ __forceinline__ void update_at(int row, int column, const float* values) const {
        if (!S::CHECK || (row < call_.m && column < call_.n))
            update<VECTOR, S::EPILOGUE>(start_ + row * pitch_ + column, values, call_.alpha,
                                        call_.beta, call_.bias, column);
    }

    static __device__ __forceinline__ long long plane() {
        return static_cast<long long>(blockIdx.z) * gridDim.y + blockIdx.y;
    }

    const SimtGemm& call_;
    const Place& at_;
    const long long pitch_;
    float* const start_;
};

// The sums of a block's share of a tile, `part` of the block's parts. `shared` is free for them.
template <class S>
__device__ __forceinline__ void finish_tile(float (&sums)[S::TM][S::TN], const SimtGemm& call,
                                            const SimtSchedule& schedule, float* shared, int part) {
    // Recomputed here to keep positions out of registers during the main loop.
    const typename S::Share share(ceil_div(call.k, S::BK), schedule.streamed, schedule.workers,
                                  kept(part) / S::CHUNKS);
    const int index = kept(threadIdx.x), slice = index / S::THREADS, thread = index % S::THREADS;
    const Place at = place_of<S>(call, schedule.group, thread, share.tile());
    if constexpr (S::SLICES > 1)
        add_slices<S::SUMS, S::THREADS, S::SLICES, 1>(&sums[0][0], shared, slice, thread);
    float* const partials = call.workspace + schedule.start_partials;
    const Target<S> target(call, at, partials);
    if (!S::FUSED || share.count() == 1) {
        if (slice == 0) {
#pragma unroll
            for (int i = 0; i < S::TM; ++i)
#pragma unroll
                for (int j = 0; j < S::TN; j += 4) target.store(i, j, &sums[i][j]);
        }
    } else {
        int* counter = call.counters + blockIdx.z * gridDim.x + share.tile();
        const bool active = slice == 0;
        if (leave_sums<S::SUMS, S::THREADS>(&sums[0][0], share, partials, counter, active,
                                            thread) &&
            active) {
            constexpr int PIECES = 4;
#pragma unroll 1
            for (int piece = 0; piece < S::SUMS / 4; piece += PIECES) {
                alignas(16) float values[PIECES][4];
                add_shares<PIECES, S::SUMS, S::THREADS>(values, share, partials, piece, thread);
#pragma unroll
                for (int p = 0; p < PIECES; ++p)
                    target.store((piece + p) / (S::TN / 4), (piece + p) % (S::TN / 4) * 4,
                                 values[p]);
            }
        }
    }
}
