// The tile of an operand in a stage of `wgmma`: ROWS rows by TILE_K steps of K in lines of 128
// bytes, as bulk copies (TMA) load boxes of them and the tensor cores read them.
//
//     ALONG_K = 1   for each 128 bytes of K:     ROWS lines, one a row
//     ALONG_K = 0   for each 128 bytes of rows:  TILE_K lines, one a step of K
//
// The 16-byte pieces of a line are swizzled: piece p of line l is at p ^ l % 8, so that the same
// piece of 8 lines is in 8 different groups of banks.
#pragma once

#include "hopper/tensor_map.cuh"
#include "hopper/wgmma.cuh"

constexpr int LINE = 128, PIECE = 16;

// Byte `byte` of line `line`, from the start of the lines.
__device__ __forceinline__ int swizzled(int line, int byte) {
    return line * LINE + (byte ^ line % 8 * PIECE);
}

// The descriptor of an operand that starts at `start`. Groups of 8 lines follow each other; where
// lines are steps of K, `blocks` bytes lie between those of 128 bytes of rows and those of the
// next.
__device__ __forceinline__ Descriptor descriptor(const void* start, int blocks) {
    constexpr Descriptor SWIZZLE_128 = 1ULL << 62, GROUPS = 8ULL * LINE >> 4;
    const Descriptor address = (shared_address(start) & 0x3ffff) >> 4;
    return address | static_cast<Descriptor>(blocks >> 4) << 16 | GROUPS << 32 | SWIZZLE_128;
}

// The descriptor of what lies `pieces` further on. The address has room in the lower word.
__device__ __forceinline__ Descriptor moved(Descriptor from, unsigned pieces) {
    const unsigned low = static_cast<unsigned>(from) + pieces;
    return from >> 32 << 32 | low;
}

__device__ constexpr int common_divisor(int a, int b) {
    return b == 0 ? a : common_divisor(b, a % b);
}

template <int ELEMENT, int TILE_K, int ROWS, bool ALONG_K>
struct TmaTile {
    static constexpr int PER_LINE = LINE / ELEMENT;  // elements
    static constexpr int BLOCKS = ALONG_K ? TILE_K / PER_LINE : (ROWS + PER_LINE - 1) / PER_LINE;
    static constexpr int LINES = ALONG_K ? ROWS : TILE_K;  // of a block
    static constexpr int BLOCK_BYTES = LINES * LINE, BYTES = BLOCKS * BLOCK_BYTES;
    static constexpr int STEP = 32 / ELEMENT;  // of K, in an instruction

    // Loads the rows from `first` on and the steps from `k` on. Where SHARERS blocks of a cluster
    // share the tile, each loads a part of it into all of them (multicast): whole blocks of lines
    // as far as these go round, or the same lines of several blocks.
    template <int SHARERS, class Evict>
    __device__ static void load(char* to, const TensorMap* map, Barrier* full, int first, int k,
                                int matrix, int part, unsigned short sharers) {
        constexpr int APART = common_divisor(BLOCKS, SHARERS);  // sharers of different blocks
        constexpr int PART = LINES / (SHARERS / APART);
        static_assert(PART % 8 == 0, "the swizzle repeats after 8 lines");
        const int from = part / APART * PART;
#pragma unroll
        for (int i = 0; i < BLOCKS / APART; ++i) {
            const int block = i * APART + part % APART;
            char* place = to + block * BLOCK_BYTES + from * LINE;
            const int along = (ALONG_K ? k : first) + block * PER_LINE;
            const int across = (ALONG_K ? first : k) + from;
            if constexpr (SHARERS > 1)
                tma_load_multicast<Evict>(place, map, full, along, across, matrix, sharers);
            else
                tma_load<Evict>(place, map, full, along, across, matrix);
        }
    }

    // The descriptor of the first row and step of a tile.
    __device__ static Descriptor start(const char* tile) {
        return descriptor(tile, ALONG_K ? PIECE : BLOCK_BYTES);
    }

    // The descriptor of what instruction `step` of a stage reads, from row `row` on: a multiple of
    // 8, and of a block of lines where those do not run along K. The stage is `pieces` from
    // `start`.
    __device__ static Descriptor at(Descriptor start, unsigned pieces, unsigned row,
                                    unsigned step) {
        constexpr unsigned A_BLOCK = PER_LINE / STEP;
        const unsigned place = ALONG_K
                                   ? step / A_BLOCK * BLOCK_BYTES + row * LINE + step % A_BLOCK * 32
                                   : row / PER_LINE * BLOCK_BYTES + step * STEP * LINE;
        return moved(start, pieces + place / PIECE);
    }
};
