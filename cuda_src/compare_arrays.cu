// Comparison of the arrays of a user kernel with their expected contents.
//
//     | guard | elements | guard |    an array on the device; all three begin at multiples of 16 bytes
//
// `count_changed` counts the bytes outside of [from, to) that differ from a copy: stray writes.
//
// `compare` looks at 16 bytes at a time and judges elements only where these differ. An element is
// wrong if its error exceeds atol + rtol |expected|. NaN is wrong, and so is an infinity that is not
// the expected one. autotune/user_kernels/results.py is the same in NumPy.
//
// Each block leaves its findings in an entry of its own; the host combines the entries.
//
// Constraints: 256 threads a block; dynamic shared memory for a `Findings` of each.
#include "common/number.cuh"

constexpr int THREADS = 256;

struct Findings {
    long long wrong, place;   // wrong elements, or changed bytes; the place of the worst element
    double error, ratio;      // the largest error; the largest error as a multiple of its tolerance
};

template <typename T>
struct Complex {
    T real, imaginary;
};

// An element in double precision.
__device__ inline double wide(double x) { return x; }
__device__ inline double wide(float x) { return x; }
__device__ inline double wide(Half x) { return to_float(x); }
__device__ inline double wide(signed char x) { return x; }
__device__ inline double wide(unsigned char x) { return x; }
__device__ inline double wide(short x) { return x; }
__device__ inline double wide(unsigned short x) { return x; }
__device__ inline double wide(int x) { return x; }
__device__ inline double wide(unsigned x) { return x; }
__device__ inline double wide(long long x) { return static_cast<double>(x); }
__device__ inline double wide(unsigned long long x) { return static_cast<double>(x); }

// Whether two elements are equal; integers of 64 bits exactly.
template <typename A, typename B>
__device__ bool same(A a, B b) {
    return wide(a) == wide(b);
}
__device__ inline bool same(long long a, long long b) { return a == b; }
__device__ inline bool same(unsigned long long a, unsigned long long b) { return a == b; }
template <typename A, typename B>
__device__ bool same(Complex<A> a, Complex<B> b) {
    return a.real == b.real && a.imaginary == b.imaginary;
}

template <typename T>
__device__ double size_of(T x) {
    return fabs(wide(x));
}
template <typename T>
__device__ double size_of(Complex<T> x) {
    return hypot(static_cast<double>(x.real), static_cast<double>(x.imaginary));
}

template <typename A, typename B>
__device__ double distance(A a, B b) {
    return fabs(wide(a) - wide(b));
}
template <typename A, typename B>
__device__ double distance(Complex<A> a, Complex<B> b) {
    return size_of(Complex<double>{static_cast<double>(a.real) - static_cast<double>(b.real),
                                   static_cast<double>(a.imaginary) -
                                       static_cast<double>(b.imaginary)});
}

__device__ inline bool is_finite(double x) { return x - x == 0; }

// The larger of two values, NaN if one of them is.
__device__ inline double larger(double a, double b) { return a > b || a != a ? a : b; }

__device__ inline Findings both(const Findings& a, const Findings& b) {
    const bool first = a.ratio > b.ratio || (a.ratio == b.ratio && a.place < b.place);
    return {a.wrong + b.wrong, first ? a.place : b.place, larger(a.error, b.error),
            first ? a.ratio : b.ratio};
}

// Stores the findings of all threads of a block in its entry.
__device__ inline void report(const Findings& mine, Findings* entries) {
    extern __shared__ Findings findings[];
    findings[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            findings[threadIdx.x] = both(findings[threadIdx.x], findings[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) entries[blockIdx.x] = findings[0];
}

__device__ inline bool equal(uint4 a, uint4 b) {
    return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
}

__device__ inline long long first_index() {
    return static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
}

__device__ inline long long index_step() { return static_cast<long long>(gridDim.x) * THREADS; }

template <typename WORDS>
__global__ void __launch_bounds__(THREADS)
    count_changed(const WORDS* memory, const WORDS* copy, long long bytes, long long from,
                  long long to, Findings* entries) {
    constexpr int BYTES = sizeof(WORDS);
    Findings mine = {};
    for (long long i = first_index(); i < bytes / BYTES; i += index_step()) {
        const long long at = i * BYTES;
        if ((at >= from && at + BYTES <= to) || equal(memory[i], copy[i])) continue;
        const auto* left = reinterpret_cast<const unsigned char*>(memory);
        const auto* right = reinterpret_cast<const unsigned char*>(copy);
        for (long long byte = at; byte < at + BYTES; ++byte)
            mine.wrong += (byte < from || byte >= to) && left[byte] != right[byte];
    }
    report(mine, entries);
}

template <typename T, typename U>
struct IsSame {
    static constexpr bool VALUE = false;
};
template <typename T>
struct IsSame<T, T> {
    static constexpr bool VALUE = true;
};

template <typename ACTUAL, typename EXPECTED>
__global__ void __launch_bounds__(THREADS)
    compare(const ACTUAL* actual, const EXPECTED* expected, long long count, double rtol,
            double atol, Findings* entries) {
    constexpr int EACH = sizeof(uint4) / sizeof(ACTUAL);
    Findings mine = {};
    for (long long i = first_index() * EACH; i < count; i += index_step() * EACH) {
        const long long end = i + EACH < count ? i + EACH : count;
        if (IsSame<ACTUAL, EXPECTED>::VALUE && end == i + EACH &&
            equal(*reinterpret_cast<const uint4*>(actual + i),
                  *reinterpret_cast<const uint4*>(expected + i)))
            continue;
        for (long long place = i; place < end; ++place) {
            const ACTUAL got = actual[place];
            const EXPECTED wanted = expected[place];
            if (same(got, wanted)) continue;
            const double error = distance(got, wanted), size = size_of(wanted);
            const double allowed = is_finite(size) ? atol + rtol * size : 0;
            const bool fits = error <= allowed && allowed > 0;
            const double ratio = fits ? error / allowed : __longlong_as_double(0x7ffll << 52);
            mine.wrong += !fits;
            mine.error = larger(error, mine.error);
            if (ratio > mine.ratio) mine.ratio = ratio, mine.place = place;
        }
    }
    report(mine, entries);
}
