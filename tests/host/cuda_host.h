// CUDA C++ for the host compiler: what the kernels of cuda_src/ use of it, under sanitizers.
//
// Force-included before a kernel file. The machine (machine.h) runs threads as fibers that take turns
// at barriers and shuffles. Dynamic shared memory (`extern __shared__ T name[]`) is `host_shared`, with
// which the generated unit equates `name`. Static __shared__ arrays are static variables, which do not
// start as NaN.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tensor_host.h"

#define AUTOTUNE_HOST 1
#define __global__ inline
#define __device__
#define __shared__
// Only a hint here: instances compile several times faster when nothing is forced inline.
#define __forceinline__ inline
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __syncthreads() host::barrier(__FILE__, __LINE__)

struct dim3 {
    unsigned x, y, z;
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

// A vector lies at a multiple of its size; UBSan checks each access.
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

template <typename To, typename From>
inline To host_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits as another type");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float x) { return host_bits<unsigned>(x); }
inline int __float_as_int(float x) { return host_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return host_bits<float>(x); }
inline float __int_as_float(int x) { return host_bits<float>(x); }

// The low, or high, word of the 64 bits high:low after a shift by up to 31.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>(((1ull * high << 32) | low) >> (shift & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>(((1ull * high << 32) | low) << (shift & 31) >> 32);
}
// Byte i is the one of second:first that bits 4 i to 4 i + 2 of the selector number.
inline unsigned __byte_perm(unsigned first, unsigned second, unsigned selector) {
    const unsigned long long bytes = (1ull * second << 32) | first;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i)
        result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return result;
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(1ull * a * b >> 32);
}

extern "C" float fmaf(float a, float b, float c) noexcept;
extern "C" float exp2f(float x) noexcept;
extern "C" float fabsf(float x) noexcept;
extern "C" float fminf(float a, float b) noexcept;
extern "C" float fmaxf(float a, float b) noexcept;

template <typename T>
inline T __ldg(const T* address) {
    return *address;
}
template <typename T>
inline T __ldcg(const T* address) {
    return *address;
}
template <typename T>
inline void __stcg(T* address, T value) {
    *address = value;
}

// A thread runs until it waits, and no other at the same time: all memory is in order.
inline void __threadfence() {}

template <typename T>
inline T atomicAdd(T* address, T value) {
    return std::exchange(*address, *address + value);
}

template <typename T>
inline T atomicMax(T* address, T value) {
    return std::exchange(*address, *address < value ? value : *address);
}

#define HOST_MIN_MAX(T)                                   \
    constexpr T min(T a, T b) { return b < a ? b : a; }   \
    constexpr T max(T a, T b) { return a < b ? b : a; }
HOST_MIN_MAX(int)
HOST_MIN_MAX(unsigned)
HOST_MIN_MAX(long long)
HOST_MIN_MAX(float)
#undef HOST_MIN_MAX

namespace host {

// Waits for all threads of the block; aborts if some have exited or wait at another barrier.
void barrier(const char* file, int line);

// Waits like `barrier`; then says whether any thread of the block gave true.
bool barrier_or(bool value, const char* file, int line);

// Waits for all lanes of the warp, which must all come to this line; then gives the 8 bytes that
// `lane` brought.
unsigned long long exchange(unsigned long long mine, int lane, unsigned mask, const char* file,
                            int line);
int own_lane();

// cp.async of 4, 8 or 16 bytes. `shared` holds NaN until a wait covers the copy.
void copy_async(void* shared, const void* global, int bytes, bool valid);
void copy_commit();
void copy_wait(int allowed_pending);

constexpr std::size_t STRUCT_LIMIT = 512;  // bytes

// A kernel argument as a plan gives it; `type` is p(ointer), i(32), l(ong, i64), f(32), d(ouble), t(ensor
// map) or s(truct), which has `size` bytes.
struct Argument {
    char type;
    std::size_t size;
    union {
        unsigned char bytes[STRUCT_LIMIT];
        void* pointer;
        int i32;
        long long i64;
        float f32;
        double f64;
        alignas(64) TensorMapValue map;
    };

