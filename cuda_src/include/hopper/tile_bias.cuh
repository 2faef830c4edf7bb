// The biases of a warpgroup's tile of C where C passes through shared memory.
//
// A thread needs the biases of two columns in eight, and neighbouring lanes and rows the same. So
// each lane loads two of every 64 columns, before the first is needed, and the lanes exchange them:
// a register for 64 columns, and one shuffle for 4 elements. Of a transposed tile, a thread needs
// those of its rows, which are few, and loads them itself.
#pragma once

#include "common/epilogue.cuh"
#include "hopper/consumer.cuh"

template <class S>
class TileBias {
public:
    // (m, n) is where the tile starts.
    __device__ TileBias(const Arguments<typename S::Result>& args, int m, int n,
                        const Consumer<S>& consumer) {
        if constexpr (USED) {
            const auto bits = [&](int column) {
                return load_invariant<2>(args.bias + min(column, args.n - 1));
            };
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                const int pair = n + 64 * i + 2 * consumer.lane;
                const int low = S::TRANSPOSED ? m + consumer.m(i, 0) : pair;
                const int high = S::TRANSPOSED ? m + consumer.m(i, 1) : pair + 1;
                words[i] = bits(low) | static_cast<unsigned>(bits(high)) << 16;
            }
        }
    }

    // Puts the biases of sums i to i + 3 of instruction `mma` into `bias`. All lanes of a warp call
    // it together.
    __device__ void read(float (&bias)[4], int mma, int i, const Consumer<S>& consumer) const {
        unsigned pair = 0;
        if constexpr (USED && S::TRANSPOSED)
            pair = words[mma];
        else if constexpr (USED)
            pair = __shfl_sync(0xffffffff, words[i / 32], i % 32 + consumer.lane % 4);
        using Added = typename S::Added;
        const float low = low_of<Added>(pair), high = high_of<Added>(pair);
#pragma unroll
        for (int j = 0; j < 4; ++j) bias[j] = (S::TRANSPOSED ? j / 2 : j % 2) ? high : low;
    }

private:
    static constexpr bool USED = has_bias(S::EPILOGUE);
    static constexpr int WORDS = S::TRANSPOSED ? S::MMAS : (S::SUMS + 31) / 32;
    unsigned words[WORDS];
};
