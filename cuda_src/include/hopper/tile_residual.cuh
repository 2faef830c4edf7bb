// The residual of a warpgroup's tile of C where C passes through shared memory.
//
// A thread loads what it adds to CHUNK sums before it needs them: while it stages one chunk, the
// next is on its way.
#pragma once

#include "common/epilogue.cuh"
#include "hopper/consumer.cuh"

// An element of the residual; null without one.
template <class S, class Result>
__device__ __forceinline__ const Result* residual_at(const Arguments<Result>& args,
                                                     long long matrix, int row, int column) {
    if constexpr (has_residual(S::EPILOGUE))
        return args.residual + matrix * args.stride_r + row * args.ldr + column;
    else
        return nullptr;
}

template <class S>
class TileResidual {
    using Result = typename S::Result;
    static constexpr bool USED = has_residual(S::EPILOGUE);
    static constexpr int CHUNK = 32, CHUNKS_OF_MMA = (S::SUMS + CHUNK - 1) / CHUNK;

public:
    // (m, n) is where the tile starts.
    __device__ TileResidual(const Arguments<Result>& args, int m, int n, int matrix,
                            const Consumer<S>& consumer)
        : args_(args), consumer_(consumer), m_(m), n_(n), matrix_(matrix) {
        if (USED) load(0);
    }

    // Loads the chunk after the one that starts with sum i of instruction `mma`, if one does.
    __device__ void load_next(int mma, int i) {
        if (USED && i % CHUNK == 0) load(mma * CHUNKS_OF_MMA + i / CHUNK + 1);
    }

    // Puts what is added to sums i to i + 3 of instruction `mma` into `values`.
    __device__ void read(float (&values)[4], int mma, int i) const {
        const int chunk = mma * CHUNKS_OF_MMA + i / CHUNK;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned pair = USED ? pairs_[chunk % 2][i % CHUNK / 2 + half] : 0;
            values[2 * half] = low_of<typename S::Added>(pair);
            values[2 * half + 1] = high_of<typename S::Added>(pair);
        }
    }

private:
    __device__ void load(int chunk) {
        if (chunk >= S::MMAS * CHUNKS_OF_MMA) return;
        const int mma = chunk / CHUNKS_OF_MMA, first = chunk % CHUNKS_OF_MMA * CHUNK;
#pragma unroll
        for (int i = 0; i < CHUNK; i += 2) {
            if (first + i >= S::SUMS) break;
            const int at_m = m_ + consumer_.m(mma, i / 2 % 2), at_n = n_ + consumer_.n(first + i);
            unsigned& pair = pairs_[chunk % 2][i / 2];
            if constexpr (S::TRANSPOSED)
                pair = bits(at_n, at_m) | bits(at_n + 1, at_m) << 16;
            else if constexpr (S::VC >= 2)
                pair = inside(at_m, at_n) ? load_invariant<4>(at(at_m, at_n)).word[0] : 0;
            else
                pair = bits(at_m, at_n) | bits(at_m, at_n + 1) << 16;
        }
    }

    __device__ bool inside(int row, int column) const {
        return row < args_.m && column < args_.n;
    }
    __device__ const Result* at(int row, int column) const {
        return residual_at<S>(args_, matrix_, row, column);
    }
    __device__ unsigned bits(int row, int column) const {
        return inside(row, column) ? load_invariant<2>(at(row, column)) : 0;
    }

    const Arguments<Result>& args_;
    const Consumer<S>& consumer_;
    const int m_, n_, matrix_;
    unsigned pairs_[2][CHUNK / 2];
};
