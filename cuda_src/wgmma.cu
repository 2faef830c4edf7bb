// C = act(alpha op(A) op(B) + beta C + bias) on the tensor cores of Hopper.
//
// A tile of C is D[x][y] = sum over k of P[x][k] Q[y][k], where P is op(A) and Q op(B)^T, or,
// SWAPPED, the other way round, so that the side of few rows can be narrow.
//
//            BY                 a block: one warpgroup brings stages of P and Q through the tensor
//         +------+              memory accelerator into a ring in shared memory, CONSUMERS
//     64  |  w0  |              warpgroups multiply them. Together, 64 or 128 rows each, or, with
//         +------+  BX          PINGPONG, each a tile of its own, so that one stores while
//     64  |  w1  |              the other multiplies.
//         +------+
//
// Blocks stay on their SM and walk over the tiles (`k_sharing/walk.cuh`), whose K may be shared. CLUSTER_X by
// CLUSTER_Y blocks of a cluster take neighbouring tiles and bring what they have in common once, or
// CLUSTER_K of them have shares of one tile, which they add up in each other's shared memory; then
// a block has one unit of work.
//
// 16-bit operands are read from shared memory whichever way they run; 32-bit ones have to run along
// K there. P may pass through registers instead (REGISTERS), where it can run either way.
//
// PRODUCTS = 3 gives nearly the accuracy of fp32: with x = high + low, each in tf32,
// low high + high low + high high. P is split in registers; the low part of Q is made in shared
// memory by the warpgroup that brings, or brought from where another launch put it (PASS). What the
// tensor cores add up, they truncate, so their sums move to fp32 registers every PROMOTE stages.
//
// Constraints: sm_90a; 128 (CONSUMERS + 1) threads; a grid of whole clusters; rows that tensor maps
// describe start at multiples of 16 bytes; 1024 bytes of shared memory to align the stages and 1024
// for barriers.
#include "hopper/multiply.cuh"
#include "hopper/store.cuh"

template <class S, class Result>
__device__ void consume(const Arguments<Result>& given, const Maps& maps, const Stages<S>& stages) {
    const Tiles<S> tiles(given);
    const Member<S> me;
    auto walk = tiles.walk(given);
    RingPlace<S::STAGES> at;
    Unit unit;
    for (int turn = 0; walk.next(unit); ++turn) {
        const int steps = unit.end - unit.begin;
        if (S::PINGPONG && turn % 2 != me.group) {
            at.skip(steps);
            continue;
        }
        alignas(16) float d[S::BLOCKS][S::SUMS];
        me.take_turn(turn);
        if constexpr (S::REGISTERS)
            multiply_registers<S>(d, stages, at, steps, me.row());
        else
            multiply_shared<S>(d, stages, at, steps, me.row());
#pragma unroll
        for (int block = 0; block < S::BLOCKS; ++block) wgmma_hold(d[block]);
        me.pass_turn();
        int x, y;
        tiles.locate(unit.tile, x, y);
        if constexpr (S::CLUSTER_K > 1) {
            alignas(16) float part[S::BLOCKS][S::Part::SUMS];
            if (gathered<S>(part, d, stages, me))
                finish_part<typename S::Part>(part, unit, tiles.rank(), S::SUMMERS, walk,
                                              tiles.count(), x, y, stages.staged(), stages.flags(),
                                              given, maps.c);
        } else {
            finish_part<S>(d, unit, 0, 1, walk, tiles.count(), x, y, stages.staged(),
                           stages.flags(), given, maps.c);
        }
    }
    if constexpr (S::TMA_STORE) {
        if (me.thread == 0) tma_store_wait<0>();
    }
}

template <int TYPE, int OUTPUT, int PRODUCTS, int BX, int BY, int BK, int STAGES, int CONSUMERS,
          int PINGPONG, int CLUSTER_X, int CLUSTER_Y, int CLUSTER_K, int MIN_BLOCKS, int REGISTERS,
          int ALONG_K_P, int ALONG_K_Q, int SWAPPED, int PASS, int PROMOTE, int REDUCTION,
          int STORE, int EPILOGUE, int VC>
__global__ void __cluster_dims__(CLUSTER_X * CLUSTER_Y * CLUSTER_K, 1, 1)
    __launch_bounds__(WARPGROUP*(CONSUMERS + 1), MIN_BLOCKS)
        wgmma(const __grid_constant__ TensorMap map_p, const __grid_constant__ TensorMap map_q,
              const __grid_constant__ TensorMap map_low, const __grid_constant__ TensorMap map_c,
              typename Number<OUTPUT>::Type* __restrict__ c, long long ldc, int m, int n, int k,
              float alpha, float beta, const typename Number<OUTPUT>::Type* __restrict__ bias,
              long long stride_p, long long stride_q, long long stride_c, int split_k, int streamed,
              int group, int batch, float* __restrict__ workspace, long long start,
              int* __restrict__ counters) {
    using S = Shape<TYPE, OUTPUT, PRODUCTS, BX, BY, BK, STAGES, CONSUMERS, PINGPONG, CLUSTER_X,
                    CLUSTER_Y, CLUSTER_K, MIN_BLOCKS, REGISTERS, ALONG_K_P, ALONG_K_Q, SWAPPED,
                    PASS, PROMOTE, REDUCTION, STORE, EPILOGUE, VC>;
    extern __shared__ __align__(1024) char shared[];
    const Stages<S> stages(shared);
    const Maps maps = {&map_p, &map_q, &map_low, &map_c};
    const Arguments<typename S::Result> given = {
        c, ldc, m, n, k, alpha, beta, bias, stride_p != 0, stride_q != 0, stride_c,
        split_k, streamed, group, batch, workspace + start, counters};
    if (threadIdx.x == 0) {
        tma_prefetch(&map_p);
        tma_prefetch(&map_q);
        if constexpr (S::PASS) tma_prefetch(&map_low);
        if constexpr (S::TMA_STORE) tma_prefetch(&map_c);
        stages.open();
    }
    if constexpr (S::CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();
    const int warp = warp_uniform(threadIdx.x / 32);
    if (warp < 4) {
        if constexpr (S::Registers::MOVED) registers_lower<S::Registers::PRODUCER>();
        if (warp == 0 && elected()) produce<S>(given, maps, stages);
        if constexpr (S::SPLITS) {
            if (warp > 0) split<S>(given, stages, threadIdx.x - 32);
        }
    } else {
        if constexpr (S::Registers::MOVED) registers_raise<S::Registers::CONSUMER>();
        consume<S>(given, maps, stages);
    }
    if constexpr (S::CLUSTER_K > 1) {
        // The barriers of `gathered`, of which all threads are part.
        if (warp < 4) {
            __syncwarp();
            cluster_sync();
            cluster_exchange();
        }
    } else if constexpr (S::CLUSTER > 1) {
        // Others of the cluster may still copy into this block, or arrive at its barriers.
        __syncwarp();
        cluster_sync();
    }
}
