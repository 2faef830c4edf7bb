// Hopper's barriers in shared memory, named barriers, clusters and register budgets (sm_90a).
//
// A Barrier ends a phase when as many threads have arrived as it was made for and when all bytes
// that they announced have come. Waiting for parity p is waiting for the end of phase p, p + 2,
// ...; a fresh barrier lets through whoever waits for parity 1.
#pragma once

using Barrier = unsigned long long;

// Where shared memory has `p`, as the instructions for it take it.
__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

// Makes new barriers known to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives and announces bytes that will come in this phase.
__device__ __forceinline__ void barrier_expect(Barrier* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

// Arrives if `arrives`; a branch around it would keep ptxas from seeing what runs beside the tensor
// cores.
__device__ __forceinline__ void barrier_arrive(Barrier* barrier, bool arrives = true) {
    asm volatile(
        "{\n"
        ".reg .pred arrives;\n"
        "setp.ne.u32 arrives, %1, 0;\n"
        "@arrives mbarrier.arrive.shared::cta.b64 _, [%0];\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(static_cast<unsigned>(arrives))
        : "memory");
}

// The same at the barrier in the same place of block `block` of the cluster. Says nothing of what
// the thread has written: a release that the whole cluster sees would halt it.
__device__ __forceinline__ void barrier_arrive_at(Barrier* barrier, int block, bool arrives) {
    asm volatile(
        "{\n"
        ".reg .pred arrives;\n"
        ".reg .b32 there;\n"
        "setp.ne.u32 arrives, %2, 0;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "@arrives mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(block), "r"(static_cast<unsigned>(arrives))
        : "memory");
}

__device__ __forceinline__ void barrier_wait(Barrier* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// Makes the tensor cores and the copy engine see the threads' stores to shared memory.
__device__ __forceinline__ void fence_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Waits until `threads` threads have come to barrier `id` (0 is that of __syncthreads).
__device__ __forceinline__ void named_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts as one that has come, without waiting.
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ int cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}

// All threads of all blocks of the cluster. Orders no memory.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.relaxed.aligned;\n"
        "barrier.cluster.wait.aligned;" ::
            : "memory");
}

// The same, after which all see what any has stored in the shared memory of another.
__device__ __forceinline__ void cluster_exchange() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
}

// Stores four floats in block `block` of the cluster, where this one has `to` in shared memory.
__device__ __forceinline__ void cluster_store(float4* to, int block, float4 value) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n"
        "}" ::"r"(shared_address(to)),
        "r"(block), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
        : "memory");
}

// A value that is the same for the whole warp, which the compiler learns from the shuffle.
__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(0xffffffff, value, 0); }

// Whether this is the one thread of the warp, all of whose threads ask, that acts for it. Behind it
// the compiler keeps what is the same for all in uniform registers, which copies take.
__device__ __forceinline__ bool elected() {
    unsigned chosen;
    asm volatile(
        "{\n"
        ".reg .pred chosen;\n"
        "elect.sync _|chosen, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, chosen;\n"
        "}"
        : "=r"(chosen));
    return chosen != 0;
}

// Registers a thread of this warpgroup from here on.
template <int COUNT>
__device__ __forceinline__ void registers_raise() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void registers_lower() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
