// Copies operands into a workspace where every row starts at a multiple of 16 bytes: vectors,
// cp.async and TMA then serve operands of any leading dimension and any address.
//
//      TRANSPOSED = 0   from[row][column]   to[row][pitch]
//      TRANSPOSED = 1   from[row][column]   to[column][pitch]
//      LOW = 1          also a second plane like the first: what tf32 leaves of each element
//
// One launch copies A, B or both: the first blocks A, the others B, blockIdx.z the matrix of the
// batch. A block goes over tiles that lie `blocks` apart. As it is, a tile is of 2^lane_bits
// vectors of 16 bytes, one for each thread of a line, times STEPS rows for each line of threads; a
// vector is cut out of the two aligned ones of the source that it lies in, so that odd rows cost no
// more than even ones. Transposed, a tile is SIDE x SIDE and goes through shared memory in rows of
// SIDE + 1 words.
//
// What lies between the last column and the pitch becomes anything.
//
// Constraints: elements of 4 bytes where TRANSPOSED or LOW; THREADS threads; the workspace, and
// where copies start in it, at multiples of 16 bytes; SIDE (SIDE + 1) words of dynamic shared
// memory where anything is transposed.
#include "common/words.cuh"

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

// A block's way over tiles, `across` of them in a row; without 64-bit divisions, which would take
// longer than the copying.
struct Walk {
    unsigned across, row, column;

    __device__ __forceinline__ Walk(int block, long long tiles_across)
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

template <int LOW>
__device__ __forceinline__ void put(const Copied& one, long long at, const Words& words) {
    *reinterpret_cast<Words*>(one.to + at) = words;
    if constexpr (LOW) *reinterpret_cast<Words*>(one.low + at) = tf32_rest(words);
}

// The 16 bytes from `at`, of which only those before `end` are read, one by one.
template <int BYTES, typename ELEMENT>
__device__ __forceinline__ Words gathered(const char* at, const char* end) {
    Words words = {};
#pragma unroll
    for (int i = 0; i < 16; i += BYTES)
        if (at + i < end)
            words.word[i / 4] |= static_cast<unsigned>(*reinterpret_cast<const ELEMENT*>(at + i))
                                 << i % 4 * 8;
    return words;
}

template <int BYTES, typename ELEMENT, int LOW>
__device__ __forceinline__ void copy_rows(const Copied& one, int block) {
    const int lane = threadIdx.x & ((1 << one.lane_bits) - 1), line = threadIdx.x >> one.lane_bits;
    const int lines = THREADS >> one.lane_bits;
    const long long vectors = one.pitch * BYTES / 16;
    const char* end = one.from + ((one.rows - 1) * one.ld + one.columns) * BYTES;
    for (Walk at(block, ((vectors - 1) >> one.lane_bits) + 1);; at.next(one.blocks)) {
        const long long first_row = static_cast<long long>(at.row) * (STEPS * lines);
        if (first_row >= one.rows) break;
        const long long vector = (static_cast<long long>(at.column) << one.lane_bits) + lane;
        if (vector >= vectors) continue;
        const long long first = first_row + line, column = vector * 16;
        // First all loads, then what depends on them.
        Words low[STEPS], high[STEPS];
        int skip[STEPS];
        bool inside[STEPS];
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const char* start = one.from + (first + i * lines) * one.ld * BYTES + column;
            skip[i] = static_cast<int>(reinterpret_cast<unsigned long long>(start) % 16);
            const char* aligned = start - skip[i];
            inside[i] = first + i * lines < one.rows && aligned >= one.from &&
                        aligned + (skip[i] ? 32 : 16) <= end;
            if (inside[i]) low[i] = *reinterpret_cast<const Words*>(aligned);
            if (inside[i] && skip[i]) high[i] = *reinterpret_cast<const Words*>(aligned + 16);
        }
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const long long row = first + i * lines;
            if (row >= one.rows) continue;
            put<LOW>(one, row * one.pitch * BYTES + column,
                     inside[i] ? middle<BYTES>(low[i], high[i], skip[i])
                               : gathered<BYTES, ELEMENT>(
                                     one.from + row * one.ld * BYTES + column, end));
        }
    }
}

