// Verification of a product: random operands amid guards, a float64 reference, the comparison.
//
//     | guard | row 0 | gap | row 1 | gap | ... | last row | guard |    a guarded buffer
//
// It has elements of a TYPE (number.cuh), and so have its guards; all lengths count elements.
// A buffer holds the rows of all matrices of a batch: `count` rows `pitch` apart make a group, and
// groups begin `outer` apart. Either a group is a matrix, or, where the matrices lie beside each
// other, it is one row of each of them.
//
// `fill` puts POISON, a NaN, in guards and gaps, so that a stray read spoils the result; `check`
// counts the elements that are not the bits any more that `fill` put there, which stray writes are.
// Operands hold random normal numbers, rounded to their type, that depend on nothing but the seed
// and the position.
//
// The reference is a float64 product in tiles of 64 x 64, 4 x 4 a thread, 16 deep. grid.y splits K,
// and the parts are added up in memory that starts as zeros. grid.z is the matrix of the batch.
//
// A tolerance hides one missing term among thousands. So there is a second kind of operands: small
// integers, whose sums fp32 holds exactly in any order.
//
//     K:    | paired ...        | unpaired: 3 or 4 | paired ...                |
//
// Each paired place has a partner, at a distance that is drawn anew, with the same column of A and
// the negative row of B. Partners cancel, and C is the sum over the unpaired places alone, however
// long K is: so small that every type holds it, and odd, so never 0. A term that is missing, comes
// twice or has another factor changes it by a whole number. `fill_exact` writes A and B,
// `compare_exact` works out C from the positions alone. autotune/measure/exact.py is the same
// in NumPy.
//
// The operands of 8 bits have scales. Those of normal numbers differ by up to 1.25 from `size`,
// which makes up for the factor that brought the numbers into the type's range. Those of an exact
// product are 1 or 1/2, and the same all along K, so that partners cancel.
//
// Constraints: 256 threads a block; reductions take 2048 bytes of dynamic shared memory, the
// reference 16640. `check`, `compare` and `compare_exact` add to results that start as zeros.
#include "common/number.cuh"
#include "common/scale.cuh"

constexpr int THREADS = 256;
constexpr int TILE = 64, DEPTH = 16, STRIDE = TILE + 1;  // odd, against bank conflicts
constexpr int SIDE = 16, PER_THREAD = TILE / SIDE;

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
__device__ inline unsigned long long mixed(unsigned long long bits) {
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    return bits ^ bits >> 31;
}

// Number `index` of the stream `seed`, N(0, 1) by Box and Muller. Never inlined: `fill`, `check`
// and `compare` have to get the same bits.
__device__ inline __attribute__((noinline)) float normal(long long seed, long long index) {
    const unsigned long long bits = mixed(seed + index * 0x9e3779b97f4a7c15);
    const float radius = sqrtf(-2.0f * logf(((bits >> 40) + 0.5f) * 0x1p-24f));
    return radius * cospif((bits & 0xffffff) * 0x1p-23f);
}

// The type of the bits of a number of BYTES bytes, and the bits of its poison.
template <int BYTES>
struct Poison;

template <>
struct Poison<1> {
    using Bits = unsigned char;
    static constexpr Bits POISON = 0x7f;  // a NaN of fp8, and the largest of int8, which has none
};

template <>
struct Poison<2> {
    using Bits = unsigned short;
    static constexpr Bits POISON = 0x7fed;  // a quiet NaN of fp16 and of bfloat16
};

template <>
struct Poison<4> {
    using Bits = unsigned;
    static constexpr Bits POISON = 0x7fffdead;  // a quiet NaN of fp32
};

// The bits of a number of a type, and the bits of its poison.
template <int TYPE, typename T = typename Number<TYPE>::Type>
struct Stored : Poison<sizeof(T)> {
    using typename Poison<sizeof(T)>::Bits;

    static __device__ Bits bits(float x) {
        const union {
            T value;
            Bits bits;
        } both = {from_float<T>(x)};
        return both.bits;
    }
};

// The layout of a buffer.
struct Buffer {
    long long guard, length, columns, pitch, count, outer;

