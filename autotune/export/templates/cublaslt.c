/* cuBLASLt, for shapes that it was measured to be faster on. The first of them opens it; where it is
 * missing or refuses one, the exported kernel runs. Constants and structures of cublasLt.h. */
enum {
    VENDOR_WORKSPACE = 32 << 20, VENDOR_ALIGNMENT = 16, R_32F = 0, R_16F = 2, R_16BF = 14,
    COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77, OPERATION_A = 3, OPERATION_B = 4,
    MOST_WORKSPACE = 1, REDUCTION_SCHEMES = 3, LEAST_ALIGNMENT = 5
};

/* Versions whose split-K kernels drop the tail of K on compute capabilities 9.0, 10.x and 11.x, as
 * cublasLtGetVersion states them: from 12.6.3 of CUDA 12.6 Update 2 on, and before 13.8.0 of CUDA
 * 13.4 Update 1 (NVIDIA's release notes of cuBLAS). There split-K is excluded: without a scheme of
 * reduction, each element is summed in one sequence. */
enum { FAULTY_SPLIT_K = 120603, MENDED_SPLIT_K = 130800 };
static const uint32_t NO_REDUCTION = 0;
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int rest[4]; } Heuristic;
#define VENDOR_FUNCTIONS(X) \
    X(cublasLtCreate, (void **)) \
    X(cublasLtMatmulDescCreate, (void **, int, int)) \
    X(cublasLtMatmulDescSetAttribute, (void *, int, const void *, size_t)) \
    X(cublasLtMatrixLayoutCreate, (void **, int, uint64_t, uint64_t, int64_t)) \
    X(cublasLtMatmulPreferenceCreate, (void **)) \
    X(cublasLtMatmulPreferenceSetAttribute, (void *, int, const void *, size_t)) \
    X(cublasLtMatmulPreferenceDestroy, (void *)) \
    X(cublasLtMatmulAlgoGetHeuristic, \
      (void *, void *, void *, void *, void *, void *, void *, int, Heuristic *, int *)) \
    X(cublasLtMatmul, (void *, void *, const void *, const void *, void *, const void *, void *, \
                       const void *, const void *, void *, void *, void *, const uint64_t *, void *, \
                       size_t, CUstream))
#define MEMBER(name, arguments) int(*name) arguments;
static struct { VENDOR_FUNCTIONS(MEMBER) size_t (*cublasLtGetVersion)(void); } vendor;
#undef MEMBER

/* A shape on a GPU: 1 if cuBLASLt runs it, 2 if it does not, 0 if it was not asked yet. */
typedef struct { int state; void *description, *layouts[3]; Heuristic best; } Vendor;
static Vendor vendor_shapes[ORDINALS][VENDOR_COUNT];
static void *vendor_handles[ORDINALS];
static int vendor_state;  /* as of a shape, of the library */

/* Opens the library; the caller holds the lock. */
static int open_vendor(void) {
    void *library, *symbol;
    int found;
    if (vendor_state) return vendor_state;
    library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) library = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    found = library != NULL;
#define FIND(name, arguments)                      \
    symbol = found ? dlsym(library, #name) : NULL; \
    if (symbol == NULL) found = 0;                 \
    else memcpy(&vendor.name, &symbol, sizeof symbol);
    VENDOR_FUNCTIONS(FIND)
    FIND(cublasLtGetVersion, )
#undef FIND
    return vendor_state = found ? 1 : 2;
}

/* Whether the library's split-K kernels are wrong. */
static int split_k_is_faulty(void) {
    const size_t version = vendor.cublasLtGetVersion();
    return FAULTY_SPLIT_K <= version && version < MENDED_SPLIT_K;
}

/* Asks the library's heuristic for a shape; the caller holds the lock. It has columns where the
 * product has rows, and computes C^T = op(B)^T op(A)^T. */
