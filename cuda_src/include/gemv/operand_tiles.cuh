// The operands of a block of `gemv` for a batch of STEPS steps of K: rows of op(A) in shared
// memory, columns of op(B) in registers or shared memory of the one thread that multiplies them.
//
// ALONG_K = 1: B is stored with its rows along K; 0: along N. ASYNC = 1 copies with cp.async, to
// shared memory; ASYNC = 0 through registers, where the columns stay.
#pragma once

#include "common/async_copy.cuh"
#include "gemv/streaming_load.cuh"
#include "common/vector.cuh"

__device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }

// ROWS rows of op(A) over STEPS of K, laid out for vectors of what a thread needs at once: steps of
// a row for ALONG_K = 1, the rows of a step for 0.
template <int ROWS, int STEPS, int THREADS, int VECTOR, bool TRANS_A, bool ALONG_K, bool ASYNC>
class RowTile {
    static_assert(VECTOR == 1 || TRANS_A != ALONG_K, "vectors are not transposed");

    // Four more floats make what a warp writes when it transposes fall into different banks.
    static constexpr int ROW_STRIDE = ALONG_K ? STEPS + 4 : 1;
    static constexpr int STEP_STRIDE = ALONG_K ? 1 : ROWS < 8 ? ROWS : ROWS + 4;
    static constexpr int READ = ALONG_K ? 4 : smaller(ROWS, 4);

    // RUN threads lie along a row of the stored matrix, the next ones along the next of SIDE rows.
    // Where they transpose, a run is the 32 bytes of a sector.
    static constexpr int INNER = (TRANS_A ? ROWS : STEPS) / VECTOR, OUTER = TRANS_A ? STEPS : ROWS;
    static constexpr bool TRANSPOSED = !TRANS_A && !ALONG_K;
    static constexpr int SIDE = TRANSPOSED ? smaller(ROWS, 4) : OUTER;
    static constexpr int RUN = TRANSPOSED ? smaller(STEPS, 32 / SIDE) : INNER;
    static constexpr int COUNT = INNER * OUTER;

public:
    static constexpr int SIZE = ALONG_K ? ROWS * ROW_STRIDE : STEPS * STEP_STRIDE;

    __device__ __forceinline__ RowTile(const float* a, long long lda, int m)
        : source_(a + at(row(threadIdx.x), step(threadIdx.x), lda)), ld_(lda),
          rows_(m - row(threadIdx.x)) {}

    // Loads the next STEPS steps into `tile`; zeros past the first `steps`.
    __device__ __forceinline__ void load(float* tile, int steps) {
        tile += row(threadIdx.x) * ROW_STRIDE + step(threadIdx.x) * STEP_STRIDE;
        steps -= step(threadIdx.x);
        if (COUNT >= THREADS || threadIdx.x < COUNT) {
#pragma unroll
            for (int i = 0; i < COUNT; i += THREADS) {
                const bool valid = row(i) < rows_ && step(i) < steps;
                const float* from = source_ + at(row(i), step(i), ld_);
                float* to = tile + row(i) * ROW_STRIDE + step(i) * STEP_STRIDE;
                if constexpr (ASYNC) {
                    copy_async<4 * VECTOR>(to, from, valid);
                } else {
                    alignas(16) float values[VECTOR] = {};
                    if (valid) load_vector<VECTOR>(values, from);
                    copy_vector<VECTOR>(to, values);
                }
            }
        }
        source_ += at(0, STEPS, ld_);
    }

    // values[row GROUP + i] = the row at step + i, for i below GROUP.
    template <int GROUP>
    static __device__ __forceinline__ void read(float* values, const float* tile, int step) {
        constexpr int WIDTH = ALONG_K ? GROUP : READ;
#pragma unroll
        for (int i = 0; i < ROWS * GROUP / WIDTH; ++i)
            copy_vector<WIDTH>(values + i * WIDTH,
                               tile + i * (ALONG_K ? ROW_STRIDE : WIDTH) + step * STEP_STRIDE);
    }

private:
    static __device__ __forceinline__ long long at(int row, int step, long long ld) {
        return TRANS_A ? step * ld + row : row * ld + step;
    }

