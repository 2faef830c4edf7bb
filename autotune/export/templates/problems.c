/* The exported problems, and the first GPU. */
#include "gemm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    int64_t m, n, k, batch;
    int compute, layout, epilogue, output, scale, accumulate, e5m2;
} Shape;

/* @SHAPES@ */

enum { FP32, FP16, BFLOAT16, E4M3, E5M2, INT8, INT32 };
static const size_t BYTES[] = {4, 2, 2, 1, 1, 1, 4};

/* Functions of the driver. A program that links with -lcuda can call them by name. */
static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *), (*cuCtxSynchronize)(void);
static int (*cuMemAlloc)(uint64_t *, size_t), (*cuMemFree)(uint64_t);
static int (*cuMemcpyHtoD)(uint64_t, const void *, size_t);
static int (*cuMemcpyDtoH)(void *, uint64_t, size_t);

static void must(const char *what, int status) {
    if (status == 0) return;
    fprintf(stderr, "%s gave %d\n", what, status);
    exit(1);
}

static void find(void *function, const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol;
    must(gemm_message(GEMM_NO_DRIVER), library == NULL);
    symbol = dlsym(library, name);
    must(name, symbol == NULL);
    memcpy(function, &symbol, sizeof symbol);
}

/* The types of A, B and C. */
static void find_types(const Shape *s, int types[3]) {
    static const int OPERANDS[] = {FP32, FP32, FP32, FP16, BFLOAT16, E4M3, E5M2, INT8};
    static const int OUTPUTS[] = {-1, FP32, FP16, BFLOAT16, INT32, E4M3, E5M2};
    int own = s->compute >= GEMM_F8 ? BFLOAT16 : OPERANDS[s->compute];
    types[0] = types[1] = OPERANDS[s->compute];
    if (s->compute == GEMM_F8E5 && s->e5m2 != GEMM_E5M2_AB) types[s->e5m2 == GEMM_E5M2_A] = E4M3;
    types[2] = s->output == GEMM_SAME ? own : OUTPUTS[s->output];
}

static gemm_product product_of(const Shape *s) {
    gemm_product product = gemm_default(s->m, s->n, s->k);
    product.batch = s->batch;
    product.compute = s->compute, product.layout = s->layout;
    product.epilogue = s->epilogue, product.output = s->output;
    product.scale = s->scale, product.accumulate = s->accumulate, product.e5m2 = s->e5m2;
    return product;
}

static void *pointer(uint64_t address) { return (void *)(uintptr_t)address; }

/* Makes the primary context of the first GPU current. */
static void open_gpu(void) {
    void *context;
    find(&cuInit, "cuInit");
    find(&cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    find(&cuCtxSetCurrent, "cuCtxSetCurrent");
    find(&cuCtxSynchronize, "cuCtxSynchronize");
    find(&cuMemAlloc, "cuMemAlloc_v2");
    find(&cuMemFree, "cuMemFree_v2");
    find(&cuMemcpyHtoD, "cuMemcpyHtoD_v2");
    find(&cuMemcpyDtoH, "cuMemcpyDtoH_v2");
    must("cuInit", cuInit(0));
    must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
    must("cuCtxSetCurrent", cuCtxSetCurrent(context));
}
