// A warp's fragments of A and B from swizzled tiles, and their product on the tensor cores.
//
// A product takes 32 bytes of K: STEP elements. Operands whose rows run along K come by ldmatrix,
// as do 16-bit ones that do not, transposed on the way; 8-bit ones have to. Those of 32 bits that
// do not are read as vectors of W elements along the extent, which serve W blocks of 8: what the
// tensor core takes for neighbours lies W apart in the tile (`Rows`).
#pragma once

#include "common/place.cuh"
#include "mma/instructions.cuh"
#include "common/tf32.cuh"

// The element of a warp's extent in row `i` of a block (of A, 16 rows; of B, 8 columns).
template <typename T, int WARP, bool ALONG_K>
struct Rows {
    static constexpr bool APART = sizeof(T) == 4 && !ALONG_K;
    // Blocks of 8 whose elements lie side by side.
    static constexpr int W = !APART ? 1 : WARP >= 32 ? 4 : WARP / 8;

    static constexpr __device__ int of_a(int block, int i) {
        if (!APART) return block * 16 + i;
        const int eighth = 2 * block + i / 8;
        return eighth / W * 8 * W + i % 8 * W + eighth % W;
    }
};

// Fragments of WARP elements from `first` of a tile on; IS_A tells A, with blocks of 16, from B,
// with blocks of 8.
template <typename T, class Tile, int WARP, bool ALONG_K, bool IS_A>
class Fragments {
    static constexpr bool APART = Rows<T, WARP, ALONG_K>::APART;
    static constexpr int W = Rows<T, WARP, ALONG_K>::W;
    static constexpr int PITCH = Tile::Places::PIECES * 16;

public:
    static constexpr int STEP = 32 / sizeof(T);
    static constexpr int BLOCKS = WARP / (IS_A ? 16 : 8), REGISTERS = IS_A ? 4 : 2;
    using Registers = unsigned[BLOCKS][REGISTERS];

    // For the steps from `step` on, of a multiple of as many as are to be loaded.
    __device__ __forceinline__ Fragments(int first, int step, int lane)
        : place_(kept(APART     ? apart(first, step, lane)
                      : ALONG_K ? along(first, step, lane)
                                : across(first, step, lane))) {}

    __device__ __forceinline__ void load(Registers& to, const char* tile, int step) const {
        if constexpr (APART) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const char* row = tile + (step * STEP + half * STEP / 2) * PITCH;
#pragma unroll
                for (int q = 0; q < WARP / 8 / W; ++q) {
                    const Vector<W> words =
                        *reinterpret_cast<const Vector<W>*>(row + (place_ ^ q * 32 * W));
#pragma unroll
                    for (int w = 0; w < W; ++w) {
                        const int eighth = q * W + w;
                        if constexpr (IS_A)
                            to[eighth / 2][eighth % 2 + 2 * half] = words.word[w];
                        else
                            to[eighth][half] = words.word[w];
                    }
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < (WARP + 15) / 16; ++i) {
                const char* from = ALONG_K ? tile + (place_ ^ step * 32) + i * 16 * PITCH
                                           : tile + (place_ ^ i * 32) + step * STEP * PITCH;
                if constexpr (IS_A) {
                    if constexpr (ALONG_K) ldmatrix_x4(to[i], from);
                    else ldmatrix_x4_trans(to[i], from);
                } else if constexpr (BLOCKS == 1) {
                    if constexpr (ALONG_K) ldmatrix_x2(to[0], from);
                    else ldmatrix_x2_trans(to[0], from);
                } else {
                    unsigned both[4];
                    if constexpr (ALONG_K) ldmatrix_x4(both, from);
                    else ldmatrix_x4_trans(both, from);
#pragma unroll
                    for (int r = 0; r < 4; ++r) to[2 * i + r / 2][r % 2] = both[r];
                }
            }
        }
    }

private:
    // Of four matrices the second is 8 rows down in A and 8 of 16-bit K on in B.
    static __device__ __forceinline__ int along(int first, int step, int lane) {
        const int row = first + (IS_A ? lane % 16 : lane % 8 + (BLOCKS > 1 ? lane / 16 * 8 : 0));
        const int piece = IS_A ? lane / 16 : lane / 8 % 2;
        return Tile::Places::place(row, step * 32 + piece * 16);
    }
    static __device__ __forceinline__ int across(int first, int step, int lane) {
        const int row = IS_A ? lane % 8 + lane / 16 * 8 : lane % 16;
        const int piece = IS_A ? lane / 8 % 2 : BLOCKS > 1 ? lane / 16 : 0;
        return Tile::Places::place(step * STEP + row,
                                   first * static_cast<int>(sizeof(T)) + piece * 16);
    }
    static __device__ __forceinline__ int apart(int first, int step, int lane) {
        return Tile::Places::place(step * STEP + lane % 4, (first + lane / 4 * W) * 4);
    }

    const int place_;
};

template <ElementType TYPE>
__device__ __forceinline__ void multiply_16_bits(float (&d)[4], const unsigned (&a)[4],
                                                 const unsigned (&b)[2]) {
#if defined(AUTOTUNE_HOST) || __CUDA_ARCH__ >= 800
    mma16816<TYPE>(d, a, b);
#else
    static_assert(TYPE == ElementType::F16, "before sm_80 there is f16 only");
    mma1688_f16(d, {a[0], a[1]}, b[0]);
    mma1688_f16(d, {a[2], a[3]}, b[1]);
#endif
}

// The tf32 nearest to each fp32, and with `low` what that leaves of it, as tf32 as well.
template <int COUNT>
__device__ __forceinline__ void split_tf32(unsigned (&high)[COUNT], unsigned* low,
                                           const unsigned (&from)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const float value = float_of(from[i]);
        high[i] = tf32_nearest(value);
        if (low) low[i] = tf32_nearest(value - float_of(high[i]));
    }
}

// sums += a b, in int32 for int8. PRODUCTS = 3 multiplies fp32 as high and low parts, the small
// products first; what it leaves out, low times low, is 2^-22 of the product or less.
template <ElementType TYPE_A, ElementType TYPE_B, int PRODUCTS, int ROWS, int COLUMNS, class Sum>
__device__ __forceinline__ void multiply_fragments(Sum (&sums)[ROWS][COLUMNS][4],
                                                   const unsigned (&a)[ROWS][4],
                                                   const unsigned (&b)[COLUMNS][2]) {
    if constexpr (sizeof(typename Element<TYPE_A>::Type) == 1) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) mma16832<TYPE_A, TYPE_B>(sums[i][j], a[i], b[j]);
    } else if constexpr (TYPE_A != ElementType::F32) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) multiply_16_bits<TYPE_A>(sums[i][j], a[i], b[j]);
    } else {
        unsigned high_a[ROWS][4], low_a[PRODUCTS == 3 ? ROWS : 1][4];
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
            split_tf32(high_a[i], PRODUCTS == 3 ? low_a[i] : nullptr, a[i]);
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            unsigned high_b[2], low_b[2];
            split_tf32(high_b, PRODUCTS == 3 ? low_b : nullptr, b[j]);
            if constexpr (PRODUCTS == 3) {
#pragma unroll
                for (int i = 0; i < ROWS; ++i) mma1688_tf32(sums[i][j], low_a[i], high_b);
#pragma unroll
                for (int i = 0; i < ROWS; ++i) mma1688_tf32(sums[i][j], high_a[i], low_b);
            }
#pragma unroll
            for (int i = 0; i < ROWS; ++i) mma1688_tf32(sums[i][j], high_a[i], high_b);
        }
    }
}
