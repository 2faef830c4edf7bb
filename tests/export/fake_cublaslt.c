/* A fake cuBLASLt, which records the algorithms that it is asked about and its products on standard
 * error. An algorithm's words are its number, then its settings; its workspace is 4096 bytes times the
 * split of K beyond the first.
 * FAKE_CUBLASLT_FAIL=function=status: that function returns that status.
 * FAKE_CUBLASLT_VERSION=number: the version it states, by default 130200. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "injected.h"

enum { INVALID = 7, SPLIT = 2, SETTINGS = 8 };

typedef struct {
    int type, batch;
    unsigned long long rows, columns;
    long long leading, stride;
} Layout;
typedef struct { int compute, operations[2], epilogue; char fast; } Description;
typedef struct { int16_t words[32]; } Algorithm;
typedef struct { Algorithm algorithm; size_t workspace; int state; float waves; int rest[4]; } Check;

static int injected_status(const char *function) { return injected("FAKE_CUBLASLT_FAIL", function); }

size_t cublasLtGetVersion(void) {
    const char *version = getenv("FAKE_CUBLASLT_VERSION");
    return version ? strtoul(version, NULL, 10) : 130200;
}

int cublasLtCreate(void **handle) {
    static int it;
    *handle = &it;
    return injected_status("cublasLtCreate");
}

int cublasLtMatmulDescCreate(void **made, int compute, int scale) {
    Description *description = calloc(1, sizeof *description);
    description->compute = compute, *made = description;
    return scale != 0;
}

int cublasLtMatmulDescSetAttribute(void *made, int attribute, const void *value, size_t bytes) {
    Description *description = made;
    if (attribute == 25 && bytes == 1) memcpy(&description->fast, value, 1);
    else if (attribute == 7 && bytes == 4) memcpy(&description->epilogue, value, 4);
    else if ((attribute == 3 || attribute == 4) && bytes == 4)
        memcpy(&description->operations[attribute - 3], value, 4);
    else return INVALID;
    return 0;
}

int cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    Layout *layout = calloc(1, sizeof *layout);
    layout->type = type, layout->rows = rows, layout->columns = columns, layout->leading = leading;
    layout->batch = 1, *made = layout;
    return 0;
}

int cublasLtMatrixLayoutSetAttribute(void *made, int attribute, const void *value, size_t bytes) {
    Layout *layout = made;
    if (attribute == 5 && bytes == 4) memcpy(&layout->batch, value, 4);
    else if (attribute == 6 && bytes == 8) memcpy(&layout->stride, value, 8);
    else return INVALID;
    return 0;
}

int cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a, int b, int c, int d, int id,
                           Algorithm *algorithm) {
    if (!handle || !compute || scale != 0 || a != b || c != d) return INVALID;
    memset(algorithm, 0, sizeof *algorithm);
    algorithm->words[0] = (int16_t)id;
    return injected_status("cublasLtMatmulAlgoInit");
}

int cublasLtMatmulAlgoConfigSetAttribute(Algorithm *algorithm, int attribute, const void *value,
                                         size_t bytes) {
    if (attribute < 1 || attribute > SETTINGS || bytes != (attribute < 7 ? 4 : 2)) return INVALID;
    memcpy(&algorithm->words[attribute], value, 2);
    return injected_status("cublasLtMatmulAlgoConfigSetAttribute");
}

int cublasLtMatmulAlgoCheck(void *handle, void *description, void *a, void *b, void *c, void *d,
                            const Algorithm *algorithm, Check *check) {
    int i;
    if (!handle || !description || !a || !b || c != d) return INVALID;
    fprintf(stderr, "check %d:", algorithm->words[0]);
    for (i = 1; i <= SETTINGS; ++i) fprintf(stderr, "%s%d", i > 1 ? "," : "", algorithm->words[i]);
    fprintf(stderr, "\n");
    memset(check, 0, sizeof *check);
    check->workspace = 4096 * (size_t)(algorithm->words[SPLIT] - 1);
    return injected_status("cublasLtMatmulAlgoCheck");
}

int cublasLtMatmul(void *handle, void *made, const void *alpha, const void *a, void *of_a,
                   const void *b, void *of_b, const void *beta, const void *c, void *of_c, void *d,
                   void *of_d, const Algorithm *algorithm, void *workspace, size_t bytes, void *stream) {
    const Description *description = made;
    const Layout *layouts[3];
    int i, status = injected_status("cublasLtMatmul");
    if (!handle || c != d || of_c != of_d || (bytes && !workspace)) return INVALID;
    if (status) return status;
    layouts[0] = of_a, layouts[1] = of_b, layouts[2] = of_c;
    fprintf(stderr, "lt %d %d %d %d", description->compute, description->operations[0],
            description->operations[1], description->epilogue);
    for (i = 0; i < 3; ++i) {
        const Layout *layout = layouts[i];
        fprintf(stderr, " %d:%llux%llu:%lld", layout->type, layout->rows, layout->columns, layout->leading);
        if (layout->batch > 1) fprintf(stderr, ":%dx%lld", layout->batch, layout->stride);
    }
    fprintf(stderr, " %p %p %p %g %g %d %zu %p %p\n", a, b, d, *(const float *)alpha, *(const float *)beta,
            algorithm->words[0], bytes, bytes ? workspace : NULL, stream);
    return 0;
}
