// SwiGLU: C from the sums of a warpgroup's tile, of which a thread holds the gates and what they
// are for: in neighbouring groups of 8 columns, or, TRANSPOSED, in its two rows of an instruction.
#pragma once

#include "hopper/store.cuh"

// A tile of half the columns, which is stored like any other.
template <class S, class Result>
__device__ void store_gated_columns(const float (&d)[S::MMAS][S::SUMS], char* buffers, int m, int n,
                                    int matrix, const Arguments<Result>& args,
                                    const TensorMap* map) {
    using Gated = typename S::Gated;
    alignas(16) float values[S::MMAS][Gated::SUMS];
#pragma unroll
    for (int mma = 0; mma < S::MMAS; ++mma) {
#pragma unroll
        for (int i = 0; i < Gated::SUMS; ++i) {
            const int gate = i / 4 * 8 + i % 4;
            values[mma][i] = swiglu(d[mma][gate], d[mma][gate + 4]);
        }
    }
    const Consumer<Gated> consumer;
    store_tile<Gated, false>(values, buffers, m, n / 2, matrix, args, map, consumer);
}

// C^T of half the rows: straight from registers, or through shared memory in a line for each row
// of C.
template <class S, class Result>
__device__ void store_gated_rows(const float (&d)[S::MMAS][S::SUMS], char* staged, int m, int n,
                                 int matrix, const Arguments<Result>& args,
                                 const Consumer<S>& consumer) {
    if (S::STAGED && S::PERSISTENT) consumer.sync_group();  // all have stored the tile before
    Result* c = args.c + matrix * args.stride_c;
    typename S::Scaling scaling(args.scale_c);
#pragma unroll
    for (int i = 0; i < S::MMAS * S::SUMS; i += 4) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int mma = i / S::SUMS, sum = i % S::SUMS + e;
            const int row = consumer.n(sum);
            const int column = consumer.m(mma, 0) / 16 * 8 + consumer.lane / 4;
            float exact = swiglu(d[mma][sum], d[mma][sum + 2]);
            if constexpr (S::FP8_RESULT)
                exact = scaling.apply(exact, n + row < args.m && m / 2 + column < args.n);
            const Result value = from_float<Result>(exact);
            if constexpr (S::STAGED) {
                char* place = staged + swizzled(row, column * static_cast<int>(sizeof(Result)));
                *reinterpret_cast<Result*>(place) = value;
            } else if (n + row < args.m && m / 2 + column < args.n) {
                c[(n + row) * args.ldc + m / 2 + column] = value;
            }
        }
    }
    if constexpr (S::STAGED) {
        consumer.sync_group();
        store_strip<S>(staged, n, m / 2, S::GATED_ROWS, matrix, args, consumer.thread);
    }
    scaling.raise(args.amax);
}

// Stores silu(gate) up. (m, n) is where the tile starts in the kernel's product.
template <class S, class Result>
__device__ void store_gated(const float (&d)[S::MMAS][S::SUMS], char* buffers, int m, int n,
                            int matrix, Arguments<Result> args, const TensorMap* map,
                            const Consumer<S>& consumer) {
    args.n /= 2;  // from here on, that of C
    if constexpr (S::TRANSPOSED)
        store_gated_rows<S>(d, buffers, m, n, matrix, args, consumer);
    else
        store_gated_columns<S>(d, buffers, m, n, matrix, args, map);
}