    operator int() const { return i32; }
    operator long long() const { return i64; }
    operator float() const { return f32; }
    operator double() const { return f64; }
    template <typename T>
    operator T*() const {
        return static_cast<T*>(pointer);
    }
};

// A parameter with the size and the alignment of a tensor map is one.
template <typename T>
inline constexpr char type_of = sizeof(T) == 128 && alignof(T) == 64 ? 't' : std::is_class_v<T> ? 's' : 0;
template <typename T>
inline constexpr char type_of<T*> = 'p';
template <>
inline constexpr char type_of<int> = 'i';
template <>
inline constexpr char type_of<long long> = 'l';
template <>
inline constexpr char type_of<float> = 'f';
template <>
inline constexpr char type_of<double> = 'd';

// Aborts with a message unless `arguments`, `count` of them, have the types in `taken`, and structs
// these sizes.
void expect(const Argument* arguments, std::size_t count, const char* taken,
            const std::size_t* sizes);

template <typename P>
P value_of(const Argument& argument) {
    if constexpr (type_of<P> == 't') {
        P map{};
        std::memcpy(&map, &argument.map, sizeof argument.map);
        return map;
    } else if constexpr (type_of<P> == 's') {
        static_assert(std::is_trivially_copyable_v<P>, "a struct is copied byte by byte");
        P value;
        std::memcpy(&value, argument.bytes, sizeof value);
        return value;
    } else {
        return static_cast<P>(argument);
    }
}

template <typename... P, std::size_t... I>
void call(void (*kernel)(P...), const Argument* arguments, std::index_sequence<I...>) {
    kernel(value_of<P>(arguments[I])...);
}

// A kernel instance in the launcher's table, under the name that jobs give, and its clusters.
struct Instance {
    using Run = void (*)(const Argument*, std::size_t count);
    Instance(const char* name, Run run, dim3 cluster);
};

template <auto KERNEL>
struct Kernel;
template <typename... P, void (*KERNEL)(P...)>
struct Kernel<KERNEL> {
    static void run(const Argument* arguments, std::size_t count) {
        static constexpr char taken[] = {type_of<P>..., 0};
        static constexpr std::size_t sizes[] = {sizeof(P)...};
        expect(arguments, count, taken, sizes);
        call(KERNEL, arguments, std::index_sequence_for<P...>());
    }
};

template <typename T>
T shuffle(T value, int lane, unsigned mask, const char* file, int line) {
    unsigned long long bits = 0;
    static_assert(sizeof value <= sizeof bits, "a shuffle moves up to 8 bytes");
    std::memcpy(&bits, &value, sizeof value);
    bits = exchange(bits, lane, mask, file, line);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The lane itself if `lane` lies outside of its own group of `width` lanes.
inline int within(int lane, int width) {
    return lane >= 0 && lane / width == own_lane() / width ? lane : own_lane();
}

}  // namespace host

#define __syncthreads_or(value) host::barrier_or(value, __FILE__, __LINE__)
#define __syncwarp() host::exchange(0, host::own_lane(), 0xffffffff, __FILE__, __LINE__)

// The builtins name the caller's place: lanes that shuffle at different lines have diverged.
#define HOST_SHUFFLE(NAME, SOURCE)                                                            \
    template <typename T>                                                                     \
    T NAME(unsigned mask, T value, int lane, int width = 32,                                  \
           const char* file = __builtin_FILE(), int line = __builtin_LINE()) {                \
        return host::shuffle(value, SOURCE, mask, file, line);                                \
    }
HOST_SHUFFLE(__shfl_sync, host::own_lane() / width * width + lane % width)
HOST_SHUFFLE(__shfl_xor_sync, host::within(host::own_lane() ^ lane, width))
HOST_SHUFFLE(__shfl_down_sync, host::within(host::own_lane() + lane, width))
HOST_SHUFFLE(__shfl_up_sync, host::within(host::own_lane() - lane, width))
#undef HOST_SHUFFLE