template <int LOW>
__device__ __forceinline__ void transpose(const Copied& one, int block) {
    constexpr int ROW = SIDE + 1, LINES = THREADS / SIDE, VECTORS = SIDE / 4;
    const int lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
    const int quad = threadIdx.x % VECTORS * 4, turned = threadIdx.x / VECTORS;
    const auto* from = reinterpret_cast<const unsigned*>(one.from);
    for (Walk at(block, (one.columns - 1) / SIDE + 1);; at.next(one.blocks)) {
        const long long row = static_cast<long long>(at.row) * SIDE;
        const long long column = static_cast<long long>(at.column) * SIDE;
        if (row >= one.rows) break;
#pragma unroll
        for (int i = line; i < SIDE; i += LINES)
            if (row + i < one.rows && column + lane < one.columns)
                pack_tile[i * ROW + lane] = from[(row + i) * one.ld + column + lane];
        __syncthreads();
        if (row + quad < one.rows && column + turned < one.columns) {
            Words words;
#pragma unroll
            for (int i = 0; i < 4; ++i) words.word[i] = pack_tile[(quad + i) * ROW + turned];
            put<LOW>(one, ((column + turned) * one.pitch + row + quad) * 4, words);
        }
        __syncthreads();
    }
}

template <int BYTES, int TRANSPOSED, int LOW>
__device__ __forceinline__ void copy(const void* from, long long ld, long long stride, int rows,
                                     int columns, long long pitch, long long start, long long low,
                                     int lane_bits, int blocks, void* workspace, int block) {
    static_assert(BYTES == 2 || BYTES == 4, "elements of 2 or 4 bytes");
    static_assert(BYTES == 4 || !(TRANSPOSED || LOW), "2 bytes are neither turned nor split");
    const long long matrix = blockIdx.z, copied = pitch * (TRANSPOSED ? columns : rows) * BYTES;
    char* to = static_cast<char*>(workspace) + matrix * copied;
    const Copied one = {static_cast<const char*>(from) + matrix * stride * BYTES,
                        ld,
                        rows,
                        columns,
                        to + start,
                        to + low,
                        pitch,
                        lane_bits,
                        blocks};
    if constexpr (TRANSPOSED)
        transpose<LOW>(one, block);
    else if constexpr (BYTES == 2)
        copy_rows<BYTES, unsigned short, LOW>(one, block);
    else
        copy_rows<BYTES, unsigned, LOW>(one, block);
}

}  // namespace

template <int BYTES, int COPY_A, int TRANSPOSED_A, int LOW_A, int COPY_B, int TRANSPOSED_B,
          int LOW_B>
__global__ void __launch_bounds__(THREADS, 4)
    pack(const void* a, long long lda, long long stride_a, int rows_a, int columns_a,
         long long pitch_a, long long start_a, long long low_a, int lane_bits_a, int blocks_a,
         const void* b, long long ldb, long long stride_b, int rows_b, int columns_b,
         long long pitch_b, long long start_b, long long low_b, int lane_bits_b, int blocks_b,
         void* workspace) {
    static_assert(COPY_A || COPY_B, "something to copy");
    const int block = blockIdx.x;
    if constexpr (COPY_A)
        if (!COPY_B || block < blocks_a)
            copy<BYTES, TRANSPOSED_A, LOW_A>(a, lda, stride_a, rows_a, columns_a, pitch_a, start_a,
                                             low_a, lane_bits_a, blocks_a, workspace, block);
    if constexpr (COPY_B)
        if (!COPY_A || block >= blocks_a)
            copy<BYTES, TRANSPOSED_B, LOW_B>(b, ldb, stride_b, rows_b, columns_b, pitch_b, start_b,
                                             low_b, lane_bits_b, blocks_b, workspace,
                                             block - blocks_a);
}
