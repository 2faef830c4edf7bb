// What a block that stays on its SM works on, one unit after the other.
//
// A unit is a share [begin, end), in steps of BK, of the K of a tile of C.
//
//   Split    every tile has `shares` equal shares; block b has units b, b + blocks, ... Where the
//            blocks of a cluster have parts of one share, `inner` of them, this is number `part`
//   Stream   the steps of the first `streamed` tiles form one line that is cut into equal
//            pieces, one a block; then come whole tiles, streamed + b, streamed + b + blocks, ...
//
// Constraint: fewer than 2^31 - blocks units.
#pragma once

#include "common/tile_order.cuh"

struct Unit {
    int tile, matrix, begin, end;
    int share, shares;  // this one, and how many there are of the tile
    long long slot;     // where its partial sums are kept
};

template <bool STREAM>
class Walk;

template <>
class Walk<false> {
public:
    // `block` of `blocks`, which are clusters where those work on a tile together.
    __device__ Walk(int block, int blocks, int tiles, int steps, int shares, int, int batch,
                    int inner, int part)
        : next_(block),
          blocks_(blocks),
          tiles_(tiles),
          steps_(steps),
          shares_(shares),
          units_(tiles * shares * batch),
          inner_(inner),
          part_(part) {}

    __device__ bool next(Unit& unit) {
        if (next_ >= units_) return false;
        const int line = next_ < tiles_ ? 0 : next_ / tiles_;
        unit.tile = next_ - line * tiles_;
        // Divisions keep the first copies of a block waiting.
        unit.matrix = shares_ == 1 ? line : line / shares_;
        unit.share = line - unit.matrix * shares_;
        unit.shares = shares_;
        unit.begin = bound(unit.share * inner_ + part_);
        unit.end = bound(unit.share * inner_ + part_ + 1);
        unit.slot = slot(unit, unit.share);
        next_ += blocks_;
        return true;
    }

    // Where share `share` of the unit's tile is kept.
    __device__ long long slot(const Unit& unit, int share) const {
        return (static_cast<long long>(unit.matrix) * tiles_ + unit.tile) * shares_ + share;
    }

private:
    // The first shares have one step more than the last.
    __device__ int bound(int share) const {
        const int all = shares_ * inner_;
        if (all == 1) return share * steps_;
        return share * (steps_ / all) + min(share, steps_ % all);
    }

    int next_;
    const int blocks_, tiles_, steps_, shares_, units_, inner_, part_;
};

template <>
class Walk<true> {
public:
    __device__ Walk(int block, int blocks, int tiles, int steps, int, int streamed, int, int, int)
        : blocks_(blocks),
          tiles_(tiles),
          steps_(steps),
          whole_(streamed + block),
          total_(static_cast<long long>(streamed) * steps),
          at_(start(block)),
          end_(start(block + 1)) {}

    __device__ bool next(Unit& unit) {
        unit.matrix = 0;
        if (at_ < end_) {
            unit.tile = static_cast<int>(at_ / steps_);
            const long long first = static_cast<long long>(unit.tile) * steps_;
            unit.begin = static_cast<int>(at_ - first);
            unit.end = static_cast<int>(min(end_ - first, static_cast<long long>(steps_)));
            at_ = first + unit.end;
            unit.share = owner(first + unit.begin) - owner(first);
            unit.shares = owner(first + steps_ - 1) - owner(first) + 1;
            unit.slot = slot(unit, unit.share);
            return true;
        }
        if (whole_ >= tiles_) return false;
        unit.tile = whole_;
        unit.begin = unit.share = 0;
        unit.end = steps_;
        unit.shares = 1;
        unit.slot = 0;
        whole_ += blocks_;
        return true;
    }

    // A block leaves two partial tiles at most: the one it begins in, and the one it ends in.
    __device__ long long slot(const Unit& unit, int share) const {
        const long long first = static_cast<long long>(unit.tile) * steps_;
        const int block = owner(first) + share;
        return 2LL * block + (start(block) < first);
    }

private:
    __device__ long long start(int block) const { return block * total_ / blocks_; }
    // The block whose piece of the line has step `at`: the last one to start at or before it.
    __device__ int owner(long long at) const {
        return static_cast<int>(((at + 1) * blocks_ - 1) / total_);
    }

    const int blocks_, tiles_, steps_;
    int whole_;
    const long long total_;
    long long at_;
    const long long end_;
};