    __device__ long long end() const { return length + 2 * guard; }
    // Whether place `i`, counted from the first element, is in a row.
    __device__ bool holds(long long i) const {
        if (i < 0 || i >= length) return false;
        const long long place = i % outer;
        return place / pitch < count && place % pitch < columns;
    }
};

__device__ inline long long first_index() {
    return static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
}

__device__ inline long long index_step() { return static_cast<long long>(gridDim.x) * THREADS; }

// Values that elements are filled with and checked for; POISONED accepts any value. RAISED
// and LOWERED are the integers that C holds before an exact product, EVEN those of its bias, SCALES
// the scales of normal numbers.
constexpr int POISONED = 0, NORMAL = 1, ZERO = 2, RAISED = 3, LOWERED = 4, EVEN = 5, SCALES = 6;

// Number `index` of the stream `seed` among the integers of C: 44, 48 or 52. The exact product adds
// at most 2 * 13 + 4 with either sign, so that C stays positive and no ReLU hides it.
__device__ inline float raised(long long seed, long long index) {
    return 44.0f + 4.0f * (mixed(seed + index * 0x9e3779b97f4a7c15) % 3);
}

// Number `index` of the stream `seed` among the integers of the bias: -4, -2, 2 or 4.
__device__ inline float even(long long seed, long long index) {
    const unsigned long long bits = mixed(seed + index * 0x9e3779b97f4a7c15);
    return (bits & 1 ? -2.0f : 2.0f) * (1.0f + (bits >> 1 & 1));
}

// Number `index` of the stream `seed` among the scales of normal numbers: 0.8 to 1.25.
__device__ inline float uneven(long long seed, long long index) {
    const float share = (mixed(seed + index * 0x9e3779b97f4a7c15) >> 40) * 0x1p-24f;
    return fmaf(share, 0.45f, 0.8f);
}

// The number that an element holds, for any content that is one; those drawn from a continuous law
// are `size` times as large.
__device__ inline float number(int content, long long seed, long long index, float size) {
    if (content == SCALES) return size * uneven(seed, index);
    if (content == RAISED) return raised(seed, index);
    if (content == LOWERED) return -raised(seed, index);
    if (content == EVEN) return even(seed, index);
    return content == NORMAL ? size * normal(seed, index) : 0.0f;
}

// Guards and gaps are filled if `guards`; else only rows are.
template <int TYPE>
__global__ void __launch_bounds__(THREADS)
    fill(typename Stored<TYPE>::Bits* memory, long long guard, long long length, long long columns,
         long long pitch, long long count, long long outer, int content, long long seed, float size,
         int guards) {
    const Buffer buffer = {guard, length, columns, pitch, count, outer};
    for (long long at = first_index(); at < buffer.end(); at += index_step()) {
        const long long i = at - guard;
        const bool held = buffer.holds(i);
        if (!held && !guards) continue;
        if (content == POISONED || !held)
            memory[at] = Stored<TYPE>::POISON;
        else
            memory[at] = Stored<TYPE>::bits(number(content, seed, i, size));
    }
}

// Fills the scales of A (B = 0) or B for an exact product: 1 or 1/2. There are `count` for each
// matrix, and `blocks` of each of them along K: in rows of the others for A, side by side for B.
template <int B>
__global__ void __launch_bounds__(THREADS)
    fill_scales(float* scales, long long count, long long blocks, long long batch, long long seed) {
    for (long long i = first_index(); i < batch * count * blocks; i += index_step()) {
        const long long matrix = i / (count * blocks), within = i % (count * blocks);
        const long long outer = matrix * count + (B ? within / blocks : within % count);
        scales[i] = mixed(seed + outer * 0x9e3779b97f4a7c15) & 1 ? 0.5f : 1.0f;
    }
}

// Which places of K have a partner in an exact product: all but `terms` from `first` on. The
// others, `paired` of them, are put in another order by an affine map, and neighbours there are
// partners.
struct Pairing {
    long long first, terms, paired, factor, shift, sizes;
};

