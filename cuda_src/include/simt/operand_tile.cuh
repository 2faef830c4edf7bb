// Loads tiles of an operand from global to shared memory, BK steps of K at a time.
//
// In shared memory a tile is always K-major, [BK][STRIDE], so that a thread reads the EXTENT
// neighbours it multiplies as float4, whichever way the operand is stored:
//
//   ALONG_K = 0   global rows run along EXTENT (B of nn): vectors are copied as they are
//   ALONG_K = 1   global rows run along K (A of nn): transposed on the way, a float at a time.
//                 A warp takes 8 steps of K (one 32-byte sector) of 4 VECTOR rows; with rows padded
//                 by 4 floats its stores fall into 32 different banks.
//
// ASYNC = 1 copies with cp.async (transposing needs 4-byte copies: VECTOR is then 1 along K);
// ASYNC = 0 goes through registers: `load` fills them, `store` empties them.
// CHECK = 1 puts zeros past the edges; CHECK = 0 is for tiles that all lie inside.
#pragma once

#include "common/async_copy.cuh"
#include "common/place.cuh"
#include "common/vector.cuh"

template <int EXTENT, int BK, int THREADS, int VECTOR, bool ALONG_K, bool ASYNC, bool CHECK>
class OperandTile {
    static_assert(BK % 8 == 0, "a transposing warp takes 8 steps of K");
    static_assert(!(ASYNC && ALONG_K) || VECTOR == 1, "cp.async transposes single floats only");

    static constexpr int K_LANES = 8 / VECTOR;
    // Vectors in one row of threads: all of EXTENT, over 8 steps of K where they run along K.
    static constexpr int ROW = ALONG_K ? EXTENT * K_LANES : EXTENT / VECTOR;
    static constexpr int ROW_STEPS = ALONG_K ? 8 : 1;
    static constexpr int COUNT = BK / ROW_STEPS * ROW;
    static constexpr int PASSES = (COUNT + THREADS - 1) / THREADS;
    static constexpr int PASSES_A_ROW = ROW > THREADS ? ROW / THREADS : 1;
    static constexpr int ROWS_A_PASS = ROW > THREADS ? 1 : THREADS / ROW;
    static_assert(ROW % THREADS == 0 || THREADS % ROW == 0, "passes must cover whole rows");
    static_assert(COUNT < THREADS || COUNT % THREADS == 0, "passes must be full");

public:
    static constexpr int STRIDE = EXTENT + (ALONG_K ? 4 : 0);
    static constexpr int SIZE = BK * STRIDE;

    // `source` is the operand at (first element of the tile's extent, first K of the block),
    // `extent` how many elements of the tile lie inside, `steps` how many of K there are.
    __device__ __forceinline__ OperandTile(const float* source, long long ld, int extent, int steps)
        : source_(source + at(thread_x(), thread_k(), ld)), ld_(ld), extent_(extent - thread_x()),
          steps_(steps), place_(kept(thread_k() * STRIDE + thread_x())) {}

    // Starts to load the next tile into `tile`; does nothing past the end of K.
    __device__ __forceinline__ void load(float* tile) {
        if (steps_ > 0 && (COUNT >= THREADS || threadIdx.x < COUNT)) {
            float* target = tile + place_;
#pragma unroll
            for (int pass = 0; pass < PASSES; ++pass) {
                const int x = pass_x(pass), k = pass_k(pass);
                const bool valid = !CHECK || (x < extent_ && k + thread_k() < steps_);
                const float* from = source_ + at(x, k, ld_);
                if constexpr (ASYNC) {
                    copy_async<4 * VECTOR>(target + k * STRIDE + x, from, valid);
                } else if (valid) {
                    copy_vector<VECTOR>(staged_ + pass * VECTOR, from);
                } else {
#pragma unroll
                    for (int i = 0; i < VECTOR; ++i) staged_[pass * VECTOR + i] = 0.0f;
                }
            }
        }
        source_ += at(0, BK, ld_);
        steps_ -= BK;
    }

    // Stores what `load` left in registers in `tile`.
    __device__ __forceinline__ void store(float* tile) {
        if (!ASYNC && (COUNT >= THREADS || threadIdx.x < COUNT)) {
            float* target = tile + place_;
#pragma unroll
            for (int pass = 0; pass < PASSES; ++pass) {
                float* to = target + pass_k(pass) * STRIDE + pass_x(pass);
                if constexpr (ALONG_K) {
#pragma unroll
                    for (int i = 0; i < VECTOR; ++i) to[i * STRIDE] = staged_[pass * VECTOR + i];
                } else {
                    copy_vector<VECTOR>(to, staged_ + pass * VECTOR);
                }
            }
        }
    }

private:
    static __device__ __forceinline__ long long at(int x, int k, long long ld) {
        return ALONG_K ? x * ld + k : k * ld + x;
    }

    // The thread's place in the first pass, and how far later passes are from it.
    static __device__ __forceinline__ int thread_x() {
        const int place = threadIdx.x % ROW;
        return ALONG_K ? place / K_LANES : place * VECTOR;
    }
    static __device__ __forceinline__ int thread_k() {
        const int row = threadIdx.x / ROW;
        return ALONG_K ? row * 8 + threadIdx.x % K_LANES * VECTOR : row;
    }
    static constexpr __device__ int pass_x(int pass) {
        return pass % PASSES_A_ROW * (ALONG_K ? THREADS / K_LANES : THREADS * VECTOR);
    }
    static constexpr __device__ int pass_k(int pass) {
        return pass / PASSES_A_ROW * ROWS_A_PASS * ROW_STEPS;
    }

    const float* source_;
    long long ld_;
    int extent_;
    int steps_;
    int place_;
    alignas(16) float staged_[ASYNC ? 1 : PASSES * VECTOR] = {};
};
