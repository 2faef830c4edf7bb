// The share of the K of a tile that a block has, where the grid has a block for each share.
//
//   SplitShare    block (x, y) has share y of gridDim.y equal shares of tile x; gridDim.y = 1 is
//                 all of K
//   StreamShare   the first `workers` blocks share `streamed` tiles by stream-K, every other block
//                 has a whole tile
//
// A share is [begin, end) in k-tiles. A worker of stream-K has a share of each tile that its piece
// touches, counted by `nth`. Both classes are cheap to construct again, which keeps their values
// out of registers during the main loop in between.
#pragma once

#include "common/tile_order.cuh"
#include "k_sharing/stream_k.cuh"

class SplitShare {
public:
    int begin, end;

    __device__ __forceinline__ explicit SplitShare(int steps, int = 0, int = 0, int nth = 0) {
        const int share = ceil_div(steps, gridDim.y);
        begin = min(steps, static_cast<int>(blockIdx.y) * share);
        end = nth ? begin : min(steps, begin + share);
    }

    __device__ __forceinline__ int tile() const { return blockIdx.x; }
    __device__ __forceinline__ int index() const { return blockIdx.y; }
    __device__ __forceinline__ int count() const { return gridDim.y; }
    // Where the partial sums of share `index` of this tile are kept.
    __device__ __forceinline__ long long slot(int index) const {
        return (static_cast<long long>(blockIdx.z) * gridDim.x + blockIdx.x) * gridDim.y + index;
    }
};

class StreamShare {
public:
    int begin, end;

    __device__ __forceinline__ StreamShare(int steps, int streamed, int workers, int nth)
        : stream_(steps, streamed, workers) {
        const int block = blockIdx.x;
        if (block >= workers) {
            tile_ = streamed + block - workers;
            begin = 0;
            end = nth ? 0 : steps;
        } else {
            const long long from = stream_.start(block), to = stream_.start(block + 1);
            tile_ = static_cast<int>(from / steps) + nth;
            const long long first = stream_.first(tile_);
            begin = static_cast<int>(max(from - first, 0LL));
            end = static_cast<int>(min(to - first, static_cast<long long>(steps)));
        }
    }

    __device__ __forceinline__ int tile() const { return tile_; }
    __device__ __forceinline__ int index() const {
        return blockIdx.x - stream_.owner(stream_.first(tile_));
    }
    __device__ __forceinline__ int count() const {
        return end - begin == stream_.steps() ? 1 : stream_.shares(tile_);
    }
    __device__ __forceinline__ long long slot(int index) const {
        return stream_.slot(tile_, index);
    }

private:
    const StreamK stream_;
    int tile_;
};

template <bool STREAM>
struct BlockShare {
    using Type = SplitShare;
};
template <>
struct BlockShare<true> {
    using Type = StreamShare;
};
