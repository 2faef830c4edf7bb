// The operands of a GEMM, as every tuned kernel takes them.
//
// A kernel takes `Call`, the schedule of its family, and then m, n, k, alpha and beta as plain
// parameters. They stay plain because NVVM splits loops on conditions that are the same for a whole
// warp. It knows that of scalar parameters, but not of members of a struct. With beta in the struct
// every stored vector of an unrolled epilogue has a branch of its own.
//
// Both structs are `const __grid_constant__`. Without that `simt` takes up to 20 registers more
// where a block computes several tiles.
#pragma once

#include "common/number.cuh"

// NVRTC refuses the annotation below compute capability 7.0, for which `simt` compiles too.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#undef __grid_constant__
#define __grid_constant__
#endif

// `call_struct` in autotune/families/shared/arguments.py makes it. A test compares them.
template <class TypeA, class TypeB, class Result>
struct Call {
    const TypeA* a;
    const TypeB* b;
    Result* c;
    const typename BiasOf<Result>::Type* bias;
    const float* scale_a;
    const float* scale_b;
    const Result* residual;
    const float* scale_c;
    float* amax;
    float* workspace;
    int* counters;
    long long lda;
    long long ldb;
    long long ldc;
    long long ldr;
    long long stride_a;
    long long stride_b;
    long long stride_c;
    long long stride_r;
    int b_ready;
};

// A call with its sizes and factors, in registers.
template <class TypeA, class TypeB, class Result>
struct Gemm : Call<TypeA, TypeB, Result> {
    int m, n, k;
    float alpha, beta;
};

// Copies member by member. Members that are read from the parameter itself are loaded again after
// each barrier, and what was computed from them is computed again.
template <class TypeA, class TypeB, class Result>
__device__ __forceinline__ Gemm<TypeA, TypeB, Result> in_registers(
    const Call<TypeA, TypeB, Result>& call, int m, int n, int k, float alpha, float beta) {
    return {{call.a, call.b, call.c, call.bias, call.scale_a, call.scale_b, call.residual,
             call.scale_c, call.amax, call.workspace, call.counters, call.lda, call.ldb, call.ldc,
             call.ldr, call.stride_a, call.stride_b, call.stride_c, call.stride_r, call.b_ready},
            m, n, k, alpha, beta};
}
