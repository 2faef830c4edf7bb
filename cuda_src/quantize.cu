// q = x / scale rounded to 8 bits, with fp32 scales that make the largest finite |x| of a group the
// largest number of the type of q. A group is the tensor, a row, or 128 neighbours of a row.
//
//      whole rows     LANES threads have a row: they hold EACH vectors of it in registers while
//                     they agree on the scale, and read what is beyond these twice
//      SPLIT, FIXED   a block has THREADS * EACH vectors of a row; with SPLIT the kernel `largest`
//                     has put the largest number of each of `parts` shares of the group into the
//                     workspace before, with FIXED the scale is an input
//      blocks         up to 32 neighbouring lanes have 128 of a row, in EACH blocks of K one after
//                     another; the next lanes have the row below, whose scales lie beside these
//
// Scales lie as kernels read those of A: one after the other, or for each 128 of K those of all
// rows. Infinities and NaN do not count towards a scale. Infinities become the largest number, NaN
// stays NaN where the type has one and becomes 0 in int8. A group of zeros has scale 1. No scale is
// below the smallest normal number, so that its reciprocal is finite.
//
// Params: FROM, TO (ElementType of x and q), SCALE, SPLIT, FIXED, VECTOR (elements that are loaded
// as one), EACH, LANES, THREADS.
//
// Constraints: columns, row pitches and addresses multiples of VECTOR elements; THREADS a multiple
// of 32, at most 1024; LANES is 32 or THREADS; a word of dynamic shared memory for each warp.
#include "common/dependent_launch.cuh"
#include "common/number.cuh"
#include "common/scale.cuh"

extern __shared__ float quantize_shared[];

namespace {

constexpr float LARGEST_FLOAT = 3.402823466e38f, LEAST_NORMAL = 1.175494351e-38f;

// The largest finite number of a type. As `largest` in autotune/problem/element.py.
template <typename T>
constexpr float LARGEST = 0.0f;
template <>
constexpr float LARGEST<E4M3> = 448.0f;
template <>
constexpr float LARGEST<E5M2> = 57344.0f;
template <>
constexpr float LARGEST<signed char> = 127.0f;

// The scale of a group, and the factor that quantises its elements.
struct Scaling {
    float scale, factor;
};

// What has been read of a group: the largest finite size, and whether all elements are finite.
struct Seen {
    float largest = 0.0f;
    bool finite = true;
};

// Vectors of a row of x and q.
template <class P>
struct RowVectors {
    using From = typename Element<P::FROM>::Type;
    using To = typename Element<P::TO>::Type;
    using Stored = typename Bytes<P::VECTOR * static_cast<int>(sizeof(From))>::Type;

    // The vector from `column` on; zeros beyond the row.
    __device__ __forceinline__ static Stored load(const From* row, long long column, int columns) {
        if (column < columns) return *reinterpret_cast<const Stored*>(row + column);
        return Stored{};
    }

    __device__ __forceinline__ static void see(Seen& seen, const Stored& stored) {
        alignas(16) float values[P::VECTOR];
        load_numbers<P::VECTOR>(values, reinterpret_cast<const From*>(&stored));
#pragma unroll
        for (int i = 0; i < P::VECTOR; ++i) {
            const float size = fabsf(values[i]);
            const bool finite = size <= LARGEST_FLOAT;
            if (finite) seen.largest = fmaxf(seen.largest, size);
            seen.finite &= finite;
        }
    }

    // Stores what `factor` makes of a vector; `finite` says that no result is beyond q's range.
    __device__ __forceinline__ static void store(To* row, long long column, int columns,
                                                 const Stored& stored, float factor,
                                                 bool finite = false) {
        if (column >= columns) return;
        alignas(16) float values[P::VECTOR];
        load_numbers<P::VECTOR>(values, reinterpret_cast<const From*>(&stored));
#pragma unroll
        for (int i = 0; i < P::VECTOR; ++i) values[i] *= factor;
        if (P::TO == ElementType::S8 && finite)
            store_numbers<P::VECTOR>(reinterpret_cast<BoundedInt8*>(row + column), values);
        else
            store_numbers<P::VECTOR>(row + column, values);
    }

