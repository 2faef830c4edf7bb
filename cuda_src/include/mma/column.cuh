// A column of tiles that one block computes one after the other, for a K of one k-tile.
//
//      B of BK x BN is loaded once            +------+
//                                        A[0] | C[0] |  stored while A[1], A[2] ... arrive
//      A comes in a ring of STAGES            +------+
//      tiles of BM x BK by cp.async      A[1] | C[1] |
//                                             +------+  ... `group` tiles
//
// Blocks along x take the columns of the first `group` rows of tiles, then those of the next.
// Copies of A run ahead over the tiles, so that memory is read while C is stored. Vectors that are
// too narrow for cp.async wait in registers meanwhile.
#pragma once

#include "common/dependent_launch.cuh"
#include "mma/store.cuh"

template <class S>
class Column {
    using Args = typename S::Args;
    // The fragments of B stay in registers if a thread has no more than 64.
    static constexpr bool KEPT = S::STEPS * S::COLUMNS * S::FragmentsB::REGISTERS <= 64;
    static constexpr int RING = S::TileB::SIZE;

public:
    __device__ __forceinline__ Column(const Args& args, const MmaSchedule& schedule, char* arena)
        : args_(args), schedule_(schedule), arena_(arena), columns_(ceil_div(args.n, S::BN)),
          column_(blockIdx.x % columns_ * S::BN),
          row_(blockIdx.x / columns_ * schedule.group * S::BM),
          tiles_(min(schedule.group, ceil_div(args.m - row_, S::BM))) {}

    __device__ __forceinline__ void compute() {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int thread_row = warp % (S::BM / S::WM) * S::WM;
        const int thread_column = warp / (S::BM / S::WM) * S::WN;
        typename S::TileA tile_a = first_of_a();
        const auto load = [&](int tile, int buffer) {
            if (tile < tiles_) tile_a.load_along_extent(arena_ + buffer);
            commit_copies();
        };
        const auto store = [&](int tile, int buffer) {
            if (tile < tiles_) tile_a.store(arena_ + buffer);
        };
        wait_for_primary();
        load_b();
#pragma unroll
        for (int stage = 0; stage < S::AHEAD; ++stage) {
            load(stage, RING + stage * S::TileA::SIZE);
            store(stage, RING + stage * S::TileA::SIZE);
        }
        const typename S::FragmentsA fragments_a(thread_row, 0, lane);
        const typename S::FragmentsB fragments_b(thread_column, 0, lane);
        typename S::FragmentsB::Registers registers_b[KEPT ? S::STEPS : 1];
        if constexpr (KEPT) {
            arrive();
#pragma unroll
            for (int step = 0; step < S::STEPS; ++step)
                fragments_b.load(registers_b[step], arena_, step);
        }
        int reading = RING, writing = RING + S::AHEAD * S::TileA::SIZE;
#pragma unroll 1
        for (int tile = 0; tile < tiles_; ++tile) {
            arrive();
            // The buffer being written was read before this barrier.
            load(tile + S::AHEAD, writing);
            float sums[S::ROWS][S::COLUMNS][4] = {};
#pragma unroll
            for (int step = 0; step < S::STEPS; ++step) {
                typename S::FragmentsA::Registers registers_a;
                fragments_a.load(registers_a, arena_ + reading, step);
                if constexpr (!KEPT) fragments_b.load(registers_b[0], arena_, step);
                multiply_fragments<S::TYPE_A, S::TYPE_B, S::PRODUCTS>(sums, registers_a,
                                                         registers_b[KEPT ? step : 0]);
            }
            if (tile == tiles_ - 1) launch_dependents();
            store_tile(sums, {row_ + tile * S::BM, column_, thread_row, thread_column}, lane);
            store(tile + S::AHEAD, writing);
            writing = reading;
            reading = reading == END ? RING : reading + S::TileA::SIZE;
        }
    }

private:
    static constexpr int END = RING + S::AHEAD * S::TileA::SIZE;

    __device__ __forceinline__ typename S::TileA first_of_a() const {
        const typename S::TypeA* from = args_.a + schedule_.start_a + blockIdx.z * args_.stride_a;
        from += S::TRANS_A ? row_ : row_ * args_.lda;
        return {from, args_.lda, args_.m - row_, summed(args_.k, args_.alpha)};
    }

    __device__ __forceinline__ void load_b() const {
        const typename S::TypeB* from = args_.b + schedule_.start_b + blockIdx.z * args_.stride_b;
        from += S::TRANS_B ? column_ * args_.ldb : column_;
        typename S::TileB tile(from, args_.ldb, args_.n - column_,
                              summed(args_.k, args_.alpha));
        tile.load(arena_);
        tile.store(arena_);
    }

    // Makes B and the oldest tile of A in flight visible to the whole block.
    static __device__ __forceinline__ void arrive() {
        wait_copies<S::AHEAD - 1>();
        __syncthreads();
    }

    __device__ __forceinline__ void store_tile(const float (&sums)[S::ROWS][S::COLUMNS][4],
                                               const Place& at, int lane) const {
        using Store = TileStore<S>;
        float* const strips = reinterpret_cast<float*>(arena_ + END + S::TileA::SIZE);
        const Store target(args_, at, strips, threadIdx.x, lane);
#pragma unroll
        for (int i = 0; i < S::ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < S::COLUMNS; j += Store::W) target.store(i, j, &sums[i][j]);
            target.store_rows(i);
        }
    }

    const Args& args_;
    const MmaSchedule& schedule_;
    char* const arena_;
    const int columns_, column_, row_, tiles_;
};
