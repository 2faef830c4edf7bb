// The epilogue of a consumer of `wgmma`: C from the sums of a tile.
//
// A warpgroup's tile of C is stored from registers, or through shared memory in lines of 128 bytes,
// swizzled as the operands are, from where whole rows are stored. (m, n) is where the warpgroup's
// tile starts in the kernel's product, which is C^T if TRANSPOSED.
#pragma once

#include "common/epilogue.cuh"
#include "common/unaligned.cuh"
#include "hopper/consumer.cuh"
#include "hopper/tile_bias.cuh"
#include "hopper/tile_residual.cuh"

// COUNT neighbours in a row of C, from `column` on, as far as there are columns. READS: beta is not
// 0; code for both at every element would take longer to fetch than to run.
template <class S, bool READS, int COUNT, class Result>
__device__ __forceinline__ void store_run(const Arguments<Result>& args, long long matrix, int row,
                                          int column, const float* sums,
                                          typename S::Scaling& scaling) {
    constexpr int VECTOR = S::VC < COUNT ? S::VC : COUNT;
    if (row >= args.m) return;
    Result* c = args.c + matrix * args.stride_c + row * args.ldc + column;
    const Result* residual = residual_at<S>(args, matrix, row, column);
#pragma unroll
    for (int i = 0; i < COUNT; i += VECTOR)
        if (column + i < args.n) {
            if constexpr (S::FP8_RESULT)
                scaling.template update<VECTOR, S::EPILOGUE>(c + i, sums + i, args.alpha,
                                                             args.bias, column + i);
            else
                update<VECTOR, S::EPILOGUE>(c + i, sums + i, args.alpha, READS ? args.beta : 0.0f,
                                            args.bias, column + i,
                                            has_residual(S::EPILOGUE) ? residual + i : nullptr);
        }
}

// C straight from registers.
template <class S, bool READS, class Result>
__device__ void store_directly(const float (&d)[S::MMAS][S::SUMS], int m, int n, int matrix,
                               const Arguments<Result>& args, const Consumer<S>& consumer) {
    typename S::Scaling scaling(args.scale_c);
#pragma unroll
    for (int i = 0; i < S::SUMS; i += 4) {
        if constexpr (S::TRANSPOSED && S::NEIGHBOURS) {
            alignas(16) float run[2 * S::MMAS];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
#pragma unroll
                for (int j = 0; j < 2 * S::MMAS; ++j) run[j] = d[j / 2][i + 2 * (j % 2) + e];
                store_run<S, READS, 2 * S::MMAS>(args, matrix, n + consumer.n(i + e),
                                                 m + consumer.m(0, 0), run, scaling);
            }
        } else {
#pragma unroll
            for (int j = 0; j < 2 * S::MMAS; ++j) {
                const float* pair = &d[j / 2][i + 2 * (j % 2)];
                const int at_m = m + consumer.m(j / 2, j % 2), at_n = n + consumer.n(i);
                if constexpr (S::TRANSPOSED) {
                    store_run<S, READS, 1>(args, matrix, at_n, at_m, pair, scaling);
                    store_run<S, READS, 1>(args, matrix, at_n + 1, at_m, pair + 1, scaling);
                } else {
                    store_run<S, READS, 2>(args, matrix, at_m, at_n, pair, scaling);
                }
            }
        }
    }
    scaling.raise(args.amax);
}

// An element of C before it is rounded; beyond the edges, where nothing is read, any number.
template <class S, bool READS, class Result>
__device__ __forceinline__ float finished(float sum, int row, int column, int matrix, float bias,
                                          float residual, const Arguments<Result>& args) {
    float value = args.alpha * sum;
    if constexpr (READS) {
        if (row < args.m && column < args.n) {
            const Result* c = args.c + matrix * args.stride_c + row * args.ldc + column;
            value = fmaf(args.alpha, sum, args.beta * to_float(*c));
        }
    }
    if constexpr (has_bias(S::EPILOGUE)) value += bias;
    if constexpr (has_residual(S::EPILOGUE)) value += residual;
    return activate<S::EPILOGUE, typename S::Added>(value);
}