// Factor of A (B = 0) or of B at place `p` of K, for row or column `outer`, counted on from matrix
// to matrix: 1 to `sizes`, a power of 2 up to 8, with either sign. Unpaired, one product is 1 or
// -1, the others are 2 or 4.
template <int B>
__device__ float exact_factor(long long seed, long long outer, long long p, Pairing pairing) {
    const long long term = p - pairing.first;
    const bool unpaired = 0 <= term && term < pairing.terms;
    unsigned long long place = term, side = 0;
    if (!unpaired) {
        place = (static_cast<unsigned long long>(p < pairing.first ? p : p - pairing.terms) *
                     pairing.factor + pairing.shift) % pairing.paired;
        side = place & B;
        place = pairing.terms + place / 2;
    }
    const unsigned long long bits = mixed(seed + ((outer << 32) + place) * 0x9e3779b97f4a7c15);
    int size = 1 + (bits >> 1 & (pairing.sizes - 1));
    if (unpaired) size = place == 0 ? 1 : B ? 1 + (bits >> 1 & 1) : 2;
    return (bits & 1) != side ? -size : size;
}

// Fills the rows of A (B = 0) or B with the integers of an exact product. K runs along the columns
// or, if `k_down`, along the rows. `beside` says that a group is one row of each matrix.
template <int TYPE, int B>
__global__ void __launch_bounds__(THREADS)
    fill_exact(typename Stored<TYPE>::Bits* memory, long long guard, long long length,
               long long columns, long long pitch, long long count, long long outer,
               int beside, int k_down, long long rows, long long first, long long terms,
               long long paired, long long factor, long long shift, long long sizes,
               long long seed) {
    const Buffer buffer = {guard, length, columns, pitch, count, outer};
    const Pairing pairing = {first, terms, paired, factor, shift, sizes};
    for (long long i = first_index(); i < length; i += index_step()) {
        if (!buffer.holds(i)) continue;
        const long long group = i / outer, within = i % outer / pitch, column = i % outer % pitch;
        const long long matrix = beside ? within : group, row = beside ? group : within;
        const long long p = k_down ? row : column;
        const long long o = k_down ? matrix * columns + column : matrix * rows + row;
        memory[guard + i] = Stored<TYPE>::bits(exact_factor<B>(seed, o, p, pairing));
    }
}

// The larger of two values, NaN if one of them is.
__device__ inline double larger(double a, double b) { return a > b || a != a ? a : b; }

// The sum, or the largest, of a value of each thread; meant for thread 0.
template <int LARGEST>
__device__ double reduced(double value) {
    extern __shared__ double shared[];
    __syncthreads();
    shared[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            const double other = shared[threadIdx.x + half];
            value = LARGEST ? larger(value, other) : value + other;
            shared[threadIdx.x] = value;
        }
    }
    return value;
}

// *changed += places that differ from what `fill` put there; those in rows count unless POISONED.
template <int TYPE>
__global__ void __launch_bounds__(THREADS)
    check(const typename Stored<TYPE>::Bits* memory, long long guard, long long length,
          long long columns, long long pitch, long long count, long long outer, int content,
          long long seed, float size, double* changed) {
    const Buffer buffer = {guard, length, columns, pitch, count, outer};
    double mine = 0;
    for (long long at = first_index(); at < buffer.end(); at += index_step()) {
        const long long i = at - guard;
        if (!buffer.holds(i))
            mine += memory[at] != Stored<TYPE>::POISON;
        else if (content != POISONED)
            mine += memory[at] != Stored<TYPE>::bits(number(content, seed, i, size));
    }
    mine = reduced<0>(mine);
    if (threadIdx.x == 0 && mine != 0) atomicAdd(changed, mine);
}

// The scales of one operand: A (B = 0) or B, of `count` rows or columns and `k` places of K.
template <int SCALE, int B>
struct Scales {
    const float* scales;
    long long count, k;

    // The scale of the element in row or column `outer` of a matrix at place `p` of K.
    __device__ double of(long long matrix, long long outer, long long p) const {
        constexpr Scale MODE = static_cast<Scale>(SCALE);
        const long long blocks = (k + SCALE_BLOCK - 1) / SCALE_BLOCK, block = p / SCALE_BLOCK;
        if (MODE == Scale::TENSOR) return scales[0];
        if (MODE == Scale::ROW) return scales[matrix * count + outer];
        if (MODE == Scale::BLOCK && !B) return scales[(matrix * blocks + block) * count + outer];
        if (MODE == Scale::BLOCK) {
            const long long down = (count + SCALE_BLOCK - 1) / SCALE_BLOCK;
            return scales[(matrix * down + outer / SCALE_BLOCK) * blocks + block];
        }
        return 1.0;
    }
};

