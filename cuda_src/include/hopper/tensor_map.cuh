// Copies of boxes between device and shared memory by the tensor memory accelerator (sm_90).
//
// A TensorMap describes matrices of a batch: columns, rows, matrices. The part of a box beyond
// their edges is loaded as zeros and is not stored.
#pragma once

#include "hopper/barrier.cuh"

struct alignas(64) TensorMap {
    unsigned long long words[16];
};

__device__ __forceinline__ void tma_prefetch(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// When L2 evicts what a copy reads: as usual, before other lines or after them.
struct EvictNormal {
    static constexpr bool NORMAL = true;
};

struct EvictFirst {
    static constexpr bool NORMAL = false;
    __device__ static unsigned long long policy() {
        unsigned long long policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
        return policy;
    }
};

struct EvictLast {
    static constexpr bool NORMAL = false;
    __device__ static unsigned long long policy() {
        unsigned long long policy;
        asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
        return policy;
    }
};

// The box whose first element is at (row, column) of `matrix`; `barrier` counts its bytes. A policy
// of normal eviction would not be the same as none: it costs a fifth of the bandwidth (H200).
template <class Evict = EvictNormal>
__device__ __forceinline__ void tma_load(void* to, const TensorMap* map, Barrier* barrier,
                                         int column, int row, int matrix) {
    if constexpr (Evict::NORMAL)
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
            "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(matrix)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
            ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
            "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(matrix),
            "l"(Evict::policy())
            : "memory");
}

// The same into each block of the cluster whose bit is set in `blocks`, at the same place and
// counted by its barrier in the same place.
template <class Evict = EvictNormal>
__device__ __forceinline__ void tma_load_multicast(void* to, const TensorMap* map, Barrier* barrier,
                                                   int column, int row, int matrix,
                                                   unsigned short blocks) {
    if constexpr (Evict::NORMAL)
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
            ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
            "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(matrix), "h"(blocks)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
            ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(
                shared_address(to)),
            "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(matrix), "h"(blocks),
            "l"(Evict::policy())
            : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap* map, const void* from, int column,
                                          int row, int matrix) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
            map),
        "r"(shared_address(from)), "r"(column), "r"(row), "r"(matrix)
        : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all stores of this thread but the last PENDING groups have read shared memory.
template <int PENDING>
__device__ __forceinline__ void tma_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