    // The scaling of a group whose largest size is `most`.
    __device__ __forceinline__ static Scaling scaling(float most) {
        constexpr float LARGEST_TO = LARGEST<To>;
        const float size = most == 0.0f ? LARGEST_TO : fmaxf(most, LEAST_NORMAL * LARGEST_TO);
        return {size / LARGEST_TO, LARGEST_TO / size};
    }
};

template <int LANES>
__device__ __forceinline__ float largest_of_lanes(float value) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
    return value;
}

// The largest value of THREADS threads, which are the block or a warp of it; all of them get it.
template <int THREADS>
__device__ __forceinline__ float largest_of(float value) {
    value = largest_of_lanes<32>(value);
    if constexpr (THREADS > 32) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) quantize_shared[threadIdx.x / 32] = value;
        __syncthreads();
        value = largest_of_lanes<32>(lane < THREADS / 32 ? quantize_shared[lane] : 0.0f);
    }
    return value;
}

template <class P>
__device__ __forceinline__ void quantize_row(const typename RowVectors<P>::From* x, long long ldx,
                                             typename RowVectors<P>::To* q, long long ldq,
                                             float* scales, int rows, int columns) {
    using Row = RowVectors<P>;
    static_assert(P::LANES == 32 || P::LANES == P::THREADS, "a row has a warp or the block");
    constexpr int STEP = P::LANES * P::VECTOR;
    const long long row =
        static_cast<long long>(blockIdx.x) * (P::THREADS / P::LANES) + threadIdx.x / P::LANES;
    if (row >= rows) return;
    x += row * ldx;
    q += row * ldq;
    const int first = threadIdx.x % P::LANES * P::VECTOR;
    constexpr long long BEYOND = static_cast<long long>(P::EACH) * STEP;
    typename Row::Stored held[P::EACH];
    Seen seen;
#pragma unroll
    for (int i = 0; i < P::EACH; ++i) held[i] = Row::load(x, first + i * STEP, columns);
#pragma unroll
    for (int i = 0; i < P::EACH; ++i) Row::see(seen, held[i]);
    for (long long at = first + BEYOND; at < columns; at += STEP)
        Row::see(seen, Row::load(x, at, columns));
    const Scaling scaling = Row::scaling(largest_of<P::LANES>(seen.largest));
    if (first == 0) scales[row] = scaling.scale;
#pragma unroll
    for (int i = 0; i < P::EACH; ++i)
        Row::store(q, first + i * STEP, columns, held[i], scaling.factor, seen.finite);
    for (long long at = first + BEYOND; at < columns; at += STEP)
        Row::store(q, at, columns, Row::load(x, at, columns), scaling.factor, seen.finite);
}

// Elements of a row that a block of `largest`, or of a tensor or split rows, takes at a time.
template <class P>
constexpr int CHUNK = P::THREADS * P::VECTOR * P::EACH;

// Quantises a chunk of a row of a group whose scale is fixed or whose parts have been searched.
template <class P>
__device__ __forceinline__ void quantize_chunk(const typename RowVectors<P>::From* x, long long ldx,
                                               typename RowVectors<P>::To* q, long long ldq,
                                               float* scales, const float* workspace, int columns,
                                               int parts) {
    using Row = RowVectors<P>;
    constexpr int STEP = P::THREADS * P::VECTOR;
    const int chunks = (columns - 1) / CHUNK<P> + 1;
    // Backwards, as L2 holds what `largest` has read last.
    const int unit = gridDim.x - 1 - blockIdx.x;
    const long long row = unit / chunks, group = P::SCALE == Scale::ROW ? row : 0;
    const long long first =
        static_cast<long long>(unit % chunks) * CHUNK<P> + threadIdx.x * P::VECTOR;
    typename Row::Stored held[P::EACH];
#pragma unroll
    for (int i = 0; i < P::EACH; ++i) held[i] = Row::load(x + row * ldx, first + i * STEP, columns);
    float factor;
    if constexpr (P::FIXED) {
        // Zeros stay zeros with a scale of 0.
        factor = 1.0f / scales[group];
        if (factor > LARGEST_FLOAT) factor = LARGEST_FLOAT;
    } else {
        float most = 0.0f;
        for (int i = threadIdx.x; i < parts; i += P::THREADS)
            most = fmaxf(most, workspace[group * parts + i]);
        const Scaling scaling = Row::scaling(largest_of<P::THREADS>(most));
        factor = scaling.factor;
        if (first == 0 && row == group) scales[group] = scaling.scale;
    }
#pragma unroll
    for (int i = 0; i < P::EACH; ++i)
        Row::store(q + row * ldq, first + i * STEP, columns, held[i], factor);
}