static int ask_vendor(const gemm_product *p, const Given *given, int ordinal, Vendor *shape) {
    const int operations[2] = {p->layout & 1, p->layout >> 1};
    const int type = p->compute == GEMM_F16 ? R_16F : p->compute == GEMM_BF16 ? R_16BF : R_32F;
    const uint32_t alignment = VENDOR_ALIGNMENT;
    const uint64_t limit = VENDOR_WORKSPACE;
    void **handle = &vendor_handles[ordinal], *preference;
    int i, failed_calls, count = 0;
    if (open_vendor() != 1 || (*handle == NULL && vendor.cublasLtCreate(handle))) return 2;
    if (vendor.cublasLtMatmulDescCreate(
            &shape->description, p->compute == GEMM_TF32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F, R_32F) ||
        vendor.cublasLtMatmulDescSetAttribute(shape->description, OPERATION_A, &operations[0], 4) ||
        vendor.cublasLtMatmulDescSetAttribute(shape->description, OPERATION_B, &operations[1], 4))
        return 2;
    for (i = 0; i < 3; ++i)
        if (vendor.cublasLtMatrixLayoutCreate(&shape->layouts[i],
                                              i == 2 && given->size[2] == 4 ? R_32F : type,
                                              (uint64_t)given->columns[i], (uint64_t)given->rows[i],
                                              given->columns[i]))
            return 2;
    if (vendor.cublasLtMatmulPreferenceCreate(&preference)) return 2;
    failed_calls = vendor.cublasLtMatmulPreferenceSetAttribute(preference, MOST_WORKSPACE, &limit, 8);
    if (split_k_is_faulty())
        failed_calls |= vendor.cublasLtMatmulPreferenceSetAttribute(preference, REDUCTION_SCHEMES,
                                                                    &NO_REDUCTION, 4);
    for (i = 0; i < 4; ++i)
        failed_calls |= vendor.cublasLtMatmulPreferenceSetAttribute(preference, LEAST_ALIGNMENT + i,
                                                                    &alignment, 4);
    failed_calls |= vendor.cublasLtMatmulAlgoGetHeuristic(
        *handle, shape->description, shape->layouts[1], shape->layouts[0], shape->layouts[2],
        shape->layouts[2], preference, 1, &shape->best, &count);
    vendor.cublasLtMatmulPreferenceDestroy(preference);
    return failed_calls || count < 1 || shape->best.state ? 2 : 1;
}

/* The shape of a plan that cuBLASLt computes on this GPU; NULL if the exported kernel does. */
static const Vendor *vendor_of(const gemm_product *p, const Given *given, const Plan *plan,
                               const Card *card, int ordinal) {
    int i, mode = CAPTURE_RELAXED, number = plan->m ? VENDOR_SHAPES[plan - PLANS] : -1;
    Vendor *shape;
    /* With an alpha of 0, A and B must not count, not even NaN; cuBLASLt does not promise that. */
    if (number < 0 || card->ptx || p->alpha == 0) return NULL;
    for (i = 0; i < 3; ++i)
        if (given->words[LEADING[i]] != given->columns[i] ||
            (uint64_t)given->words[MATRICES[i]] % VENDOR_ALIGNMENT)
            return NULL;
    shape = &vendor_shapes[ordinal][number];
    if (!__atomic_load_n(&shape->state, __ATOMIC_ACQUIRE)) {
        if (driver.cuThreadExchangeStreamCaptureMode(&mode)) return NULL;
        pthread_mutex_lock(&lock);
        if (!shape->state)
            __atomic_store_n(&shape->state, ask_vendor(p, given, ordinal, shape), __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
        driver.cuThreadExchangeStreamCaptureMode(&mode);
    }
    return __atomic_load_n(&shape->state, __ATOMIC_ACQUIRE) == 1 ? shape : NULL;
}

/* Bytes behind the counters. */
static size_t vendor_workspace(const Plan *plan) {
    return plan->workspace > VENDOR_WORKSPACE ? plan->workspace : (size_t)VENDOR_WORKSPACE;
}

/* Enqueues a shape; -1 if the library refuses, before anything is launched. */
static int vendor_launched(const Vendor *shape, const gemm_product *p, int ordinal, void *workspace,
                           size_t bytes, CUstream stream) {
    if (workspace == NULL) return GEMM_WORKSPACE_NULL;
    if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT) return GEMM_WORKSPACE_MISALIGNED;
    if (bytes < counter_bytes() + VENDOR_WORKSPACE) return GEMM_WORKSPACE_SMALL;
    return vendor.cublasLtMatmul(vendor_handles[ordinal], shape->description, &p->alpha, p->b,
                                 shape->layouts[1], p->a, shape->layouts[0], &p->beta, p->c,
                                 shape->layouts[2], p->c, shape->layouts[2], shape->best.algorithm,
                                 (char *)workspace + counter_bytes(), VENDOR_WORKSPACE, stream)
               ? -1
               : GEMM_OK;
}
