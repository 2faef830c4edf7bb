// How the K of the tiles of C is shared among blocks, and how partial sums become one.
//
//   Split    block (x, y) has share y of gridDim.y equal shares of tile x; gridDim.y = 1 shares
//            nothing
//   Stream   the steps of the first `streamed` tiles form one line, cut into `workers` equal
//            pieces, one a block; every other block has a whole tile. No SM idles in the last wave:
//
//              tile     |    0    |    1    |    2    |          3 tiles, 2 workers
//              worker   |      0       |      1       |
//
// The share [begin, end) of a tile is in units of BK. A block of a Stream has one for each tile
// that its piece touches, counted by `turn`. Both classes are cheap to make again, which spares the
// registers of a loop in between.
#pragma once

#include "common/tile_order.cuh"
#include "common/vector.cuh"

class Split {
public:
    int begin, end;

    __device__ __forceinline__ Split(int steps, int, int, int turn) {
        const int share = ceil_div(steps, gridDim.y);
        begin = min(steps, static_cast<int>(blockIdx.y) * share);
        end = turn ? begin : min(steps, begin + share);
    }

    __device__ __forceinline__ int tile() const { return blockIdx.x; }
    __device__ __forceinline__ int index() const { return blockIdx.y; }
    __device__ __forceinline__ int count() const { return gridDim.y; }
    // Where the partial sums of share `index` of this tile are kept.
    __device__ __forceinline__ long long slot(int index) const {
        return (static_cast<long long>(blockIdx.z) * gridDim.x + blockIdx.x) * gridDim.y + index;
    }
};

class Stream {
public:
    int begin, end;

    __device__ __forceinline__ Stream(int steps, int streamed, int workers, int turn)
        : steps_(steps), workers_(workers), total_(static_cast<long long>(streamed) * steps) {
        const int block = blockIdx.x;
        if (block >= workers) {
            tile_ = streamed + block - workers;
            begin = 0;
            end = turn ? 0 : steps;
        } else {
            const long long from = start(block), to = start(block + 1);
            tile_ = static_cast<int>(from / steps) + turn;
            const long long line = static_cast<long long>(tile_) * steps;
            begin = static_cast<int>(max(from - line, 0LL));
            end = static_cast<int>(min(to - line, static_cast<long long>(steps)));
        }
    }

    __device__ __forceinline__ int tile() const { return tile_; }
    __device__ __forceinline__ int index() const { return blockIdx.x - worker_of(0); }
    __device__ __forceinline__ int count() const {
        return end - begin == steps_ ? 1 : worker_of(steps_ - 1) - worker_of(0) + 1;
    }
    // A worker leaves two partial tiles at most: the one it begins in, and the one it ends in.
    __device__ __forceinline__ long long slot(int index) const {
        const int worker = worker_of(0);
        const bool ends_here = start(worker) < static_cast<long long>(tile_) * steps_;
        return 2LL * (worker + index) + (index == 0 && ends_here);
    }

private:
    __device__ __forceinline__ long long start(int worker) const {
        return worker * total_ / workers_;
    }
    // The worker that has a step of this tile: the last one to start at or before it.
    __device__ __forceinline__ int worker_of(int step) const {
        const long long at = static_cast<long long>(tile_) * steps_ + step;
        return static_cast<int>(((at + 1) * workers_ - 1) / total_);
    }

    const int steps_, workers_;
    const long long total_;
    int tile_;
};

template <bool STREAM>
struct Shares {
    using Type = Split;
};
template <>
struct Shares<true> {
    using Type = Stream;
};

// Leaves the sums of a thread for others: COUNT floats as pieces of 4, those of neighbouring
// threads side by side.
template <int COUNT, int THREADS>
__device__ __forceinline__ void put_sums(float* place, const float* sums, int thread) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) copy_vector<4>(place + (i * THREADS + 4 * thread), sums + i);
}

// Adds what was left in shared memory.
template <int COUNT, int THREADS>
__device__ __forceinline__ void add_sums(float* sums, const float* place, int thread) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
        alignas(16) float piece[4];
        copy_vector<4>(piece, place + (i * THREADS + 4 * thread));
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i + j] += piece[j];
    }
}

// Adds up what the slices of a block have, in the first one; `shared` is free for it.
template <int COUNT, int THREADS, int SLICES>
__device__ __forceinline__ void add_slices(float* sums, float* shared, int slice, int thread) {
    constexpr int SIZE = COUNT * THREADS;
    __syncthreads();
    if (slice > 0) put_sums<COUNT, THREADS>(shared + (slice - 1) * SIZE, sums, thread);
    __syncthreads();
    if (slice > 0) return;
    for (int other = 0; other < SLICES - 1; ++other)
        add_sums<COUNT, THREADS>(sums, shared + other * SIZE, thread);
}

// Leaves the sums of this block's share of a tile and returns whether they were the last to come,
// so that all of the tile can be read. All threads of the block call it; those that are `active`
// hold COUNT sums each, THREADS of them. `counter` is 0 before the first block of a tile and after
// the last one.
template <int COUNT, int THREADS, class Share>
__device__ __forceinline__ bool completes(const float* sums, const Share& share, float* partials,
                                          int* counter, bool active, int thread) {
    if (active)
        put_sums<COUNT, THREADS>(partials + share.slot(share.index()) * (COUNT * THREADS), sums,
                                 thread);
    __syncthreads();
    bool is_last = false;
    if (threadIdx.x == 0) {
        // A fence of one thread covers what the barrier made it see of the others, both ways.
        __threadfence();
        is_last = atomicAdd(counter, 1) == share.count() - 1;
        if (is_last) *counter = 0;
        __threadfence();
    }
    return __syncthreads_or(is_last);
}

// PIECES times four sums, from `piece` on, over all shares of a tile, added one after the other:
// whichever block comes last, the same inputs give the same bits. The loads of a batch are under
// way together. L1 does not see what other SMs wrote.
template <int PIECES, int COUNT, int THREADS, class Share>
__device__ __forceinline__ void total(float (&sums)[PIECES][4], const Share& share,
                                      const float* partials, int piece, int thread) {
    constexpr int BATCH = 4;
#pragma unroll
    for (int i = 0; i < PIECES * 4; ++i) sums[i / 4][i % 4] = 0.0f;
    for (int first = 0; first < share.count(); first += BATCH) {
        float4 parts[BATCH][PIECES];
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
            const bool valid = first + b < share.count();
            const float* start = partials + share.slot(first + b) * (COUNT * THREADS);
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
                const float* place = start + 4 * ((piece + p) * THREADS + thread);
                parts[b][p] = valid ? __ldcg(reinterpret_cast<const float4*>(place))
                                    : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
        }
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
                sums[p][0] += parts[b][p].x;
                sums[p][1] += parts[b][p].y;
                sums[p][2] += parts[b][p].z;
                sums[p][3] += parts[b][p].w;
            }
        }
    }
}