template <class P>
__device__ __forceinline__ void quantize_blocks(const typename RowVectors<P>::From* x,
                                                long long ldx, typename RowVectors<P>::To* q,
                                                long long ldq, float* scales, int rows,
                                                int columns) {
    using Row = RowVectors<P>;
    constexpr int VECTORS = SCALE_BLOCK / P::VECTOR, SPAN = VECTORS < 32 ? VECTORS : 32;
    constexpr int LOADS = VECTORS / SPAN;
    const int row = blockIdx.x * (P::THREADS / SPAN) + threadIdx.x / SPAN;
    const int lane = threadIdx.x % SPAN, first = blockIdx.y * P::EACH;
    const int inside = row < rows ? columns : 0;  // all lanes take part in the shuffles
    const long long blocks = (columns - 1) / SCALE_BLOCK + 1;
    const long long stored = static_cast<long long>(blockIdx.z) * rows + row;
    x += stored * ldx;
    q += stored * ldq;
    scales += blockIdx.z * blocks * rows;
    typename Row::Stored held[P::EACH][LOADS];
#pragma unroll
    for (int i = 0; i < P::EACH; ++i)
#pragma unroll
        for (int j = 0; j < LOADS; ++j)
            held[i][j] = Row::load(
                x, (first + i) * SCALE_BLOCK + (j * SPAN + lane) * P::VECTOR, inside);
#pragma unroll
    for (int i = 0; i < P::EACH; ++i) {
        Seen seen;
#pragma unroll
        for (int j = 0; j < LOADS; ++j) Row::see(seen, held[i][j]);
        const Scaling scaling = Row::scaling(largest_of_lanes<SPAN>(seen.largest));
        const int block = first + i;
        if (lane == 0 && block * SCALE_BLOCK < inside)
            scales[static_cast<long long>(block) * rows + row] = scaling.scale;
#pragma unroll
        for (int j = 0; j < LOADS; ++j)
            Row::store(q, block * SCALE_BLOCK + (j * SPAN + lane) * P::VECTOR, inside, held[i][j],
                       scaling.factor, seen.finite);
    }
}

}  // namespace

// The largest finite size in each of `parts` shares of a group, which are shares of its chunks.
template <class Params>
__global__ void __launch_bounds__(Params::THREADS)
    largest(const typename Element<Params::FROM>::Type* x, long long ldx, float* workspace,
            int rows, int columns, int parts) {
    using Row = RowVectors<Params>;
    constexpr int STEP = Params::THREADS * Params::VECTOR;
    wait_for_primary();
    launch_dependents();
    const int chunks = (columns - 1) / CHUNK<Params> + 1;
    const int group = blockIdx.x / parts;
    const long long units =
        Params::SCALE == Scale::ROW ? chunks : static_cast<long long>(rows) * chunks;
    Seen seen;
    for (long long unit = blockIdx.x % parts; unit < units; unit += parts) {
        const long long row = Params::SCALE == Scale::ROW ? group : unit / chunks;
        const long long first = unit % chunks * CHUNK<Params> + threadIdx.x * Params::VECTOR;
        typename Row::Stored held[Params::EACH];
#pragma unroll
        for (int i = 0; i < Params::EACH; ++i)
            held[i] = Row::load(x + row * ldx, first + i * STEP, columns);
#pragma unroll
        for (int i = 0; i < Params::EACH; ++i) Row::see(seen, held[i]);
    }
    const float most = largest_of<Params::THREADS>(seen.largest);
    if (threadIdx.x == 0) workspace[blockIdx.x] = most;
}

template <class Params>
__global__ void __launch_bounds__(Params::THREADS)
    quantize(const typename Element<Params::FROM>::Type* x, long long ldx,
             typename Element<Params::TO>::Type* q, long long ldq, float* scales,
             const float* workspace, int rows, int columns, int parts) {
    wait_for_primary();
    launch_dependents();
    if constexpr (Params::SCALE == Scale::BLOCK)
        quantize_blocks<Params>(x, ldx, q, ldq, scales, rows, columns);
    else if constexpr (Params::SPLIT || Params::FIXED)
        quantize_chunk<Params>(x, ldx, q, ldq, scales, workspace, columns, parts);
    else
        quantize_row<Params>(x, ldx, q, ldq, scales, rows, columns);
}
