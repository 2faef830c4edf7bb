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
// A thread loads vectors of VECTOR elements. ASYNC = 1 copies with cp.async if a vector has 4
// bytes or more; all else goes through registers: `load` fills them, `store` empties them. Past the
// edges come zeros; cp.async also takes vectors that lie partly outside.
//
// Constraints: EXTENT, BK, THREADS, VECTOR are powers of two; VECTOR elements are 16 bytes at most
// and divide addresses and row strides, but also the length of rows where they go through
// registers.
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
          bool ASYNC>
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
          place_(kept(Places::place(thread_row(), thread_column() * sizeof(T)))) {}

    // Starts to load the next tile into `tile`.
    __device__ __forceinline__ void load(char* tile) {
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
        source_ += ALONG_K ? BK : BK * ld_;
        (ALONG_K ? width_ : height_) -= BK;
    }

    // Stores what `load` left in registers in `tile`.
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
    static __device__ __forceinline__ int thread_row() { return threadIdx.x / ACROSS; }
    static __device__ __forceinline__ int thread_column() {
        return threadIdx.x % ACROSS * VECTOR;
    }
    // Where the thread's vector so many rows and columns on is. The bits of both are none of its
    // own, so that their changes add up to one that is known at compile time.
    __device__ __forceinline__ int place(int row, int column) const {
        const int change = column * static_cast<int>(sizeof(T)) ^ Places::of(row) << 4;
        return (place_ ^ change) + row * COLUMNS * static_cast<int>(sizeof(T));
    }

    const T* source_;
    const long long ld_;
    int width_, height_;
    const int place_;
    Unit staged_[COPIES ? 1 : PASSES_DOWN * PASSES_ACROSS] = {};
};