// GROUPS times 8 columns of a strip of an fp8 C from sum `i` on, rounded, into shared memory: of a
// row of C a thread has two neighbours, of a row of C^T one element.
template <class S, int GROUPS, class Result>
__device__ __forceinline__ void stage_scaled(const float (&d)[S::SUMS], int mma, int i, int first,
                                             char* staged, int m, int n, int matrix,
                                             const TileBias<S>& bias, ResultScale& scaling,
                                             const Arguments<Result>& args,
                                             const Consumer<S>& consumer) {
#pragma unroll
    for (int pair = 0; pair < 2 * GROUPS; ++pair) {
        float biases[4];
        bias.read(biases, mma, i + pair / 2 * 4, consumer);
        const int sum = i + 2 * pair, half = pair % 2;
        const int in_m = consumer.m(mma, half), in_n = consumer.n(sum);
        const int along_m = in_m - 64 * mma, along_n = in_n - 2 * first;
        alignas(8) float value[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int row = S::TRANSPOSED ? n + in_n + e : m + in_m;
            const int column = S::TRANSPOSED ? m + in_m : n + in_n + e;
            const float exact = finished<S, false>(d[sum + e], row, column, matrix,
                                                   biases[2 * half + e], 0.0f, args);
            value[e] = scaling.apply(exact, row < args.m && column < args.n);
            if constexpr (S::TRANSPOSED)
                *reinterpret_cast<Result*>(staged + swizzled(along_n + e, along_m)) =
                    from_float<Result>(value[e]);
        }
        if constexpr (!S::TRANSPOSED)
            store_numbers<2>(reinterpret_cast<Result*>(staged + swizzled(along_m, along_n)),
                             value);
    }
}

// GROUPS times 8 columns of a strip from sum `i` on, rounded, into shared memory: matrices of 8 x 8
// elements, of which a warp has two in each 8 columns.
template <class S, bool READS, int GROUPS, class Result>
__device__ __forceinline__ void stage_columns(const float (&d)[S::SUMS], int mma, int i, int first,
                                              char* staged, int m, int n, int matrix,
                                              const TileBias<S>& bias,
                                              const TileResidual<S>& residual,
                                              const Arguments<Result>& args,
                                              const Consumer<S>& consumer) {
    float biases[GROUPS][4], residuals[GROUPS][4];
    unsigned pairs[2 * GROUPS];
#pragma unroll
    for (int group = 0; group < GROUPS; ++group)
        bias.read(biases[group], mma, i + 4 * group, consumer);
#pragma unroll
    for (int group = 0; group < GROUPS; ++group)
        residual.read(residuals[group], mma, i + 4 * group);
#pragma unroll
    for (int pair = 0; pair < 2 * GROUPS; ++pair) {
        const int sum = i + 2 * pair;
        float value[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int at_m = m + consumer.m(mma, pair % 2), at_n = n + consumer.n(sum + e);
            value[e] = finished<S, READS>(d[sum + e], S::TRANSPOSED ? at_n : at_m,
                                          S::TRANSPOSED ? at_m : at_n, matrix,
                                          biases[pair / 2][2 * (pair % 2) + e],
                                          residuals[pair / 2][2 * (pair % 2) + e], args);
        }
        pairs[pair] = pack_pair<Result>(value[0], value[1]);
    }
    // The row of a matrix that this lane addresses, and where the matrix starts.
    const int along_m = 16 * consumer.warp + consumer.lane / 8 % 2 * 8;
    const int along_n = 2 * (i - first) + consumer.lane / 16 * 8;
    const int row = (S::TRANSPOSED ? along_n : along_m) + consumer.lane % 8;
    const int column = S::TRANSPOSED ? along_m : along_n;
    char* place = staged + swizzled(row, column * static_cast<int>(sizeof(Result)));
    stmatrix<2 * GROUPS, S::TRANSPOSED>(place, pairs);
}

