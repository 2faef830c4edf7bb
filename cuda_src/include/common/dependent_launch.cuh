// Programmatic dependent launch (sm_90+): a kernel that starts before its predecessor on the stream
// has ended, which overlaps launch latency, barrier set-up and tensor-map fetches.
//
// Both instructions do nothing in a kernel launched without the attribute; below sm_90 there are
// none. With it, a kernel (the secondary) may start when every block of its predecessor (the
// primary) has called `launch_dependents` or has exited. Each thread calls `wait_for_primary`
// before its first access to global memory, reads and writes alike: it returns when the primary has
// completed and its memory is visible.
//
// Waiting for the primary alone suffices, for operands, workspaces and counters. If N + 1 follows N
// and N + 2 follows N + 1, then N + 1 completes after its own blocks have returned from their
// waits, and these return after N has completed: when N + 2 returns from its wait, both have. Hence
// every kernel of a plan waits, also one that reads nothing of its predecessor, and it waits before
// it calls `launch_dependents`, so that no third kernel takes room on the SMs.
//
// A primary that is no kernel, such as a memset, or one that never calls `launch_dependents`,
// completes first.
#pragma once

__device__ __forceinline__ void wait_for_primary() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the dependent kernel start once all blocks have called this or have exited: after a block's
// last loads, as nothing it writes later is seen before it completes.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
