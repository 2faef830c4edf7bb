// The epilogue of `simt`: adds up what slices and blocks have of a tile, and stores it.
#pragma once

#include "k_sharing/last_block.cuh"
#include "simt/shape.cuh"

// Stores a thread's sums: into C, or, where another launch adds up, into the block's partial C,
// whose rows are a multiple of 4 long.
template <class S>
class Target {
public:
    __device__ __forceinline__ Target(const Arguments& args, const Place& at, float* partials)
        : args_(args), at_(at), pitch_(S::SEPARATE ? ceil_div(args.n, 4) * 4LL : args.ldc),
          start_(S::SEPARATE ? partials + plane() * args.m * pitch_
                             : args.c + blockIdx.z * args.stride_c) {}

    // Four sums, from (i, j) of the thread's tile on.
    __device__ __forceinline__ void store(int i, int j, const float* piece) const {
        const int row = at_.row + at_.thread_row + i / 4 * 4 * S::LM + i % 4;
        const int column = at_.column + at_.thread_column + j / 4 * 4 * S::LN;
        if (S::CHECK && row >= args_.m) return;
        if constexpr (S::SEPARATE) {
            if (!S::CHECK || column < args_.n)
                copy_vector<4>(start_ + row * pitch_ + column, piece);
        } else {
#pragma unroll
            for (int v = 0; v < 4; v += S::VC)
                if (!S::CHECK || column + v < args_.n)
                    update<S::VC, S::EPILOGUE>(start_ + row * pitch_ + column + v, piece + v,
                                               args_.alpha, args_.beta, args_.bias, column + v);
        }
    }

private:
    static __device__ __forceinline__ long long plane() {
        return static_cast<long long>(blockIdx.z) * gridDim.y + blockIdx.y;
    }

    const Arguments& args_;
    const Place& at_;
    const long long pitch_;
    float* const start_;
};

// The sums of a block's share of a tile, `part` of the block's parts. `shared` is free for them.
template <class S>
__device__ __forceinline__ void finish_tile(float (&sums)[S::TM][S::TN], const Arguments& args,
                                            float* shared, int part) {
    // Recomputed here to keep positions out of registers during the main loop.
    const typename S::Share share(ceil_div(args.k, S::BK), args.streamed, args.workers,
                                  kept(part) / S::CHUNKS);
    const int index = kept(threadIdx.x), slice = index / S::THREADS, thread = index % S::THREADS;
    const Place at = place_of<S>(args, thread, share.tile());
    if constexpr (S::SLICES > 1)
        add_slices<S::SUMS, S::THREADS, S::SLICES>(&sums[0][0], shared, slice, thread);
    float* const partials = args.workspace + args.start_partials;
    const Target<S> target(args, at, partials);
    if (!S::FUSED || share.count() == 1) {
        if (slice == 0) {
#pragma unroll
            for (int i = 0; i < S::TM; ++i)
#pragma unroll
                for (int j = 0; j < S::TN; j += 4) target.store(i, j, &sums[i][j]);
        }
    } else {
        int* counter = args.counters + blockIdx.z * gridDim.x + share.tile();
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
