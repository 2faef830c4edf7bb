// Copies from global to shared memory that run while the threads compute (cp.async, sm_80+).
//
// A thread issues copies, closes a group of them with `commit_copies` and waits until at most N of
// its newest groups are pending. A wait covers the thread's own copies only: a barrier must follow
// before other threads read them.
#pragma once

// Copies BYTES (4, 8 or 16), both addresses aligned to them; puts zeros where `valid` is false and
// then does not read `global`.
template <int BYTES>
__device__ __forceinline__ void copy_async(float* shared, const float* global, bool valid) {
#if defined(AUTOTUNE_HOST)
    host::copy_async(shared, global, BYTES, valid);
#elif __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const int source_bytes = valid ? BYTES : 0;
    if constexpr (BYTES == 16) {
        // .cg: past L1, which holds nothing of a tile that is read once.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
                     "r"(source_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(global),
                     "n"(BYTES), "r"(source_bytes)
                     : "memory");
    }
#endif
}

__device__ __forceinline__ void commit_copies() {
#if defined(AUTOTUNE_HOST)
    host::copy_commit();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int PENDING>
__device__ __forceinline__ void wait_copies() {
#if defined(AUTOTUNE_HOST)
    host::copy_wait(PENDING);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}
