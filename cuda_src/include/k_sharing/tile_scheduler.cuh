// The work of a persistent block: one unit after the other.
//
// A unit is a share [begin, end), in k-tiles, of the K of a tile of C.
//
//   split-K    every tile has `shares` equal shares; block b has units b, b + blocks, ... Where the
//              blocks of a cluster share a share, `parts` of them, this one has part `part`
//   stream-K   blocks share the first `streamed` tiles; then come whole tiles, streamed + b,
//              streamed + b + blocks, ...
//
// Constraint: fewer than 2^31 - blocks units.
#pragma once

#include "common/tile_order.cuh"
#include "k_sharing/stream_k.cuh"

struct WorkUnit {
    int tile, matrix, begin, end;
    int share, shares;  // this one, and how many there are of the tile
};

template <bool STREAM>
class TileScheduler;

template <>
class TileScheduler<false> {
public:
    // `block` of `blocks`, which are clusters where those work on a tile together.
    __device__ TileScheduler(int block, int blocks, int tiles, int steps, int shares, int,
                             int batch, int parts, int part)
        : next_(block),
          blocks_(blocks),
          tiles_(tiles),
          steps_(steps),
          shares_(shares),
          units_(tiles * shares * batch),
          parts_(parts),
          part_(part) {}

    __device__ bool next(WorkUnit& unit) {
        if (next_ >= units_) return false;
        const int line = next_ < tiles_ ? 0 : next_ / tiles_;
        unit.tile = next_ - line * tiles_;
        // Divisions delay the first copies of a block.
        unit.matrix = shares_ == 1 ? line : line / shares_;
        unit.share = line - unit.matrix * shares_;
        unit.shares = shares_;
        unit.begin = bound(unit.share * parts_ + part_);
        unit.end = bound(unit.share * parts_ + part_ + 1);
        next_ += blocks_;
        return true;
    }

    // Where the partial sums of share `share` of the unit's tile are kept.
    __device__ long long slot(const WorkUnit& unit, int share) const {
        return (static_cast<long long>(unit.matrix) * tiles_ + unit.tile) * shares_ + share;
    }

private:
    // The first shares have one step more than the last.
    __device__ int bound(int share) const {
        const int all = shares_ * parts_;
        if (all == 1) return share * steps_;
        return share * (steps_ / all) + min(share, steps_ % all);
    }

    int next_;
    const int blocks_, tiles_, steps_, shares_, units_, parts_, part_;
};

template <>
class TileScheduler<true> {
public:
    __device__ TileScheduler(int block, int blocks, int tiles, int steps, int, int streamed, int,
                             int, int)
        : stream_(steps, streamed, blocks),
          tiles_(tiles),
          whole_(streamed + block),
          at_(stream_.start(block)),
          end_(stream_.start(block + 1)) {}

    __device__ bool next(WorkUnit& unit) {
        unit.matrix = 0;
        if (at_ < end_) {
            const int steps = stream_.steps();
            unit.tile = static_cast<int>(at_ / steps);
            const long long first = stream_.first(unit.tile);
            unit.begin = static_cast<int>(at_ - first);
            unit.end = static_cast<int>(min(end_ - first, static_cast<long long>(steps)));
            at_ = first + unit.end;
            unit.share = stream_.owner(first + unit.begin) - stream_.owner(first);
            unit.shares = stream_.shares(unit.tile);
            return true;
        }
        if (whole_ >= tiles_) return false;
        unit.tile = whole_;
        unit.begin = unit.share = 0;
        unit.end = stream_.steps();
        unit.shares = 1;
        whole_ += stream_.workers();
        return true;
    }

    __device__ long long slot(const WorkUnit& unit, int share) const {
        return stream_.slot(unit.tile, share);
    }

private:
    const StreamK stream_;
    const int tiles_;
    int whole_;
    long long at_;
    const long long end_;
};
