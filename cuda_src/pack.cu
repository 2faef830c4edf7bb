// Copies operands into a workspace where every row starts at a multiple of 16 bytes: vectors,
// cp.async and TMA then serve operands of any leading dimension and any address.
//
//      TRANSPOSED = 0   from[row][column]   to[row][pitch]
//      TRANSPOSED = 1   from[row][column]   to[column][pitch]
//      LOW = 1          also a second plane like the first: each element's remainder after tf32
//
// One launch copies A, B or both: the first blocks A, the others B, blockIdx.z the matrix of the
// batch. A block goes over tiles that lie `blocks` apart. As it is, a tile is of 2^lane_bits
// vectors of 16 bytes, one for each thread of a line, times STEPS rows for each line of threads; a
// vector is cut out of the two aligned ones of the source that it lies in, so that odd rows cost no
// more than even ones. Transposed, a tile is SIDE x SIDE elements of 4 bytes, or 4 SIDE x 4 SIDE of
// 1, and goes through shared memory in rows of SIDE + 1 words.
//
// The bytes between the last column and the pitch are undefined.
//
// Params: BYTES of an element; EARLY; COPY, TRANSPOSED and LOW of A and of B (COPY_A, ...).
//
// EARLY lets the GEMM start while blocks still copy, which hides its launch. Its blocks then take
// the SMs that are free first: some SMs get more blocks than others, and finish later.
//
// Constraints: elements of 1 or 4 bytes where TRANSPOSED, of 4 where LOW; THREADS threads; the
// workspace, and where copies start in it, at multiples of 16 bytes; SIDE + 1 words of dynamic
// shared memory for each column of a tile where anything is transposed.
#include "common/dependent_launch.cuh"
#include "common/tf32.cuh"
#include "common/unaligned.cuh"

extern __shared__ unsigned pack_tile[];

namespace {

constexpr int THREADS = 256, STEPS = 2, SIDE = 32;

// One matrix of an operand and its copy: `ld` and `pitch` are in elements, `blocks` copy it.
struct Copied {
    const char* from;
    long long ld;
    int rows, columns;
    char *to, *low;
    long long pitch;
    int lane_bits, blocks;
};

// A block's path over tiles, `across` of them in a row; without 64-bit divisions, which would take
// longer than the copying.
struct Path {
    unsigned across, row, column;

    __device__ __forceinline__ Path(int block, long long tiles_across)
        : across(static_cast<unsigned>(tiles_across)), row(block / across), column(block % across) {
    }

