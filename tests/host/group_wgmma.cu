// C = A B for 64 x N at most: a thread brings A and B by bulk copies, 128 bytes of each row at a time
// into two stages, a warpgroup multiplies, and C goes through shared memory, 32 columns at a time.
// With one defect, to show that the harness sees it; 0 is sound.
#include "common/number.cuh"
#include "hopper/tensor_map.cuh"
#include "hopper/wgmma.cuh"
#include "mma/instructions.cuh"

enum Defect {
    NONE,
    READS_BEFORE_IT_COMES,
    WAITS_FOR_THE_WRONG_PHASE,
    RELEASES_TOO_EARLY,
    NEVER_RELEASES,
    RELEASES_TWICE,
    EXPECTS_TOO_LITTLE,
    EXPECTS_TOO_MUCH,
    STEPS_OVER_ROWS,
    FORGETS_THE_STRIDE,
    READS_SUMS_TOO_EARLY,
    NEVER_WAITS_FOR_SUMS,
    ADDS_WITHOUT_A_FENCE,
    LEAVES_A_WARP_OUT,
    STORES_BEFORE_THE_BARRIER,
    OVERWRITES_WHAT_IS_STORED,
    NEVER_WAITS_FOR_STORES,
    COUNTS_WRONG,
    MISPLACES_A_STAGE,
    NEVER_INITIALISES,
};

__device__ inline unsigned long long descriptor(const char* place, int leading, int stride) {
    return 1ull << 62 | static_cast<unsigned long long>(stride / 16) << 32 |
           static_cast<unsigned long long>(leading / 16) << 16 | shared_address(place) / 16;
}

