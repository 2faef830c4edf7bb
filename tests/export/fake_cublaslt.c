/* A fake cuBLASLt, which records its heuristic's questions and its products on standard error.
 * FAKE_CUBLASLT_FAIL=function=status: that function returns that status.
 * FAKE_CUBLASLT_VERSION=number: the version it states, by default 130800. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "injected.h"

typedef struct { int type; unsigned long long rows, columns; long long leading; } Layout;
typedef struct { int compute, operations[2]; } Description;
typedef struct { uint64_t workspace; uint32_t alignment[4], reduction; } Preference;
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int rest[4]; } Heuristic;

static int injected_status(const char *function) { return injected("FAKE_CUBLASLT_FAIL", function); }

size_t cublasLtGetVersion(void) {
    const char *version = getenv("FAKE_CUBLASLT_VERSION");
    return version ? strtoul(version, NULL, 10) : 130800;
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

int cublasLtMatmulDescSetAttribute(void *description, int attribute, const void *value, size_t bytes) {
    if (bytes != 4 || attribute < 3 || attribute > 4) return 7;
    memcpy(&((Description *)description)->operations[attribute - 3], value, 4);
    return 0;
}

int cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    Layout *layout = calloc(1, sizeof *layout);
    layout->type = type, layout->rows = rows, layout->columns = columns, layout->leading = leading;
    *made = layout;
    return 0;
}

int cublasLtMatmulPreferenceCreate(void **made) {
    Preference *preference = calloc(1, sizeof *preference);
    preference->reduction = 7, *made = preference;  /* all schemes */
    return 0;
}

int cublasLtMatmulPreferenceDestroy(void *preference) { free(preference); return 0; }

int cublasLtMatmulPreferenceSetAttribute(void *made, int attribute, const void *value, size_t bytes) {
    Preference *preference = made;
    if (attribute == 1 && bytes == 8) memcpy(&preference->workspace, value, 8);
    else if (attribute == 3 && bytes == 4) memcpy(&preference->reduction, value, 4);
    else if (attribute >= 5 && attribute <= 8 && bytes == 4)
        memcpy(&preference->alignment[attribute - 5], value, 4);
    else return 7;
    return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, Heuristic *result, int *count) {
    const Preference *limits = preference;
    int status = injected_status("cublasLtMatmulAlgoGetHeuristic");
    if (!handle || !description || !a || !b || c != d || wanted != 1) return 7;
    fprintf(stderr, "heuristic %llu %u %u %u %u %u\n", (unsigned long long)limits->workspace,
            limits->alignment[0], limits->alignment[1], limits->alignment[2], limits->alignment[3],
            limits->reduction);
    memset(result, 0, sizeof *result);
    result->algorithm[0] = 42;
    *count = status != 99;
    return status == 99 ? 0 : status;
}

int cublasLtMatmul(void *handle, void *made, const void *alpha, const void *a, void *of_a,
                   const void *b, void *of_b, const void *beta, const void *c, void *of_c, void *d,
                   void *of_d, const uint64_t *algorithm, void *workspace, size_t bytes, void *stream) {
    const Description *description = made;
    const Layout *layouts[3];
    int i, status = injected_status("cublasLtMatmul");
    if (!handle || c != d || of_c != of_d || *algorithm != 42) return 7;
    if (status) return status;
    layouts[0] = of_a, layouts[1] = of_b, layouts[2] = of_c;
    fprintf(stderr, "lt %d %d %d", description->compute, description->operations[0], description->operations[1]);
    for (i = 0; i < 3; ++i)
        fprintf(stderr, " %d:%llux%llu:%lld", layouts[i]->type, layouts[i]->rows, layouts[i]->columns,
                layouts[i]->leading);
    fprintf(stderr, " %p %p %p %g %g %p %zu %p\n", a, b, d, *(const float *)alpha, *(const float *)beta,
            workspace, bytes, stream);
    return 0;
}