    __device__ __forceinline__ void next(unsigned blocks) {
        row += blocks / across;
        column += blocks % across;
        if (column >= across) {
            column -= across;
            ++row;
        }
    }
};

template <bool LOW>
__device__ __forceinline__ void put(const Copied& copy, long long at, const Vector<4>& vector) {
    *reinterpret_cast<Vector<4>*>(copy.to + at) = vector;
    if constexpr (LOW) *reinterpret_cast<Vector<4>*>(copy.low + at) = tf32_remainder(vector);
}

// The 16 bytes from `at` as far as they lie before `end`, loaded element by element.
template <int BYTES, typename ELEMENT>
__device__ __forceinline__ Vector<4> gathered(const char* at, const char* end) {
    Vector<4> vector = {};
#pragma unroll
    for (int i = 0; i < 16; i += BYTES)
        if (at + i < end)
            vector.word[i / 4] |= static_cast<unsigned>(*reinterpret_cast<const ELEMENT*>(at + i))
                                 << i % 4 * 8;
    return vector;
}

template <int BYTES, typename ELEMENT, bool LOW>
__device__ __forceinline__ void copy_rows(const Copied& copy, int block) {
    const int lane = threadIdx.x & ((1 << copy.lane_bits) - 1);
    const int line = threadIdx.x >> copy.lane_bits;
    const int lines = THREADS >> copy.lane_bits;
    const long long vectors = copy.pitch * BYTES / 16;
    const char* end = copy.from + ((copy.rows - 1) * copy.ld + copy.columns) * BYTES;
    for (Path at(block, ((vectors - 1) >> copy.lane_bits) + 1);; at.next(copy.blocks)) {
        const long long first_row = static_cast<long long>(at.row) * (STEPS * lines);
        if (first_row >= copy.rows) break;
        const long long vector = (static_cast<long long>(at.column) << copy.lane_bits) + lane;
        if (vector >= vectors) continue;
        const long long first = first_row + line, column = vector * 16;
        // First all loads, then what depends on them.
        Vector<4> low[STEPS], high[STEPS];
        int skip[STEPS];
        bool inside[STEPS];
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const char* start = copy.from + (first + i * lines) * copy.ld * BYTES + column;
            skip[i] = static_cast<int>(reinterpret_cast<unsigned long long>(start) % 16);
            const char* aligned = start - skip[i];
            inside[i] = first + i * lines < copy.rows && aligned >= copy.from &&
                        aligned + (skip[i] ? 32 : 16) <= end;
            if (inside[i]) low[i] = *reinterpret_cast<const Vector<4>*>(aligned);
            if (inside[i] && skip[i]) high[i] = *reinterpret_cast<const Vector<4>*>(aligned + 16);
        }
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const long long row = first + i * lines;
            if (row >= copy.rows) continue;
            put<LOW>(copy, row * copy.pitch * BYTES + column,
                     inside[i] ? middle<BYTES>(low[i], high[i], skip[i])
                               : gathered<BYTES, ELEMENT>(
                                     copy.from + row * copy.ld * BYTES + column, end));
        }
    }
}

// Four words of four bytes each, transposed.
__device__ __forceinline__ void transpose_bytes(unsigned (&word)[4]) {
    const unsigned low01 = __byte_perm(word[0], word[1], 0x5140);
    const unsigned high01 = __byte_perm(word[0], word[1], 0x7362);
    const unsigned low23 = __byte_perm(word[2], word[3], 0x5140);
    const unsigned high23 = __byte_perm(word[2], word[3], 0x7362);
    word[0] = __byte_perm(low01, low23, 0x5410);
    word[1] = __byte_perm(low01, low23, 0x7632);
    word[2] = __byte_perm(high01, high23, 0x5410);
    word[3] = __byte_perm(high01, high23, 0x7632);
}

// The word of the elements from `column` on of a row, as far as there are columns.
template <int BYTES>
__device__ __forceinline__ unsigned word_at(const char* row, long long column, int columns) {
    const char* at = row + column * BYTES;
    if constexpr (BYTES == 4) {
        return *reinterpret_cast<const unsigned*>(at);
    } else {
        if (reinterpret_cast<unsigned long long>(at) % 4 == 0 && column + 4 <= columns)
            return *reinterpret_cast<const unsigned*>(at);
        unsigned word = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (column + i < columns)
                word |= static_cast<unsigned>(static_cast<unsigned char>(at[i])) << 8 * i;
        return word;
    }
}