// A strip of a warpgroup's tile.
template <class S, bool READS, class Result>
__device__ __forceinline__ void stage_strip(const float (&d)[S::MMAS][S::SUMS], int strip,
                                            char* staged, int m, int n, int matrix,
                                            const TileBias<S>& bias, TileResidual<S>& residual,
                                            typename S::Scaling& scaling,
                                            const Arguments<Result>& args,
                                            const Consumer<S>& consumer) {
    const int mma = strip / S::STRIPS_OF_MMA, first = strip % S::STRIPS_OF_MMA * S::STRIP_SUMS;
    const int end = min(first + S::STRIP_SUMS, S::SUMS);
#pragma unroll
    for (int i = first; i < end; i += 8) {
        if constexpr (S::FP8_RESULT) {
            if (i + 8 <= end)
                stage_scaled<S, 2>(d[mma], mma, i, first, staged, m, n, matrix, bias, scaling,
                                   args, consumer);
            else
                stage_scaled<S, 1>(d[mma], mma, i, first, staged, m, n, matrix, bias, scaling,
                                   args, consumer);
        } else {
            residual.load_next(mma, i);
            if (i + 8 <= end)
                stage_columns<S, READS, 2>(d[mma], mma, i, first, staged, m, n, matrix, bias,
                                           residual, args, consumer);
            else
                stage_columns<S, READS, 1>(d[mma], mma, i, first, staged, m, n, matrix, bias,
                                           residual, args, consumer);
        }
    }
}

// Rows of C that start at any element: of each, 8 threads store the 16-byte pieces of memory that
// lie in it, and one by one the elements before and behind these.
template <class S, class Result>
__device__ __forceinline__ void store_unaligned_strip(const char* staged, int row, int column,
                                                      int columns, int matrix,
                                                      const Arguments<Result>& args, int thread) {
    constexpr int SIZE = sizeof(Result), EACH = PIECE / SIZE, LANES = LINE / PIECE;
    const int count = min(columns, args.n - column), lane = thread % LANES;
    if (count <= 0) return;
    const auto piece = [&](int r, int number) {
        return *reinterpret_cast<const Vector<4>*>(staged + swizzled(r, number * PIECE));
    };
#pragma unroll 1
    for (int r = thread / LANES; r < S::STRIP_ROWS; r += WARPGROUP / LANES) {
        if (row + r >= args.m) break;
        Result* to = args.c + matrix * args.stride_c + (row + r) * args.ldc + column;
        const int past = static_cast<int>(reinterpret_cast<unsigned long long>(to) % PIECE) / SIZE;
        const int head = min((EACH - past) % EACH, count), whole = (count - head) / EACH;
        if (lane < whole) {
            const int at = head + lane * EACH, number = at / EACH;
            *reinterpret_cast<Vector<4>*>(to + at) =
                middle<SIZE>(piece(r, number), piece(r, min(number + 1, LANES - 1)),
                             at % EACH * SIZE);
        }
#pragma unroll 1
        for (int i = lane; i < count - whole * EACH; i += LANES) {
            const int at = i < head ? i : i + whole * EACH;
            to[at] = *reinterpret_cast<const Result*>(staged + swizzled(r, at * SIZE));
        }
    }
}

// Neighbouring threads store neighbouring vectors of a strip.
template <class S, class Result>
__device__ __forceinline__ void store_aligned_strip(const char* staged, int row, int column,
                                                    int columns, int matrix,
                                                    const Arguments<Result>& args, int thread) {
    constexpr int VECTORS = S::PER_LINE / S::VC;
    using Piece = typename Bytes<S::VC * sizeof(Result)>::Type;
#pragma unroll 4
    for (int i = thread; i < S::STRIP_ROWS * VECTORS; i += WARPGROUP) {
        const int r = i / VECTORS, c = i % VECTORS * S::VC;
        if (row + r >= args.m || c >= columns || column + c >= args.n) continue;
        const char* from = staged + swizzled(r, c * static_cast<int>(sizeof(Result)));
        Result* to = args.c + matrix * args.stride_c + (row + r) * args.ldc + column + c;
        *reinterpret_cast<Piece*>(to) = *reinterpret_cast<const Piece*>(from);
    }
}

template <class S, class Result>
__device__ __forceinline__ void store_strip(const char* staged, int row, int column, int columns,
                                            int matrix, const Arguments<Result>& args,
                                            int thread) {
    if constexpr (S::VC * sizeof(Result) <= 4)
        store_unaligned_strip<S>(staged, row, column, columns, matrix, args, thread);
    else
        store_aligned_strip<S>(staged, row, column, columns, matrix, args, thread);
}