// ALONG_K_A, ALONG_K_B: rows run along K, in boxes of 128 bytes of K; or else in boxes of 64 of M or
// N by 64 of K. REGISTERS: A passes through registers, in tf32.
template <int TYPE_A, int TYPE_B, int N, int ALONG_K_A, int ALONG_K_B, int REGISTERS, int DEFECT>
__global__ void group_wgmma(const __grid_constant__ TensorMap map_a,
                            const __grid_constant__ TensorMap map_b,
                            const __grid_constant__ TensorMap map_c, int k) {
    constexpr int BYTES = sizeof(typename Number<TYPE_A>::Type), BK = 128 / BYTES, STAGES = 2;
    using Sum = typename Accumulator<static_cast<ElementType>(TYPE_A)>::Type;
    constexpr int SIZE_A = 64 * 128, SIZE_B = (ALONG_K_B ? N : (N + 63) / 64 * 64) * 128;
    constexpr int STAGE = (SIZE_A + SIZE_B + 1023) / 1024 * 1024, STAGED = 64 * 128;
    extern __shared__ __align__(1024) char shared[];
    char* const stages = shared + (DEFECT == MISPLACES_A_STAGE ? 64 : 0);
    char* const staged = shared + STAGES * STAGE;
    Barrier* const full = reinterpret_cast<Barrier*>(staged + STAGED);
    Barrier* const empty = full + STAGES;
    if (threadIdx.x == 0 && DEFECT != NEVER_INITIALISES) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, 4);
        }
        barrier_init_fence();
    }
    __syncthreads();

    const int steps = (k + BK - 1) / BK;
    if (threadIdx.x >= 128) {
        if (threadIdx.x > 128) return;
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES, phase = step / STAGES % 2;
            char* const to = stages + stage * STAGE;
            barrier_wait(empty + stage, phase ^ 1);
            const int more = DEFECT == EXPECTS_TOO_MUCH     ? 16
                             : DEFECT == EXPECTS_TOO_LITTLE ? -SIZE_B
                                                            : 0;
            barrier_expect(full + stage, SIZE_A + SIZE_B + more);
            if (ALONG_K_A) tma_load(to, &map_a, full + stage, step * BK, 0, 0);
            else tma_load(to, &map_a, full + stage, 0, step * BK, 0);
            for (int i = 0; i < (ALONG_K_B ? 1 : (N + 63) / 64); ++i) {
                char* const part = to + SIZE_A + i * 64 * 128;
                if (ALONG_K_B) tma_load(part, &map_b, full + stage, step * BK, 0, 0);
                else tma_load(part, &map_b, full + stage, i * 64, step * BK, 0);
            }
        }
        return;
    }

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (DEFECT == LEAVES_A_WARP_OUT && warp == 2) return;
    Sum d[N / 2];
    for (Sum& sum : d) sum = 0;
    for (int step = 0; step < steps; ++step) {
        const int stage = step % STAGES, phase = step / STAGES % 2;
        const char *a = stages + stage * STAGE, *b = a + SIZE_A;
        if (DEFECT != READS_BEFORE_IT_COMES)
            barrier_wait(full + stage, phase ^ (DEFECT == WAITS_FOR_THE_WRONG_PHASE));
        if (DEFECT != ADDS_WITHOUT_A_FENCE) wgmma_fence();
        for (int part = 0; part < 4; ++part) {
            constexpr int ROW = 128, EIGHT = 8 * ROW;
            const int apart = DEFECT == FORGETS_THE_STRIDE ? EIGHT / 2 : EIGHT;
            const int next = DEFECT == STEPS_OVER_ROWS ? ROW : 32;
            const auto from_b = ALONG_K_B ? descriptor(b + part * next, 0, apart)
                                          : descriptor(b + part * 2 * EIGHT, 8 * EIGHT, apart);
            if constexpr (REGISTERS) {
                unsigned fragment[4];
                for (int i = 0; i < 4; ++i) {
                    const int row = 16 * warp + lane / 4 + i % 2 * 8;
                    const int piece = (2 * part + i / 2) ^ row % 8;
                    fragment[i] = *reinterpret_cast<const unsigned*>(a + row * ROW + piece * 16 +
                                                                     lane % 4 * 4);
                }
                wgmma_registers<N>(d, fragment, from_b, 1);
            } else {
                const auto from_a = ALONG_K_A ? descriptor(a + part * 32, 0, EIGHT)
                                              : descriptor(a + part * 2 * EIGHT, 0, EIGHT);
                wgmma_shared<N, static_cast<ElementType>(TYPE_A),
                             static_cast<ElementType>(TYPE_B), !ALONG_K_A, !ALONG_K_B>(d, from_a,
                                                                                       from_b, 1);
            }
        }
        wgmma_commit();
        if (DEFECT == RELEASES_TOO_EARLY && lane == 0) barrier_arrive(empty + stage);
        if (DEFECT == READS_SUMS_TOO_EARLY && step == steps - 1) break;
        if (DEFECT != NEVER_WAITS_FOR_SUMS) wgmma_wait<0>();
        if (DEFECT == NEVER_RELEASES || DEFECT == RELEASES_TOO_EARLY) continue;
        if (lane == 0) barrier_arrive(empty + stage);
        if (DEFECT == RELEASES_TWICE && lane == 0) barrier_arrive(empty + stage);
    }

    for (int first = 0; first < N; first += 32) {
        for (int i = 0; i < N / 2; ++i) {
            const int row = 16 * warp + lane / 4 + 8 * (i / 2 % 2);
            const int column = 8 * (i / 4) + 2 * (lane % 4) + i % 2 - first;
            if (column < 0 || column >= 32) continue;
            const int piece = column / 4 ^ row % 8;
            reinterpret_cast<float*>(staged)[row * 32 + piece * 4 + column % 4] =
                static_cast<float>(d[i]);
        }
        fence_async_shared();
        if (DEFECT != STORES_BEFORE_THE_BARRIER) named_sync(1, DEFECT == COUNTS_WRONG ? 160 : 128);
        if (threadIdx.x == 0) {
            tma_store(&map_c, staged, first, 0, 0);
            tma_store_commit();
            if (DEFECT < OVERWRITES_WHAT_IS_STORED || DEFECT >= COUNTS_WRONG) tma_store_wait<0>();
        }
        named_sync(2, 128);
    }
    if (DEFECT == READS_SUMS_TOO_EARLY) wgmma_wait<0>();
    if (DEFECT == OVERWRITES_WHAT_IS_STORED && threadIdx.x == 0) tma_store_wait<0>();
}