// A tile of op(X) times its scales into shared memory, k-major, zeros outside. Element (o, p) is at
// o * ld + p for ALONG_K = 1 and at p * ld + o for 0.
template <int ALONG_K, typename T, typename S>
__device__ void stage(double* tile, const T* x, long long ld, long long first, int count,
                      long long k_first, long long k_end, const S& scales) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        const int o = ALONG_K ? i / DEPTH : i % TILE, p = ALONG_K ? i % DEPTH : i / TILE;
        const long long outer = first + o, inner = k_first + p;
        const bool inside = outer < count && inner < k_end;
        const long long at = ALONG_K ? outer * ld + inner : inner * ld + outer;
        tile[p * STRIDE + o] = inside ? to_float(x[at]) * scales.of(blockIdx.z, outer, inner) : 0;
    }
}

// product (m x n for each matrix, no gaps) += op(A) op(B) over `chunk` of K for each blockIdx.y.
template <int TYPE_A, int TYPE_B, int SCALE, int TRANS_A, int TRANS_B>
__global__ void __launch_bounds__(THREADS)
    reference(const typename Number<TYPE_A>::Type* a, long long lda,
              const typename Number<TYPE_B>::Type* b, long long ldb, const float* scale_a,
              const float* scale_b, double* product, int m, int n, int k, long long chunk,
              long long stride_a, long long stride_b) {
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    product += blockIdx.z * (static_cast<long long>(m) * n);
    extern __shared__ double shared[];
    double* const tile_a = shared;
    double* const tile_b = shared + DEPTH * STRIDE;
    const long long tiles = (n + TILE - 1ll) / TILE;
    const long long row = blockIdx.x / tiles * TILE, column = blockIdx.x % tiles * TILE;
    const long long k_first = blockIdx.y * chunk;
    const long long k_end = k_first + chunk < k ? k_first + chunk : k;
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;

    const Scales<SCALE, 0> scales_a = {scale_a, m, k};
    const Scales<SCALE, 1> scales_b = {scale_b, n, k};
    double sums[PER_THREAD][PER_THREAD] = {};
    for (long long p = k_first; p < k_end; p += DEPTH) {
        stage<!TRANS_A>(tile_a, a, lda, row, m, p, k_end, scales_a);
        stage<TRANS_B>(tile_b, b, ldb, column, n, p, k_end, scales_b);
        __syncthreads();
#pragma unroll
        for (int step = 0; step < DEPTH; ++step) {
            double left[PER_THREAD], right[PER_THREAD];
            for (int i = 0; i < PER_THREAD; ++i) left[i] = tile_a[step * STRIDE + y + i * SIDE];
            for (int j = 0; j < PER_THREAD; ++j) right[j] = tile_b[step * STRIDE + x + j * SIDE];
            for (int i = 0; i < PER_THREAD; ++i)
                for (int j = 0; j < PER_THREAD; ++j) sums[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < PER_THREAD; ++i)
        for (int j = 0; j < PER_THREAD; ++j) {
            const long long r = row + y + i * SIDE, c = column + x + j * SIDE;
            if (r < m && c < n) atomicAdd(product + r * n + c, sums[i][j]);
        }
}

// The epilogue in float64: bit 0 adds the bias, the rest is the activation (1 ReLU, 2 GELU, 3 its
// tanh form, 4 SiLU), a residual (5), which the caller adds, or SwiGLU (6), which `gated` computes.
// GELU is 0 at -infinity, where its formula gives NaN.
template <int EPILOGUE, typename T>
__device__ double finished(double value, const T* bias, long long column) {
    constexpr int ACTIVATION = EPILOGUE >> 1;
    if (EPILOGUE & 1) value += to_float(bias[column]);
    if (ACTIVATION == 1) return value < 0 ? 0.0 : value;
    if (ACTIVATION == 2 && value < -50) return 0.0;
    if (ACTIVATION == 2) return 0.5 * value * (1 + erf(value * 0.70710678118654752));
    if (ACTIVATION == 3)
        return 0.5 * value *
               (1 + tanh(0.79788456080286536 * (value + 0.044715 * value * value * value)));
    if (ACTIVATION == 4) return value / (1 + exp(-value));
    return value;
}

constexpr int RESIDUAL = 5, SWIGLU = 6;

__device__ inline double gated(double gate, double up) { return gate / (1 + exp(-gate)) * up; }

// The columns of C, and the column of the product that is the gate of one of them; what it is for
// is GATE_SPAN further on.
template <int EPILOGUE>
__device__ int width_of(int n) {
    return EPILOGUE >> 1 == SWIGLU ? n / 2 : n;
}
constexpr int GATE_SPAN = 8;
__device__ inline long long gate_column(long long column) {
    return column / GATE_SPAN * (2 * GATE_SPAN) + column % GATE_SPAN;
}

// An element in float64; fp32 does not hold every int32.
template <typename T>
__device__ double wide(T x) {
    return to_float(x);
}
__device__ inline double wide(int x) { return x; }

// The larger of the largest errors, and the sum of the wrong elements, of all threads.
__device__ inline void report(double* verdict, double largest, double wrong) {
    largest = reduced<1>(largest);
    wrong = reduced<0>(wrong);
    if (threadIdx.x != 0) return;
    // As bits, positive numbers have their own order, and NaN, whose sign fabs clears, is above.
    atomicMax(reinterpret_cast<unsigned long long*>(verdict),
              static_cast<unsigned long long>(__double_as_longlong(fabs(largest))));
    atomicAdd(verdict + 1, wrong);
}

// verdict: the largest error, which is |C - epilogue(alpha product + beta C0)| less what rounding
// that to C's type may do, `roundoff` of its size; elements where it exceeds `tolerance`; sums of
// squares of the whole difference and of what is expected. NaN in C stays NaN and counts as wrong.
// The errors of SwiGLU count in units of 1 + |gate| + |up| + `tolerance`, with which they grow.
// C0 is what `fill` put into C with `seed`; it is not looked at for beta = 0. C has been
// multiplied by `scale`.
template <int OUTPUT, int EPILOGUE>
__global__ void __launch_bounds__(THREADS)
    compare(const double* product, const typename Number<OUTPUT>::Type* c, long long ldc,
            long long stride_c, int m, int n, int batch, float alpha, float beta,
            const typename BiasOf<typename Number<OUTPUT>::Type>::Type* bias,
            const typename Number<OUTPUT>::Type* residual, long long ldr, long long stride_r,
            float scale, long long seed, float roundoff, float tolerance, double* verdict) {
    using Type = typename Number<OUTPUT>::Type;
    double largest = 0, wrong = 0, differences = 0, squares = 0;
    const long long rows = static_cast<long long>(m) * batch;
    const int width = width_of<EPILOGUE>(n);
    for (long long i = first_index(); i < rows * width; i += index_step()) {
        const long long row = i / width, column = i % width;
        const long long at = row / m * stride_c + row % m * ldc + column;
        const float old = beta == 0 ? 0.0f : to_float(from_float<Type>(normal(seed, at)));
        const double before = static_cast<double>(beta) * old;
        double expected, unit = 1;
        if (EPILOGUE >> 1 == SWIGLU) {
            const double* gate = product + row * n + gate_column(column);
            expected = gated(gate[0], gate[GATE_SPAN]);
            unit += fabs(gate[0]) + fabs(gate[GATE_SPAN]) + tolerance;
        } else {
            expected = finished<EPILOGUE>(alpha * product[i] + before, bias, column);
        }
        if (EPILOGUE >> 1 == RESIDUAL)
            expected += to_float(residual[row / m * stride_r + row % m * ldr + column]);
        const double difference = fabs(wide(c[at]) / scale - expected);
        const double error = (difference - roundoff * fabs(expected)) / unit;
        largest = larger(largest, error);
        wrong += !(error <= tolerance);
        differences += difference * difference;
        squares += expected * expected;
    }
    report(verdict, largest, wrong);
    differences = reduced<0>(differences);
    squares = reduced<0>(squares);
    if (threadIdx.x != 0) return;
    atomicAdd(verdict + 2, differences);
    atomicAdd(verdict + 3, squares);
}

// The first two of these figures for C = epilogue(alpha A B + beta C0 + bias) for the integers of
// `fill_exact`, multiplied by `scale`; with `amax` also the largest magnitude expected before that,
// and the one in `amax`. C0 is RAISED for a positive beta and LOWERED for a negative one, the bias
// and the residual EVEN. Expected are the exact bits, up to `tolerance` and `roundoff` of their
// size: both 0 unless the epilogue rounds or a scale is very small or large.
//
// Row `special_row` of the first A, if not -1, has `special` at the first unpaired place of K, and
// so has column `special_column` of the first B: an infinity or NaN has to reach just that row or
// column. If `any_special`, NaN may stand for an infinity, also before an activation.
template <int OUTPUT, int EPILOGUE, int SCALE>
__global__ void __launch_bounds__(THREADS)
    compare_exact(const typename Number<OUTPUT>::Type* c, long long ldc, long long stride_c, int m,
                  int n, int batch, int batch_a, int batch_b, float alpha, float beta,
                  long long seed_a, long long seed_b, long long seed_c, long long seed_bias,
                  long long first, long long terms, long long special_row,
                  long long special_column, float special, int any_special, float tolerance,
                  float roundoff, const float* scale_a, const float* scale_b, int k,
                  long long seed_residual, long long ldr, long long stride_r, float scale,
                  const float* amax, double* verdict) {
    using Type = typename Number<OUTPUT>::Type;
    double magnitude = 0;
    const Pairing pairing = {first, terms, 0, 0, 0, 8};
    const Scales<SCALE, 0> scales_a = {scale_a, m, k};
    const Scales<SCALE, 1> scales_b = {scale_b, n, k};
    double largest = 0, wrong = 0;
    const long long rows = static_cast<long long>(m) * batch;
    const int width = width_of<EPILOGUE>(n);
    for (long long i = first_index(); i < rows * width; i += index_step()) {
        const long long column = i % width, row = i / width % m, matrix = i / width / m;
        const long long at = matrix * stride_c + row * ldc + column;
        const long long o_a = (batch_a > 1 ? matrix * m : 0) + row;
        const auto sum_of = [&](long long product_column) {
            const long long o_b = (batch_b > 1 ? matrix * n : 0) + product_column;
            double sum = 0;
            for (long long term = 0; term < terms; ++term) {
                double left = exact_factor<0>(seed_a, o_a, first + term, pairing);
                double right = exact_factor<1>(seed_b, o_b, first + term, pairing);
                if (term == 0 && o_a == special_row) left = special;
                if (term == 0 && o_b == special_column) right = special;
                sum += left * right;
            }
            return sum * (scales_a.of(matrix, row, 0) * scales_b.of(matrix, product_column, 0));
        };
        const double before = fabs(beta) * static_cast<double>(beta == 0 ? 0 : raised(seed_c, at));
        const float bias = EPILOGUE & 1 ? even(seed_bias, column) : 0.0f;
        double value, expected;
        if (EPILOGUE >> 1 == SWIGLU) {
            const double gate = sum_of(gate_column(column));
            const double up = sum_of(gate_column(column) + GATE_SPAN);
            value = gate + up;
            expected = gated(gate, up);
        } else {
            value = alpha * sum_of(column) + before;
            expected = finished<EPILOGUE>(value, &bias, 0);
        }
        if (EPILOGUE >> 1 == RESIDUAL)
            expected += even(seed_residual, matrix * stride_r + row * ldr + column);
        if (fabs(expected) > magnitude) magnitude = fabs(expected);
        const double got = wide(c[at]) / scale;
        const bool finite = value - value == 0;
        if (got == expected || (got != got && (any_special ? !finite : expected != expected)))
            continue;
        const auto rounded = from_float<Type>(static_cast<float>(expected * scale));
        if (roundoff != 0 && got == wide(rounded) / scale) continue;
        const double difference = fabs(got - expected) - roundoff * fabs(expected);
        largest = larger(largest, difference);
        wrong += !(difference <= tolerance);
    }
    report(verdict, largest, wrong);
    if (amax == nullptr) return;
    report(verdict + 2, magnitude, 0);
    if (first_index() == 0) verdict[3] = amax[0];
}
