// Loads tiles of an operand from global to shared memory for the tensor cores, BK of K at a time.
//
// In shared memory a tile has the rows that it has in global memory, of EXTENT elements or of BK,
// without gaps. The 16-byte pieces of a row change places with the row's number, so that 8
// neighbouring rows have the same piece in 8 different places of the 128 bytes that shared memory
// serves at once (ldmatrix):
//
//      row 0   0 1 2 3 4 5 6 7          row 0   0 1 2 3          rows of 64 bytes: two of them
//      row 1   1 0 3 2 5 4 7 6          row 1   0 1 2 3          lie side by side
//      row 2   2 3 0 1 6 7 4 5          row 2   1 0 3 2
//
// PAIRS = 1 keeps pieces together two by two, for 4 neighbouring rows of which 8 words are read.
//
// BLOCKS > 1 interleaves the pairs of BLOCKS blocks of 8 along the extent, so that the four lanes
// that hold a row of their products have 2 BLOCKS neighbours each (lane t has column pairs
// 4 t to 4 t + 3):
//
//      pair of the extent   0 1 2 3   4 5 6 7   8 9 10 11   12 13 14 15      BLOCKS = 4
//      pair in the tile     0 4 8 12  1 5 9 13  2 6 10 14   3 7 11 15
//
// A thread loads vectors of VECTOR elements. ASYNC = 1 copies with cp.async if a vector has 4
// bytes or more; all else goes through registers: `load` fills them, `store` empties them. Past the
// edges come zeros; cp.async also takes vectors that lie partly outside.
//
// Constraints: EXTENT, BK, THREADS, VECTOR, BLOCKS are powers of two; VECTOR elements are 16 bytes
// at most and divide addresses and row strides, but also the length of rows where they go through
// registers; 8 BLOCKS divides EXTENT, and BLOCKS > 1 has a VECTOR of a pair at most where rows run
// along the extent.
#pragma once

#include "common/async_copy.cuh"
#include "common/number.cuh"
#include "common/place.cuh"

template <int ROW_BYTES, bool PAIRS>
struct Swizzle {
    static constexpr int PIECES = ROW_BYTES / 16;
    // The number that is xored to the number of a piece of a row.
    static constexpr __device__ int of(int row) {
        if (PAIRS) return PIECES >= 8 ? (row & 3) << 1 : PIECES == 4 ? row & 2 : 0;
        return PIECES >= 8 ? row & 7 : PIECES == 4 ? row >> 1 & 3 : PIECES == 2 ? row >> 2 & 1 : 0;
    }
    // Where byte `byte` of a row is in the tile.
    static constexpr __device__ int place(int row, int byte) {
        return row * ROW_BYTES + (byte ^ of(row) << 4);
    }
};

// cp.async of BYTES (4, 8 or 16), of which the first `valid` are read; the rest become zeros.
template <int BYTES>
__device__ __forceinline__ void copy_async_part(void* shared, const void* global, int valid) {
#if defined(AUTOTUNE_HOST)
    // The first copy has the addresses checked.
    host::copy_async(shared, global, BYTES, false);
    alignas(16) char part[BYTES] = {};
    if (valid > 0) std::memcpy(part, global, valid);
    host::copy_async(shared, part, BYTES, true);
#elif __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(address),
                     "l"(global), "r"(valid)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(address),
                     "l"(global), "n"(BYTES), "r"(valid)
                     : "memory");
    }
#endif
}

template <typename T, int EXTENT, int BK, int THREADS, int VECTOR, bool ALONG_K, bool PAIRS,
          bool ASYNC, int BLOCKS = 1>
class SwizzledTile {
    static constexpr int ROWS = ALONG_K ? EXTENT : BK, COLUMNS = ALONG_K ? BK : EXTENT;
    static constexpr int BYTES = VECTOR * sizeof(T);
    static constexpr int VECTORS = COLUMNS / VECTOR;  // of a row
    static constexpr int ACROSS = VECTORS < THREADS ? VECTORS : THREADS;
    static constexpr int DOWN = THREADS / ACROSS;
    static constexpr int PASSES_ACROSS = VECTORS / ACROSS;
    static constexpr int PASSES_DOWN = (ROWS + DOWN - 1) / DOWN;
    static constexpr bool COPIES = ASYNC && BYTES >= 4;
    static_assert(VECTORS % ACROSS == 0 && THREADS % ACROSS == 0, "passes must cover whole rows");
    static_assert(ROWS < DOWN || ROWS % DOWN == 0, "passes must be full");
    static_assert(BLOCKS == 1 || ALONG_K || VECTOR <= 2, "pairs change places");
    using Unit = typename Bytes<BYTES>::Type;

public:
    using Places = Swizzle<COLUMNS * sizeof(T), PAIRS>;
    static constexpr int SIZE = ROWS * COLUMNS * sizeof(T);