// A word of the tile has EACH elements of a column of the source; a thread loads EACH words of
// neighbouring rows and transposes them.
template <int BYTES, bool LOW>
__device__ __forceinline__ void transpose(const Copied& copy, int block) {
    constexpr int EACH = 4 / BYTES, TILE = SIDE * EACH;
    constexpr int ROW = SIDE + 1, LINES = THREADS / SIDE, VECTORS = SIDE / 4;
    const int lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
    const int quad = threadIdx.x % VECTORS * 4;
    for (Path at(block, (copy.columns - 1) / TILE + 1);; at.next(copy.blocks)) {
        const long long row = static_cast<long long>(at.row) * TILE;
        const long long column = static_cast<long long>(at.column) * TILE;
        if (row >= copy.rows) break;
        const long long from_column = column + lane * EACH;
#pragma unroll
        for (int i = line; i < SIDE; i += LINES) {
            unsigned word[EACH];
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const long long from_row = row + i * EACH + e;
                word[e] = from_row < copy.rows && from_column < copy.columns
                              ? word_at<BYTES>(copy.from + from_row * copy.ld * BYTES, from_column,
                                               copy.columns)
                              : 0;
            }
            if constexpr (EACH == 4) transpose_bytes(word);
#pragma unroll
            for (int e = 0; e < EACH; ++e) pack_tile[(EACH * lane + e) * ROW + i] = word[e];
        }
        __syncthreads();
#pragma unroll
        for (int copy_row = threadIdx.x / VECTORS; copy_row < TILE; copy_row += SIDE) {
            if (row + quad * EACH < copy.rows && column + copy_row < copy.columns) {
                Vector<4> vector;
#pragma unroll
                for (int i = 0; i < 4; ++i) vector.word[i] = pack_tile[copy_row * ROW + quad + i];
                put<LOW>(copy, ((column + copy_row) * copy.pitch + row + quad * EACH) * BYTES,
                         vector);
            }
        }
        __syncthreads();
    }
}

template <int BYTES, bool TRANSPOSED, bool LOW>
__device__ __forceinline__ void copy(const void* from, long long ld, long long stride, int rows,
                                     int columns, long long pitch, long long start, long long low,
                                     int lane_bits, int blocks, void* workspace, int block) {
    static_assert(BYTES == 1 || BYTES == 2 || BYTES == 4, "elements of 1, 2 or 4 bytes");
    static_assert(BYTES == 4 || !LOW, "only 4 bytes are split");
    static_assert(BYTES != 2 || !TRANSPOSED, "2 bytes are not transposed");
    const long long matrix = blockIdx.z, bytes = pitch * (TRANSPOSED ? columns : rows) * BYTES;
    char* to = static_cast<char*>(workspace) + matrix * bytes;
    const Copied copied = {static_cast<const char*>(from) + matrix * stride * BYTES,
                        ld,
                        rows,
                        columns,
                        to + start,
                        to + low,
                        pitch,
                        lane_bits,
                        blocks};
    if constexpr (TRANSPOSED)
        transpose<BYTES, LOW>(copied, block);
    else if constexpr (BYTES == 1)
        copy_rows<BYTES, unsigned char, LOW>(copied, block);
    else if constexpr (BYTES == 2)
        copy_rows<BYTES, unsigned short, LOW>(copied, block);
    else
        copy_rows<BYTES, unsigned, LOW>(copied, block);
}

}  // namespace

template <class Params>
__global__ void __launch_bounds__(THREADS, 4)
    pack(const void* a, long long lda, long long stride_a, int rows_a, int columns_a,
         long long pitch_a, long long start_a, long long low_a, int lane_bits_a, int blocks_a,
         const void* b, long long ldb, long long stride_b, int rows_b, int columns_b,
         long long pitch_b, long long start_b, long long low_b, int lane_bits_b, int blocks_b,
         void* workspace) {
    using P = Params;
    static_assert(P::COPY_A || P::COPY_B, "something to copy");
    const int block = blockIdx.x;
    wait_for_primary();
    if constexpr (P::EARLY) launch_dependents();
    if constexpr (P::COPY_A)
        if (!P::COPY_B || block < blocks_a)
            copy<P::BYTES, P::TRANSPOSED_A, P::LOW_A>(a, lda, stride_a, rows_a, columns_a, pitch_a,
                                                      start_a, low_a, lane_bits_a, blocks_a,
                                                      workspace, block);
    if constexpr (P::COPY_B)
        if (!P::COPY_A || block >= blocks_a)
            copy<P::BYTES, P::TRANSPOSED_B, P::LOW_B>(b, ldb, stride_b, rows_b, columns_b, pitch_b,
                                                      start_b, low_b, lane_bits_b, blocks_b,
                                                      workspace, block - blocks_a);
}
