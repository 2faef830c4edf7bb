// A consumer thread of `wgmma`: where its sums lie, and how the shares of a tile's K become one: in
// the shared memory of a cluster, through the workspace, or both.
#pragma once

#include "hopper/shape.cuh"
#include "k_sharing/last_block.cuh"

// Named barriers: one at the start, and of the consumers one for a team, one for each warpgroup,
// and one for the order of the warpgroups.
constexpr int START_BARRIER = 0, TEAM_BARRIER = 1, GROUP_BARRIER = 2, ORDER_BARRIER = 5;

template <class S>
struct Consumer {
    int group, thread, warp, lane;  // warpgroup among the consumers, and within it

    __device__ Consumer()
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

    // With PINGPONG the warpgroups multiply one after the other, since the parity of a phase does
    // not tell a distant one. `unit` counts the units of the block.
    __device__ void wait_order(int unit) const {
        if (S::PINGPONG && unit > 0) named_sync(ORDER_BARRIER + group, 2 * WARPGROUP);
    }
    __device__ void arrive_order() const {
        if (S::PINGPONG) named_arrive(ORDER_BARRIER + 1 - group, 2 * WARPGROUP);
    }

    // Where sum i of instruction `mma` is in the warpgroup's tile: its row, with i / 2 % 2 as
    // `half`, and its column.
    __device__ int m(int mma, int half) const {
        return S::NEIGHBOURS ? 16 * S::MMAS * warp + 2 * S::MMAS * (lane / 4) + 2 * mma + half
                             : 64 * mma + 16 * warp + lane / 4 + 8 * half;
    }
    __device__ int n(int i) const { return 8 * (i / 4) + 2 * (lane % 4) + i % 2; }
};

// Adds up, in order, the sums that the blocks of a cluster have of a tile. The block of share q
// gets columns q of the tile, in `part`; false if there are none for this block.
template <class S>
__device__ bool reduce_cluster(typename S::Sum (&part)[S::MMAS][S::Part::SUMS],
                               const typename S::Sum (&d)[S::MMAS][S::SUMS],
                               const Stages<S>& stages,
                               const ClusterPlace<S>& cluster, const Consumer<S>& consumer) {
    constexpr int SUMS = S::Part::SUMS;
    const auto place = [&](int share, int mma, int i) {
        constexpr int THREADS = S::TEAM * WARPGROUP;
        return reinterpret_cast<float4*>(stages.first) +
               ((share * S::MMAS + mma) * SUMS + i) / 4 * THREADS + consumer.in_team();
    };
    cluster_sync();  // all have read their stages
#pragma unroll
    for (int q = 0; q < S::REDUCERS; ++q) {
#pragma unroll
        for (int i = 0; i < S::MMAS * SUMS; i += 4)
            cluster_store(place(cluster.k, i / SUMS, i % SUMS), cluster.sharer(q),
                          vector_of(&d[i / SUMS][q * SUMS + i % SUMS]));
    }
    cluster_exchange();
    if (cluster.k >= S::REDUCERS) return false;
#pragma unroll
    for (int i = 0; i < S::MMAS * SUMS; i += 4) {
        typename S::Sum* sums = &part[i / SUMS][i % SUMS];
        sums[0] = sums[1] = sums[2] = sums[3] = 0;
#pragma unroll
        for (int share = 0; share < S::CLUSTER_K; ++share)
            add_vector(sums, *place(share, i / SUMS, i % SUMS));
    }
    return true;
}

// Leaves the sums of a unit in the workspace, of part `part` of the `parts` that a cluster's tile
// has; true for the last block of the part, whose sums then are those of all shares, added in
// order.
template <class S, class Result>
__device__ bool reduce_shares(typename S::Sum (&d)[S::MMAS][S::SUMS], const WorkUnit& unit,
                              int part, int parts, const typename S::Scheduler& scheduler,
                              const Arguments<Result>& args, const Consumer<S>& consumer,
                              int* flag) {
    // Sums i to i + 3 of an instruction, those of neighbouring threads side by side. L1 does not
    // see what other SMs write.
    const auto place = [&](int share, int mma, int i) {
        constexpr int THREADS = S::TEAM * WARPGROUP;
        float* slot = args.workspace + args.schedule.start_partials +
                      (scheduler.slot(unit, share) * parts + part) * (S::TILE_M * S::TILE_N);
        return reinterpret_cast<float4*>(slot + (mma * S::SUMS + i) * THREADS) +
               consumer.in_team();
    };
#pragma unroll
    for (int mma = 0; mma < S::MMAS; ++mma) {
#pragma unroll
        for (int i = 0; i < S::SUMS; i += 4)
            __stcg(place(unit.share, mma, i), vector_of(&d[mma][i]));
    }
    consumer.sync_team();
    if (consumer.in_team() == 0) {
        const int tile = unit.matrix * args.schedule.tiles.value + unit.tile;
        int* counter = args.counters + tile * parts + part;
        *flag = arrive(counter) == unit.shares - 1;
        acquire(counter, *flag);
    }
    consumer.sync_team();
    if (!*flag) return false;
#pragma unroll
    for (int i = 0; i < S::MMAS * S::SUMS; ++i) d[i / S::SUMS][i % S::SUMS] = 0;
    for (int share = 0; share < unit.shares; ++share) {
#pragma unroll
        for (int i = 0; i < S::MMAS * S::SUMS; i += 4) {
            const int mma = i / S::SUMS, first = i % S::SUMS;
            add_vector(&d[mma][first], __ldcg(place(share, mma, first)));
        }
    }
    return true;
}
