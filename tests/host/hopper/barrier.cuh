// The functions of cuda_src/include/hopper/barrier.cuh on the host.
#pragma once

using Barrier = unsigned long long;

inline unsigned shared_address(const void* p) { return host::shared_address(p); }

inline void barrier_init(Barrier* barrier, int arrivals) { host::barrier_init(barrier, arrivals); }

inline void barrier_init_fence() {}

inline void barrier_expect(Barrier* barrier, int bytes) { host::barrier_arrive(barrier, bytes); }

inline void barrier_arrive(Barrier* barrier, bool arrives = true) {
    if (arrives) host::barrier_arrive(barrier, 0);
}

inline void barrier_arrive_at(Barrier* barrier, int block, bool arrives = true) {
    if (arrives) host::barrier_arrive_at(barrier, block);
}

template <bool CLUSTER = false>
inline void barrier_wait(Barrier* barrier, int parity, HOST_AT) {
    host::barrier_wait(barrier, parity, at);
}

inline void fence_async_shared() {}

inline void named_sync(int id, int threads, HOST_AT) { host::named_sync(id, threads, at); }

inline void named_arrive(int id, int threads) { host::named_arrive(id, threads); }

inline int cluster_rank() { return host::cluster_rank(); }

inline void cluster_sync(HOST_AT) {
    host::cluster_barrier_arrive(false);
    host::cluster_barrier_wait(at);
}

inline void cluster_exchange(HOST_AT) {
    host::cluster_barrier_arrive(true);
    host::cluster_barrier_wait(at);
}

inline void cluster_store(float4* to, int block, float4 value) {
    host::cluster_store(to, &value, sizeof value, block);
}

template <int COUNT>
inline void registers_raise() {
    static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "what setmaxnreg takes");
}

template <int COUNT>
inline void registers_lower() {
    registers_raise<COUNT>();
}

inline int warp_uniform(int value, HOST_AT) {
    return host::shuffle(value, 0, 0xffffffff, at.file, at.line);
}

// The lanes meet, and the first is the one.
inline bool elected(HOST_AT) {
    host::exchange(0, host::own_lane(), 0xffffffff, at.file, at.line);
    return host::own_lane() == 0;
}
