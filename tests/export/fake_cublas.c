/* A fake cuBLAS: each product takes 0.02 ms of the fake driver's time and is written to standard
 * error once. FAKE_CUBLAS_FAIL=function=status: that function returns that status. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "injected.h"

static int injected_status(const char *function) { return injected("FAKE_CUBLAS_FAIL", function); }

int cublasCreate_v2(void **handle) {
    static int it;
    *handle = &it;
    return injected_status("cublasCreate_v2");
}

int cublasSetStream_v2(void *handle, void *stream) { (void)handle; return stream == NULL; }
int cublasGetVersion_v2(void *handle, int *version) { (void)handle; *version = 130100; return 0; }

int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes) {
    (void)handle;
    return workspace == NULL || bytes == 0;
}

int cublasGemmStridedBatchedEx(void *handle, int op_a, int op_b, int m, int n, int k,
                               const void *alpha, const void *a, int type_a, int lda,
                               long long stride_a, const void *b, int type_b, int ldb,
                               long long stride_b, const void *beta, void *c, int type_c, int ldc,
                               long long stride_c, int batch, int compute, int algorithm) {
    static char last[512];
    char text[512];
    void (*pass)(double);
    void *symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_cuda_pass");
    int status = injected_status("cublasGemmStridedBatchedEx");
    (void)handle, (void)a, (void)b, (void)c;
    if (status) return status;
    memcpy(&pass, &symbol, sizeof symbol);
    pass(0.02);
    snprintf(text, sizeof text, "gemm %d %d %d %d %d %g %g A %d %d %lld B %d %d %lld C %d %d %lld %d %d %d\n",
             op_a, op_b, m, n, k, *(const float *)alpha, *(const float *)beta, type_a, lda, stride_a,
             type_b, ldb, stride_b, type_c, ldc, stride_c, batch, compute, algorithm);
    if (strcmp(text, last)) fputs(strcpy(last, text), stderr);
    return 0;
}
