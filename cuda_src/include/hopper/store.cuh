// C from the sums of a tile.
//
// A warpgroup's tile of C is stored from registers, or through shared memory in lines of 128 bytes,
// swizzled as the operands are, from where rows go out whole.
#pragma once

#include "common/epilogue.cuh"
#include "hopper/sums.cuh"

// COUNT neighbours in a row of C, from `column` on, as far as there are columns. READS: beta is not
// 0; code for both at every element would take longer to fetch than to run.
template <class S, bool READS, int COUNT, class Result>
__device__ __forceinline__ void store_run(const Arguments<Result>& given, long long matrix, int row,
                                          int column, const float* sums) {
    constexpr int VECTOR = S::VC < COUNT ? S::VC : COUNT;
    if (row >= given.m) return;
    Result* c = given.c + matrix * given.stride_c + row * given.ldc + column;
#pragma unroll
    for (int i = 0; i < COUNT; i += VECTOR)
        if (column + i < given.n)
            update<VECTOR, S::EPILOGUE>(c + i, sums + i, given.alpha, READS ? given.beta : 0.0f,
                                        given.bias, column + i);
}

// C straight from registers; (x, y) is where the warpgroup's tile starts.
template <class S, bool READS, class Result>
__device__ void store_directly(const float (&d)[S::BLOCKS][S::SUMS], int x, int y, int matrix,
                               const Arguments<Result>& given, const Member<S>& me) {
#pragma unroll
    for (int i = 0; i < S::SUMS; i += 4) {
        if constexpr (S::SWAPPED && S::NEIGHBOURS) {
            alignas(16) float run[2 * S::BLOCKS];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
#pragma unroll
                for (int j = 0; j < 2 * S::BLOCKS; ++j) run[j] = d[j / 2][i + 2 * (j % 2) + e];
                store_run<S, READS, 2 * S::BLOCKS>(given, matrix, y + me.y(i + e), x + me.x(0, 0),
                                                   run);
            }
        } else {
#pragma unroll
            for (int j = 0; j < 2 * S::BLOCKS; ++j) {
                const float* pair = &d[j / 2][i + 2 * (j % 2)];
                const int at_x = x + me.x(j / 2, j % 2), at_y = y + me.y(i);
                if constexpr (S::SWAPPED) {
                    store_run<S, READS, 1>(given, matrix, at_y, at_x, pair);
                    store_run<S, READS, 1>(given, matrix, at_y + 1, at_x, pair + 1);
                } else {
                    store_run<S, READS, 2>(given, matrix, at_x, at_y, pair);
                }
            }
        }
    }
}

// An element of C before it is rounded; beyond the edges, where nothing is read, any number.
template <class S, bool READS, class Result>
__device__ __forceinline__ float finished(float sum, int row, int column, int matrix,
                                          const Arguments<Result>& given) {
    float value = given.alpha * sum;
    if constexpr (READS) {
        if (row < given.m && column < given.n) {
            const Result* c = given.c + matrix * given.stride_c + row * given.ldc + column;
            value = fmaf(given.alpha, sum, given.beta * to_float(*c));
        }
    }
    return finish<S::EPILOGUE>(value, given.bias, min(column, given.n - 1));
}

// A part of a warpgroup's tile, rounded, into shared memory; 8 x 8 elements at a time.
template <class S, bool READS, class Result>
__device__ __forceinline__ void stage_part(const float (&d)[S::BLOCKS][S::SUMS], int part,
                                           char* staged, int x, int y, int matrix,
                                           const Arguments<Result>& given, const Member<S>& me) {
    const int block = part / S::PARTS_OF_BLOCK, first = part % S::PARTS_OF_BLOCK * S::PART_SUMS;
#pragma unroll
    for (int i = first; i < first + S::PART_SUMS && i < S::SUMS; i += 4) {
        unsigned pairs[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float value[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int at_x = x + me.x(block, half), at_y = y + me.y(i + e);
                value[e] = finished<S, READS>(d[block][i + 2 * half + e], S::SWAPPED ? at_y : at_x,
                                              S::SWAPPED ? at_x : at_y, matrix, given);
            }
            pairs[half] = pack_pair<Result>(value[0], value[1]);
        }
        // The row of an 8 x 8 matrix that this lane addresses, and where the matrix starts.
        const int along_x = 16 * me.warp + me.lane / 8 % 2 * 8, along_y = 2 * (i - first);
        const int row = (S::SWAPPED ? along_y : along_x) + me.lane % 8;
        const int column = S::SWAPPED ? along_x : along_y;
        char* place = staged + swizzled(row, column * static_cast<int>(sizeof(Result)));
        if constexpr (S::SWAPPED)
            stmatrix_x2_trans(place, pairs[0], pairs[1]);
        else
            stmatrix_x2(place, pairs[0], pairs[1]);
    }
}

