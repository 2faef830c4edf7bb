// Stream-K: the steps of several tiles form one line, which is cut into equal pieces, one a worker.
// No SM idles in the last wave:
//
//      tile     |    0    |    1    |    2    |          3 tiles, 2 workers
//      worker   |      0       |      1       |
//
// A worker leaves two partial tiles at most: the one it begins in, and the one it ends in.
#pragma once

class StreamK {
public:
    // `tiles` tiles of `steps` k-tiles each.
    __device__ __forceinline__ StreamK(int steps, int tiles, int workers)
        : steps_(steps), workers_(workers), total_(static_cast<long long>(tiles) * steps) {}

    __device__ __forceinline__ int steps() const { return steps_; }
    __device__ __forceinline__ int workers() const { return workers_; }

    // Where the piece of a worker starts.
    __device__ __forceinline__ long long start(int worker) const {
        return worker * total_ / workers_;
    }
    // Where a tile starts.
    __device__ __forceinline__ long long first(int tile) const {
        return static_cast<long long>(tile) * steps_;
    }
    // The worker whose piece has the step at `place`: the last one to start at or before it.
    __device__ __forceinline__ int owner(long long place) const {
        return static_cast<int>(((place + 1) * workers_ - 1) / total_);
    }
    // How many workers share a tile.
    __device__ __forceinline__ int shares(int tile) const {
        return owner(first(tile) + steps_ - 1) - owner(first(tile)) + 1;
    }
    // Where the partial sums of share `share` of a tile are kept.
    __device__ __forceinline__ long long slot(int tile, int share) const {
        const int worker = owner(first(tile));
        const bool ends_here = start(worker) < first(tile);
        return 2LL * (worker + share) + (share == 0 && ends_here);
    }

private:
    const int steps_, workers_;
    const long long total_;
};