// C through shared memory, strip after strip in two buffers.
template <class S, bool READS, class Result>
__device__ void store_through(const float (&d)[S::MMAS][S::SUMS], char* buffers, int m, int n,
                              int matrix, const Arguments<Result>& args, const TensorMap* map,
                              const Consumer<S>& consumer) {
    const TileBias<S> bias(args, m, n, consumer);
    TileResidual<S> residual(args, m, n, matrix, consumer);
    typename S::Scaling scaling(args.scale_c);
#pragma unroll
    for (int strip = 0; strip < S::STRIPS; ++strip) {
        char* staged = buffers + strip % S::BUFFERS * S::STRIP_BYTES;
        if constexpr (S::TMA_STORE) {
            // An odd number of strips leaves the last one of the tile before in the first buffer.
            if (consumer.thread == 0) {
                if (strip == 0 && S::STRIPS % S::BUFFERS != 0)
                    tma_store_wait<0>();
                else
                    tma_store_wait<S::BUFFERS - 1>();
            }
        }
        // The first strips of a block find their buffers empty.
        if (S::PERSISTENT || strip >= S::BUFFERS) consumer.sync_group();
        stage_strip<S, READS>(d, strip, staged, m, n, matrix, bias, residual, scaling, args,
                              consumer);
        const int along_m = m + strip / S::STRIPS_OF_MMA * 64;
        const int first_n = strip % S::STRIPS_OF_MMA * S::STRIP_SUMS * 2;
        const int row = S::TRANSPOSED ? n : along_m;
        const int column = S::TRANSPOSED ? along_m : n + first_n;
        if constexpr (S::TMA_STORE) fence_async_shared();
        consumer.sync_group();
        if constexpr (S::TMA_STORE) {
            if (consumer.thread == 0) {
                tma_store(map, staged, column, row, matrix);
                tma_store_commit();
            }
        } else {
            const int columns = S::TRANSPOSED ? 64 : min(S::PER_LINE, S::TILE_N - first_n);
            store_strip<S>(staged, row, column, columns, matrix, args, consumer.thread);
        }
    }
    scaling.raise(args.amax);
}

template <class S, bool READS, class Result>
__device__ void store_tile(const float (&d)[S::MMAS][S::SUMS], char* buffers, int m, int n,
                           int matrix, const Arguments<Result>& args, const TensorMap* map,
                           const Consumer<S>& consumer) {
    if constexpr (S::STAGED)
        store_through<S, READS>(d, buffers, m, n, matrix, args, map, consumer);
    else
        store_directly<S, READS>(d, m, n, matrix, args, consumer);
}

template <class S, class Result>
__device__ void store(const float (&d)[S::MMAS][S::SUMS], char* buffers, int m, int n, int matrix,
                      const Arguments<Result>& args, const TensorMap* map,
                      const Consumer<S>& consumer) {
    if (S::FP8_RESULT || args.beta == 0.0f)
        store_tile<S, false>(d, buffers, m, n, matrix, args, map, consumer);
    else if constexpr (!S::FP8_RESULT)
        store_tile<S, true>(d, buffers, m, n, matrix, args, map, consumer);
}

// int32 sums as they are.
template <class S>
__device__ void store_sums(const int (&d)[S::MMAS][S::SUMS], int m, int n, int matrix,
                           const Arguments<int>& args, const Consumer<S>& consumer) {
    int* c = args.c + matrix * args.stride_c;
#pragma unroll
    for (int i = 0; i < S::SUMS; i += 2) {
#pragma unroll
        for (int mma = 0; mma < S::MMAS; ++mma) {
            const int at_m = m + consumer.m(mma, i / 2 % 2), at_n = n + consumer.n(i);
            const int row = S::TRANSPOSED ? at_n : at_m, column = S::TRANSPOSED ? at_m : at_n;
            int* to = c + row * args.ldc + column;
            if constexpr (S::TRANSPOSED) {
                if (column >= args.n) continue;
                if (row < args.m) to[0] = d[mma][i];
                if (row + 1 < args.m) to[args.ldc] = d[mma][i + 1];
            } else {
                if (row >= args.m) continue;
                if constexpr (S::VC >= 2) {
                    if (column < args.n)
                        *reinterpret_cast<int2*>(to) = make_int2(d[mma][i], d[mma][i + 1]);
                } else {
                    if (column < args.n) to[0] = d[mma][i];
                    if (column + 1 < args.n) to[1] = d[mma][i + 1];
                }
            }
        }
    }
}
