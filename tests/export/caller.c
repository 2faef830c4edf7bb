/* Makes the calls that standard input describes, one a line, and writes the outcome of each to
 * standard error, where the fake driver records its calls.
 *
 * A line has a verb (`choose`, `matmul`, `size`, `prepare` or `warm`) and 34 numbers: the fields of
 * lib_product in order, the address and bytes of the workspace, and the stream. */
#include "lib.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char verb[16]; lib_product product; uint64_t workspace, bytes, stream; } Call;

static int parsed(const char *line, Call *call) {
    int64_t m, n, k, batch, s[8];
    uint64_t a, b, c, bias, scale_a, scale_b, residual, scale_result, amax;
    int compute, layout, epilogue, output, dependent, scale, accumulate, e5m2;
    float alpha, beta;
    int found = sscanf(
        line,
        "%15s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %d %d %d %d %" SCNu64 " %" SCNu64
        " %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
        " %" SCNd64 " %f %f %d %d %d %d %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64
        " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
        call->verb, &m, &n, &k, &batch, &compute, &layout, &epilogue, &output, &a, &b, &c, &bias,
        &s[0], &s[1], &s[2], &s[3], &s[4], &s[5], &alpha, &beta, &dependent, &scale,
        &accumulate, &e5m2, &scale_a, &scale_b, &residual, &s[6], &s[7], &scale_result,
        &amax, &call->workspace, &call->bytes, &call->stream);
    call->product = lib_default(m, n, k);
    call->product.batch = batch;
    call->product.compute = compute, call->product.layout = layout;
    call->product.epilogue = epilogue, call->product.output = output;
    call->product.a = (const void *)(uintptr_t)a, call->product.b = (const void *)(uintptr_t)b;
    call->product.c = (void *)(uintptr_t)c, call->product.bias = (const void *)(uintptr_t)bias;
    call->product.lda = s[0], call->product.ldb = s[1], call->product.ldc = s[2];
    call->product.stride_a = s[3], call->product.stride_b = s[4], call->product.stride_c = s[5];
    call->product.alpha = alpha, call->product.beta = beta;
    call->product.dependent = dependent, call->product.scale = scale;
    call->product.accumulate = accumulate, call->product.e5m2 = e5m2;
    call->product.scale_a = (const float *)(uintptr_t)scale_a;
    call->product.scale_b = (const float *)(uintptr_t)scale_b;
    call->product.residual = (const void *)(uintptr_t)residual;
    call->product.ldr = s[6], call->product.stride_r = s[7];
    call->product.scale_result = (const float *)(uintptr_t)scale_result;
    call->product.amax = (float *)(uintptr_t)amax;
    return found == 35;
}

static int made(const Call *call) {
    void *workspace = (void *)(uintptr_t)call->workspace;
    CUstream stream = (CUstream)(uintptr_t)call->stream;
    size_t bytes = 0;
    lib_choice choice;
    int status = -1;
    if (strcmp(call->verb, "matmul") == 0)
        status = lib_matmul(&call->product, workspace, (size_t)call->bytes, stream);
    if (strcmp(call->verb, "prepare") == 0)
        status = lib_prepare_workspace(workspace, (size_t)call->bytes, stream);
    if (strcmp(call->verb, "warm") == 0) status = lib_warm_up();
    if (strcmp(call->verb, "nothing") == 0)
        status = lib_matmul(NULL, NULL, 0, NULL) == LIB_NULL && lib_choose(NULL, NULL) == LIB_NULL &&
                 lib_workspace_size(&call->product, NULL) == LIB_NULL ? LIB_OK : -1;
    if (strcmp(call->verb, "size") == 0) {
        status = lib_workspace_size(&call->product, &bytes);
        fprintf(stderr, "bytes %zu\n", bytes);
    }
    if (strcmp(call->verb, "choose") == 0) {
        status = lib_choose(&call->product, &choice);
        if (status == LIB_OK)
            fprintf(stderr, "choice %d %zu %d %s %s;%s%s\n", choice.exported, choice.workspace,
                    choice.launches, choice.how, choice.config, choice.device,
                    choice.ptx ? ";ptx" : "");
    }
    return status;
}

static void *repeated(void *call) {
    intptr_t wrong = 0;
    int i;
    for (i = 0; i < 200; ++i) wrong += made((const Call *)call) != LIB_OK;
    return (void *)wrong;
}

/* Eight threads that start together and all make the first call. */
static int raced(const Call *call) {
    pthread_t threads[8];
    void *wrong;
    int i, all = 0;
    for (i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, repeated, (void *)(uintptr_t)call);
    for (i = 0; i < 8; ++i) pthread_join(threads[i], &wrong), all += (int)(intptr_t)wrong;
    return all;
}

int main(int count, char **words) {
    char line[1024];
    Call call;
    while (fgets(line, sizeof line, stdin)) {
        int status;
        if (!parsed(line, &call)) return 2;
        if (count > 1 && strcmp(words[1], "race") == 0) return raced(&call) != 0;
        status = made(&call);
        fprintf(stderr, "status %d %d %s\n", status, lib_driver_error(), lib_message(status));
    }
    return 0;
}