    // `source` is the operand at (first element of the tile's extent, first K of the block),
    // `extent` how many elements of the tile lie inside, `steps` how many of K there are.
    __device__ __forceinline__ SwizzledTile(const T* source, long long ld, int extent, int steps)
        : source_(source + thread_row() * ld + thread_column()), ld_(ld),
          width_((ALONG_K ? steps : extent) - thread_column()),
          height_((ALONG_K ? extent : steps) - thread_row()),
          place_(kept(Places::place(row_in_tile(thread_row()),
                                    column_in_tile(thread_column()) * sizeof(T)))) {}

    // Starts to load the next tile along K into `tile`.
    __device__ __forceinline__ void load(char* tile) {
        copy(tile);
        source_ += ALONG_K ? BK : BK * ld_;
        (ALONG_K ? width_ : height_) -= BK;
    }

    // Starts to load the next tile along the extent into `tile`.
    __device__ __forceinline__ void load_along_extent(char* tile) {
        copy(tile);
        source_ += ALONG_K ? EXTENT * ld_ : EXTENT;
        (ALONG_K ? height_ : width_) -= EXTENT;
    }

    // Stores what a load left in registers in `tile`.
    __device__ __forceinline__ void store(char* tile) {
        if constexpr (!COPIES) {
            if (ROWS < DOWN && thread_row() >= ROWS) return;
#pragma unroll
            for (int down = 0; down < PASSES_DOWN; ++down)
#pragma unroll
                for (int across = 0; across < PASSES_ACROSS; ++across)
                    *reinterpret_cast<Unit*>(tile + place(down * DOWN, across * ACROSS * VECTOR)) =
                        staged_[down * PASSES_ACROSS + across];
        }
    }

private:
    __device__ __forceinline__ void copy(char* tile) {
        if (ROWS >= DOWN || thread_row() < ROWS) {
#pragma unroll
            for (int down = 0; down < PASSES_DOWN; ++down) {
#pragma unroll
                for (int across = 0; across < PASSES_ACROSS; ++across) {
                    const int row = down * DOWN, column = across * ACROSS * VECTOR;
                    const T* from = source_ + (row * ld_ + column);
                    const int inside = row < height_ ? width_ - column : 0;
                    if constexpr (COPIES) {
                        const int valid = min(max(inside, 0), VECTOR) * static_cast<int>(sizeof(T));
                        copy_async_part<BYTES>(tile + place(row, column), from, valid);
                    } else {
                        Unit& unit = staged_[down * PASSES_ACROSS + across];
                        unit = {};
                        if (inside > 0) unit = *reinterpret_cast<const Unit*>(from);
                    }
                }
            }
        }
    }

    static __device__ __forceinline__ int thread_row() { return threadIdx.x / ACROSS; }
    static __device__ __forceinline__ int thread_column() {
        return threadIdx.x % ACROSS * VECTOR;
    }
    // Where the thread's vector so many rows and columns on is. The bits of both are none of its
    // own, so that their changes add up to one that is known at compile time.
    __device__ __forceinline__ int place(int row, int column) const {
        const int size = static_cast<int>(sizeof(T));
        const int change = column_in_tile(column) * size ^ Places::of(row_in_tile(row)) << 4;
        return (place_ ^ change) + row_in_tile(row) * COLUMNS * size;
    }
    static constexpr __device__ int row_in_tile(int row) {
        return ALONG_K ? interleaved(row) : row;
    }
    static constexpr __device__ int column_in_tile(int column) {
        return ALONG_K ? column : interleaved(column);
    }
    // Where an element of the extent is; only bits change places.
    static constexpr __device__ int interleaved(int element) {
        if (BLOCKS == 1) return element;
        const int pair = element / 2, span = 4 * BLOCKS;
        return (pair / span * span + pair % BLOCKS * 4 + pair / BLOCKS % 4) * 2 + element % 2;
    }

    const T* source_;
    const long long ld_;
    int width_, height_;
    const int place_;
    Unit staged_[COPIES ? 1 : PASSES_DOWN * PASSES_ACROSS] = {};
};