    // All extents are powers of two, so that row(i + j) = row(i) + row(j) if i and j share no bit,
    // as a thread's index and a multiple of THREADS do.
    static constexpr __device__ int inner(int i) {
        return (i % RUN + i / (RUN * SIDE) % (INNER / RUN) * RUN) * VECTOR;
    }
    static constexpr __device__ int outer(int i) {
        return i / RUN % SIDE + i / (SIDE * INNER) * SIDE;
    }
    static constexpr __device__ int row(int i) { return TRANS_A ? inner(i) : outer(i); }
    static constexpr __device__ int step(int i) { return TRANS_A ? outer(i) : inner(i); }

    const float* source_;
    const long long ld_;
    const int rows_;
};

// A thread's COLUMNS x DEPTH values of a batch of op(B), in vectors. Past the last column it reads
// that column again, to no effect.
template <int COLUMNS, int DEPTH, int ACROSS, int WAYS, int VECTOR, bool ALONG_K, bool ASYNC>
class ColumnTile {
    // Neighbouring columns of a vector.
    static constexpr int RUN = ALONG_K ? 1 : VECTOR;
    static constexpr int VECTORS = COLUMNS / RUN, THREADS = ACROSS * WAYS;

public:
    // A thread takes GROUP steps of K together, in ROUNDS rounds a batch.
    static constexpr int GROUP = ALONG_K ? VECTOR : 1, ROUNDS = DEPTH / GROUP;
    static constexpr int SIZE = ASYNC ? THREADS * COLUMNS * DEPTH : 0;

    __device__ __forceinline__ ColumnTile(const float* b, long long ldb, long long first, int n)
        : ld_(ldb) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            const long long x = min(first + column(i * RUN), static_cast<long long>(n - RUN));
            source_[i] = b + (ALONG_K ? x * ldb + step(0) : step(0) * ldb + x);
        }
    }

    // The thread's columns within the block, and the first step of K of each round.
    static __device__ __forceinline__ int column(int j) {
        return (j / RUN * ACROSS + threadIdx.x % ACROSS) * RUN + j % RUN;
    }
    static __device__ __forceinline__ int step(int round) {
        return (round * WAYS + threadIdx.x / ACROSS) * GROUP;
    }

    // Loads the next batch, of which the block has `steps` of K, into `stage`; zeros beyond.
    __device__ __forceinline__ void load(float* stage, int steps) {
        const long long stride = ALONG_K ? 1 : ld_;
#pragma unroll
        for (int round = 0; round < ROUNDS; ++round) {
            const bool valid = step(round) < steps;
#pragma unroll
            for (int i = 0; i < VECTORS; ++i) {
                const float* from = source_[i] + round * WAYS * GROUP * stride;
                if constexpr (ASYNC) {
                    copy_async<4 * VECTOR>(stage + place(round, i), from, valid);
                } else {
                    load_streaming<VECTOR>(values_ + (round * VECTORS + i) * VECTOR, from, valid);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) source_[i] += WAYS * DEPTH * stride;
    }

    // values[j GROUP + i] = column j at step(round) + i, for i below GROUP.
    __device__ __forceinline__ void read(float* values, const float* stage, int round) const {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            copy_vector<VECTOR>(values + i * VECTOR,
                                ASYNC ? stage + place(round, i)
                                      : values_ + (round * VECTORS + i) * VECTOR);
    }

private:
    static __device__ __forceinline__ int place(int round, int i) {
        return ((round * VECTORS + i) * THREADS + threadIdx.x) * VECTOR;
    }

    const long long ld_;
    const float* source_[VECTORS];
    alignas(16) float values_[ASYNC ? 1 : COLUMNS * DEPTH];
};
