// The functions of cuda_src/include/hopper/tensor_map.cuh on the host.
#pragma once

#include "hopper/barrier.cuh"

struct alignas(64) TensorMap {
    unsigned long long words[16];
};

inline void tma_prefetch(const TensorMap*) {}

struct EvictNormal {};
struct EvictFirst {};
struct EvictLast {};

template <class Evict = EvictNormal>
inline void tma_load(void* to, const TensorMap* map, Barrier* barrier, int column, int row,
                     int matrix) {
    host::tma_load(to, map, barrier, column, row, matrix);
}

template <class Evict = EvictNormal>
inline void tma_load_multicast(void* to, const TensorMap* map, Barrier* barrier, int column,
                               int row, int matrix, unsigned short blocks) {
    host::tma_load_multicast(to, map, barrier, column, row, matrix, blocks);
}

inline void tma_store(const TensorMap* map, const void* from, int column, int row, int matrix) {
    host::tma_store(map, from, column, row, matrix);
}

inline void tma_store_commit() { host::tma_store_commit(); }

template <int PENDING>
inline void tma_store_wait() {
    host::tma_store_wait(PENDING);
}
