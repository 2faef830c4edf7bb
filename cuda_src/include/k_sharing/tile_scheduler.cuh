// The work of a block: one unit, or if it is persistent one after the other.
//
// A unit is a share [begin, end), in k-tiles, of the K of a tile of C.
//
//   one unit   block (x, y, z) has share y of tile x of matrix z
//   split-K    every tile has `shares` equal shares; block b has units b, b + blocks, ...
//   stream-K   blocks share the first `streamed` tiles; then come whole tiles, streamed + b,
//              streamed + b + blocks, ...
//
// Blocks are clusters where those work on a tile together. Where they share a share, `parts` of
// them, this one has part `part`.
//
// Constraint: fewer than 2^31 - blocks units.
#pragma once

#include "common/divisor.cuh"
#include "k_sharing/stream_k.cuh"

struct WorkUnit {
    int tile, matrix, begin, end;
    int share, shares;  // this one, and how many there are of the tile
};

// Tiles of C and the k-tiles of each, made once for all blocks by `schedule_struct` in
// autotune/families/wgmma/schedule.py.
struct WgmmaSchedule {
    long long start_partials;                // in the workspace, in floats
    Divisor tiles, shares;                   // of one C; of a tile
    Divisor group_tiles, group, last_group;  // tiles of a group of rows; rows of one, of the last
    int rows, columns;                       // of tiles of one C
    int steps, batch, streamed;
    int part_steps, longer_parts;  // k-tiles of a share's part; the first have one more
};

__device__ __forceinline__ Divisor in_registers(const Divisor& divisor) {
    return {divisor.value, divisor.magic};
}

// Copies member by member, but multiplies again for the tiles of one C and of a group: with the
// products in the struct 9 of 63 programs spilled more than before, instead of one.
__device__ __forceinline__ WgmmaSchedule in_registers(const WgmmaSchedule& schedule) {
    return {schedule.start_partials,
            {schedule.rows * schedule.columns, schedule.tiles.magic},
            in_registers(schedule.shares),
            {schedule.group.value * schedule.columns, schedule.group_tiles.magic},
            in_registers(schedule.group),
            in_registers(schedule.last_group),
            schedule.rows,
            schedule.columns,
            schedule.steps,
            schedule.batch,
            schedule.streamed,
            schedule.part_steps,
            schedule.longer_parts};
}

template <bool PERSISTENT, bool STREAM>
class TileScheduler {
public:
    // With `alpha` = 0 units have no k-tiles.
    __device__ TileScheduler(const WgmmaSchedule& schedule, float alpha, int block, int blocks,
                             int parts, int part)
        : schedule_(schedule),
          alpha_(alpha),
          next_(block),
          blocks_(blocks),
          units_(schedule.tiles.value * schedule.shares.value * schedule.batch),
          parts_(parts),
          part_(part) {}

    __device__ bool next(WorkUnit& unit) {
        unit.shares = schedule_.shares.value;
        if constexpr (!PERSISTENT) {
            unit.tile = next_;
            unit.share = blockIdx.y;
            unit.matrix = blockIdx.z;
        } else {
            if (next_ >= units_) return false;
            const int line = schedule_.tiles.divide(next_);
            unit.tile = next_ - line * schedule_.tiles.value;
            unit.matrix = schedule_.shares.divide(line);
            unit.share = line - unit.matrix * unit.shares;
            next_ += blocks_;
        }
        unit.begin = start(unit.share * parts_ + part_);
        unit.end = start(unit.share * parts_ + part_ + 1);
        if (alpha_ == 0.0f) unit.end = unit.begin;
        return true;
    }

    // Where the partial sums of share `share` of the unit's tile are kept.
    __device__ long long slot(const WorkUnit& unit, int share) const {
        const long long tile = static_cast<long long>(unit.matrix) * schedule_.tiles.value;
        return (tile + unit.tile) * schedule_.shares.value + share;
    }

private:
    __device__ int start(int part) const {
        return part * schedule_.part_steps + min(part, schedule_.longer_parts);
    }

    const WgmmaSchedule& schedule_;
    const float alpha_;
    int next_;
    const int blocks_, units_, parts_, part_;
};

template <>
class TileScheduler<true, true> {
public:
    __device__ TileScheduler(const WgmmaSchedule& schedule, float alpha, int block, int blocks, int, int)
        : schedule_(schedule),
          alpha_(alpha),
          stream_(schedule.steps, schedule.streamed, blocks),
          tiles_(schedule.tiles.value),
          whole_(schedule.streamed + block),
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
            if (alpha_ == 0.0f) unit.end = unit.begin;
            return true;
        }
        if (whole_ >= tiles_) return false;
        unit.tile = whole_;
        unit.begin = unit.share = 0;
        unit.end = alpha_ == 0.0f ? 0 : stream_.steps();
        unit.shares = 1;
        whole_ += stream_.workers();
        return true;
    }

    __device__ long long slot(const WorkUnit& unit, int share) const {
        return stream_.slot(unit.tile, share);
    }

private:
    const WgmmaSchedule& schedule_;
    const float alpha_;
    const StreamK stream_;
    const int tiles_;
    int whole_;
    long long at_;
    const long long end_;
};
