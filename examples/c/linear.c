/* A linear layer, max(X W + bias, 0), of an exported library in C.
 *
 *     autotune export 64x256x128:f32:bias_relu --device h100 --name gemm --out gemm
 *     cc -std=c11 examples/c/linear.c gemm/gemm.c -Igemm -l:libcuda.so.1 -ldl -lpthread -o linear
 *     ./linear
 *
 * Without --device the kernel is for the GPU of this machine. The exit status is 0 if the result
 * equals that of the CPU.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gemm.h"

/* The part of cuda.h (CUDA toolkit) that is used here. */
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
int cuMemFree_v2(CUdeviceptr address);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);

enum { ROWS = 64, OUT = 256, IN = 128 };

static float x[ROWS][IN], w[IN][OUT], bias[OUT], y[ROWS][OUT];

static void check(const char *what, int status, const char *message) {
    if (status == 0) return;
    fprintf(stderr, "%s: %s (%d, driver %d)\n", what, message, status, gemm_driver_error());
    exit(1);
}
#define CUDA(call) check(#call, call, "the driver refused it")
#define GEMM(call)                                      \
    do {                                                \
        int status_ = call;                             \
        check(#call, status_, gemm_message(status_));   \
    } while (0)

static void *device_copy(const void *host, size_t bytes) {
    CUdeviceptr address;
    CUDA(cuMemAlloc_v2(&address, bytes));
    CUDA(cuMemcpyHtoD_v2(address, host, bytes));
    return (void *)(size_t)address;
}

int main(void) {
    void *context, *workspace = NULL;
    size_t bytes;
    float worst = 0;
    gemm_product layer = gemm_default(ROWS, OUT, IN);

    for (int i = 0; i < ROWS * IN; ++i) x[0][i] = (float)(i % 7 - 3);
    for (int i = 0; i < IN * OUT; ++i) w[0][i] = (float)(i % 5 - 2);
    for (int i = 0; i < OUT; ++i) bias[i] = (float)(i % 11 - 5);

    CUDA(cuInit(0));
    CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CUDA(cuCtxSetCurrent(context));
    layer.epilogue = GEMM_BIAS_RELU;
    layer.a = device_copy(x, sizeof x);
    layer.b = device_copy(w, sizeof w);
    layer.bias = device_copy(bias, sizeof bias);
    layer.c = device_copy(y, sizeof y);

    GEMM(gemm_workspace_size(&layer, &bytes));
    if (bytes) {
        CUdeviceptr address;
        CUDA(cuMemAlloc_v2(&address, bytes));
        workspace = (void *)(size_t)address;
    }
    GEMM(gemm_prepare_workspace(workspace, bytes, NULL));
    GEMM(gemm_matmul(&layer, workspace, bytes, NULL));
    CUDA(cuCtxSynchronize());
    CUDA(cuMemcpyDtoH_v2(y, (CUdeviceptr)(size_t)layer.c, sizeof y));

    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < OUT; ++j) {
            float sum = bias[j];
            for (int p = 0; p < IN; ++p) sum += x[i][p] * w[p][j];
            worst = fmaxf(worst, fabsf(y[i][j] - fmaxf(sum, 0)));
        }
    printf("largest error %g\n", worst);

    CUDA(cuMemFree_v2((CUdeviceptr)(size_t)layer.a));
    CUDA(cuMemFree_v2((CUdeviceptr)(size_t)layer.b));
    CUDA(cuMemFree_v2((CUdeviceptr)(size_t)layer.c));
    CUDA(cuMemFree_v2((CUdeviceptr)(size_t)layer.bias));
    if (bytes) CUDA(cuMemFree_v2((CUdeviceptr)(size_t)workspace));
    CUDA(cuDevicePrimaryCtxRelease_v2(0));
    return worst != 0;
}