// Neighbouring threads store neighbouring vectors of a part.
template <class S, class Result>
__device__ __forceinline__ void store_part(const char* staged, int row, int column, int columns,
                                           int matrix, const Arguments<Result>& given, int thread) {
    constexpr int VECTORS = S::PER_LINE / S::VC;
    using Vector = typename Bytes<S::VC * sizeof(Result)>::Type;
#pragma unroll 4
    for (int i = thread; i < S::PART_ROWS * VECTORS; i += WARPGROUP) {
        const int r = i / VECTORS, c = i % VECTORS * S::VC;
        if (row + r >= given.m || c >= columns || column + c >= given.n) continue;
        const char* from = staged + swizzled(r, c * static_cast<int>(sizeof(Result)));
        Result* to = given.c + matrix * given.stride_c + (row + r) * given.ldc + column + c;
        *reinterpret_cast<Vector*>(to) = *reinterpret_cast<const Vector*>(from);
    }
}

// C through shared memory, a part after the other in two buffers.
template <class S, bool READS, class Result>
__device__ void store_through(const float (&d)[S::BLOCKS][S::SUMS], char* buffers, int x, int y,
                              int matrix, const Arguments<Result>& given, const TensorMap* map,
                              const Member<S>& me) {
#pragma unroll
    for (int part = 0; part < S::PARTS; ++part) {
        char* staged = buffers + part % S::BUFFERS * S::PART_BYTES;
        if constexpr (S::TMA_STORE) {
            // An odd number of parts leaves the last one of the tile before in the first buffer.
            if (me.thread == 0) {
                if (part == 0 && S::PARTS % S::BUFFERS != 0)
                    tma_store_wait<0>();
                else
                    tma_store_wait<S::BUFFERS - 1>();
            }
        }
        me.sync_group();
        stage_part<S, READS>(d, part, staged, x, y, matrix, given, me);
        const int along_x = x + part / S::PARTS_OF_BLOCK * 64;
        const int first_y = part % S::PARTS_OF_BLOCK * S::PART_SUMS * 2;
        const int row = S::SWAPPED ? y : along_x, column = S::SWAPPED ? along_x : y + first_y;
        if constexpr (S::TMA_STORE) fence_async_shared();
        me.sync_group();
        if constexpr (S::TMA_STORE) {
            if (me.thread == 0) {
                tma_store(map, staged, column, row, matrix);
                tma_store_commit();
            }
        } else {
            const int columns = S::SWAPPED ? 64 : min(S::PER_LINE, S::BY - first_y);
            store_part<S>(staged, row, column, columns, matrix, given, me.thread);
        }
    }
}

template <class S, bool READS, class Result>
__device__ void store(const float (&d)[S::BLOCKS][S::SUMS], char* buffers, int x, int y, int matrix,
                      const Arguments<Result>& given, const TensorMap* map, const Member<S>& me) {
    if constexpr (S::STAGED)
        store_through<S, READS>(d, buffers, x, y, matrix, given, map, me);
    else
        store_directly<S, READS>(d, x, y, matrix, given, me);
}

// What remains to be done with the sums of part `part` of `parts` of a unit's tile.
template <class S, class Result>
__device__ void finish_part(float (&d)[S::BLOCKS][S::SUMS], const Unit& unit, int part, int parts,
                            const Walk<S::STREAM>& walk, int tiles, int x, int y, char* buffers,
                            int* flags, const Arguments<Result>& given, const TensorMap* map) {
    const Member<S> me;
    if constexpr (S::SHARED_K) {
        int* flag = flags + (S::PINGPONG ? me.group : 0);
        if (unit.shares > 1 && !combined<S>(d, unit, part, parts, walk, tiles, given, me, flag))
            return;
    }
    buffers += me.group * S::STAGED_BYTES;
    x += me.row();
    y += part * S::BY;
    if (given.beta == 0.0f)
        store<S, false>(d, buffers, x, y, unit.matrix, given, map, me);
    else
        store<S, true>(d, buffers, x, y, unit.matrix, given, map, me);
}
