// Who holds the sums of a tile, and how shares of its K become one: in the shared memory of a
// cluster, through the workspace, or both.
#pragma once

#include "hopper/shape.cuh"

// Barriers of the consumers: one for a team, one for each warpgroup, and one for its turn.
constexpr int TEAM_BARRIER = 1, GROUP_BARRIER = 2, TURN_BARRIER = 5;

// A thread of a consumer: which team it is in, and where its sums lie in the tile of its warpgroup.
template <class S>
struct Member {
    int group, thread, warp, lane;  // warpgroup among the consumers, and within it

    __device__ Member()
        : group(warp_uniform(threadIdx.x / WARPGROUP) - 1),
          thread(threadIdx.x % WARPGROUP),
          warp(thread / 32),
          lane(thread % 32) {}

    __device__ int row() const { return S::PINGPONG ? 0 : group * S::ROWS; }  // in the team's tile
    __device__ int in_team() const { return S::PINGPONG ? thread : group * WARPGROUP + thread; }
    __device__ void sync_team() const {
        named_sync(S::PINGPONG ? GROUP_BARRIER + group : TEAM_BARRIER, S::TEAM * WARPGROUP);
    }
    __device__ void sync_group() const { named_sync(GROUP_BARRIER + group, WARPGROUP); }

    // With PINGPONG the warpgroups multiply by turns, since the parity of a phase does not tell
    // from afar which one it is. A turn begins when the one before has passed it on.
    __device__ void take_turn(int turn) const {
        if (S::PINGPONG && turn > 0) named_sync(TURN_BARRIER + group, 2 * WARPGROUP);
    }
    __device__ void pass_turn() const {
        if (S::PINGPONG) named_arrive(TURN_BARRIER + 1 - group, 2 * WARPGROUP);
    }

    // Sum i of a block: x, of which `half` is i / 2 % 2, and y.
    __device__ int x(int block, int half) const {
        return S::NEIGHBOURS ? 16 * S::BLOCKS * warp + 2 * S::BLOCKS * (lane / 4) + 2 * block + half
                             : 64 * block + 16 * warp + lane / 4 + 8 * half;
    }
    __device__ int y(int i) const { return 8 * (i / 4) + 2 * (lane % 4) + i % 2; }
};

// Adds up, in order, the sums that the blocks of a cluster have of a tile. Block q of them gets
// part q of its y, in `part`; returns whether there is one for this block.
template <class S>
__device__ bool gathered(float (&part)[S::BLOCKS][S::Part::SUMS],
                         const float (&d)[S::BLOCKS][S::SUMS], const Stages<S>& stages,
                         const Member<S>& me) {
    constexpr int SUMS = S::Part::SUMS;
    const int rank = cluster_rank();
    const auto place = [&](int share, int block, int i) {
        constexpr int THREADS = S::TEAM * WARPGROUP;
        return reinterpret_cast<float4*>(stages.first) +
               ((share * S::BLOCKS + block) * SUMS + i) / 4 * THREADS + me.in_team();
    };
    cluster_sync();  // all have read their stages
#pragma unroll
    for (int q = 0; q < S::SUMMERS; ++q) {
#pragma unroll
        for (int i = 0; i < S::BLOCKS * SUMS; i += 4) {
            const float* four = &d[i / SUMS][q * SUMS + i % SUMS];
            cluster_store(place(rank, i / SUMS, i % SUMS), q,
                          make_float4(four[0], four[1], four[2], four[3]));
        }
    }
    cluster_exchange();
    if (rank >= S::SUMMERS) return false;
#pragma unroll
    for (int i = 0; i < S::BLOCKS * SUMS; i += 4) {
        float* four = &part[i / SUMS][i % SUMS];
        four[0] = four[1] = four[2] = four[3] = 0.0f;
#pragma unroll
        for (int share = 0; share < S::CLUSTER_K; ++share) {
            const float4 sums = *place(share, i / SUMS, i % SUMS);
            four[0] += sums.x;
            four[1] += sums.y;
            four[2] += sums.z;
            four[3] += sums.w;
        }
    }
    return true;
}

// Leaves the sums of a unit, of part `part` of `parts` of its tile, and returns whether they were
// the last: then the sums are those of all shares, added in order.
template <class S, class Result>
__device__ bool combined(float (&d)[S::BLOCKS][S::SUMS], const Unit& unit, int part, int parts,
                         const Walk<S::STREAM>& walk, int tiles, const Arguments<Result>& given,
                         const Member<S>& me, int* flag) {
    // Sums i to i + 3 of a block, those of neighbouring threads side by side. L1 does not see what
    // other SMs write.
    const auto place = [&](int share, int block, int i) {
        constexpr int THREADS = S::TEAM * WARPGROUP;
        float* slot = given.partials + (walk.slot(unit, share) * parts + part) * (S::BX * S::BY);
        return reinterpret_cast<float4*>(slot + (block * S::SUMS + i) * THREADS) + me.in_team();
    };
#pragma unroll
    for (int block = 0; block < S::BLOCKS; ++block) {
#pragma unroll
        for (int i = 0; i < S::SUMS; i += 4) {
            const float* four = &d[block][i];
            __stcg(place(unit.share, block, i), make_float4(four[0], four[1], four[2], four[3]));
        }
    }
    me.sync_team();
    if (me.in_team() == 0) {
        int* counter = given.counters + (unit.matrix * tiles + unit.tile) * parts + part;
        __threadfence();
        *flag = atomicAdd(counter, 1) == unit.shares - 1;
        if (*flag) *counter = 0;
        __threadfence();
    }
    me.sync_team();
    if (!*flag) return false;
#pragma unroll
    for (int i = 0; i < S::BLOCKS * S::SUMS; ++i) d[i / S::SUMS][i % S::SUMS] = 0.0f;
    for (int share = 0; share < unit.shares; ++share) {
#pragma unroll
        for (int i = 0; i < S::BLOCKS * S::SUMS; i += 4) {
            const int block = i / S::SUMS, first = i % S::SUMS;
            const float4 part = __ldcg(place(share, block, first));
            d[block][first] += part.x;
            d[block][first + 1] += part.y;
            d[block][first + 2] += part.z;
            d[block][first + 3] += part.w;
        }
    }
    return true;
}
