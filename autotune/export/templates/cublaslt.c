/* cuBLASLt's algorithms, for shapes that one of them was measured to be the fastest on. The first of
 * these shapes opens the library. Where it is missing, of another version or refuses the algorithm, the
 * exported kernel runs. Constants and structures of cublasLt.h. */
enum {
    LT_ALIGNMENT = 16, LT_TRANSPOSED = 3, LT_EPILOGUE = 7, LT_FAST = 25, LT_BATCH = 5, LT_STRIDE = 6,
    LT_SETTINGS = 8, LT_WIDE_SETTINGS = 6
};
typedef struct { uint64_t words[8]; } LtAlgorithm;
typedef struct { LtAlgorithm algorithm; size_t workspace; int state; float waves; int rest[4]; } LtCheck;
#define LT_FUNCTIONS(X) \
    X(cublasLtCreate, (void **)) \
    X(cublasLtMatmulDescCreate, (void **, int, int)) \
    X(cublasLtMatmulDescSetAttribute, (void *, int, const void *, size_t)) \
    X(cublasLtMatrixLayoutCreate, (void **, int, uint64_t, uint64_t, int64_t)) \
    X(cublasLtMatrixLayoutSetAttribute, (void *, int, const void *, size_t)) \
    X(cublasLtMatmulAlgoInit, (void *, int, int, int, int, int, int, int, LtAlgorithm *)) \
    X(cublasLtMatmulAlgoConfigSetAttribute, (LtAlgorithm *, int, const void *, size_t)) \
    X(cublasLtMatmulAlgoCheck, \
      (void *, void *, void *, void *, void *, void *, const LtAlgorithm *, LtCheck *)) \
    X(cublasLtMatmul, (void *, void *, const void *, const void *, void *, const void *, void *, \
                       const void *, const void *, void *, void *, void *, const LtAlgorithm *, void *, \
                       size_t, CUstream))
#define MEMBER(name, arguments) int(*name) arguments;
static struct { LT_FUNCTIONS(MEMBER) size_t (*cublasLtGetVersion)(void); } lt;
#undef MEMBER

/* A recorded algorithm: the library's version and the product as the library is told of it, which
 * computes C^T = op(B)^T op(A)^T, so that B comes first; then its number and its settings, from the
 * attribute CUBLASLT_ALGO_CONFIG_TILE_ID = 1 on, the last two of 16 bits. */
typedef struct {
    size_t version;
    int compute, factor, operations[2], types[3];
    uint32_t epilogue;
    int8_t fast;
    int id;
    uint32_t settings[LT_SETTINGS];
} LtRecord;

/* @ALGORITHMS@ */

/* A shape on a GPU: 1 if cuBLASLt runs it, 2 if it does not, 0 if that is not known yet. */
typedef struct { int state; void *description, *layouts[3]; LtCheck check; } LtShape;
static LtShape lt_shapes[ORDINALS][LT_COUNT];
static void *lt_handles[ORDINALS];
static int lt_state;  /* as of a shape, of the library */

/* Opens the library; the caller holds the lock. */
static int open_lt(void) {
    void *library, *symbol;
    int found;
    if (lt_state) return lt_state;
    library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) library = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    found = library != NULL;
#define FIND(name, arguments)                      \
    symbol = found ? dlsym(library, #name) : NULL; \
    if (symbol == NULL) found = 0;                 \
    else memcpy(&lt.name, &symbol, sizeof symbol);
    LT_FUNCTIONS(FIND)
    FIND(cublasLtGetVersion, )
#undef FIND
    return lt_state = found ? 1 : 2;
}

/* Describes a product and makes its recorded algorithm; the caller holds the lock. The library has
 * columns where the product has rows. */
static int made_lt(const Given *given, const LtRecord *record, int ordinal, LtShape *shape) {
    static const int ORDER[3] = {1, 0, 2};
    const int32_t batch = (int32_t)given->batch, *type = record->types;
    void **handle = &lt_handles[ordinal], **layout = shape->layouts;
    LtAlgorithm algorithm;
    int i;
    if (open_lt() != 1 || lt.cublasLtGetVersion() != record->version ||
        (*handle == NULL && lt.cublasLtCreate(handle)) ||
        lt.cublasLtMatmulDescCreate(&shape->description, record->compute, record->factor) ||
        lt.cublasLtMatmulDescSetAttribute(shape->description, LT_EPILOGUE, &record->epilogue, 4) ||
        lt.cublasLtMatmulDescSetAttribute(shape->description, LT_FAST, &record->fast, 1) ||
        lt.cublasLtMatmulAlgoInit(*handle, record->compute, record->factor, type[0], type[1], type[2],
                                  type[2], record->id, &algorithm))
        return 2;
    for (i = 0; i < 2; ++i)
        if (lt.cublasLtMatmulDescSetAttribute(shape->description, LT_TRANSPOSED + i,
                                              &record->operations[i], 4))
            return 2;
    for (i = 0; i < 3; ++i) {
        const int at = ORDER[i];
        const int64_t stride = given->words[STRIDES[at]];
        if (lt.cublasLtMatrixLayoutCreate(&layout[i], type[i], (uint64_t)given->columns[at],
                                          (uint64_t)given->rows[at], given->columns[at]) ||
            lt.cublasLtMatrixLayoutSetAttribute(layout[i], LT_BATCH, &batch, 4) ||
            lt.cublasLtMatrixLayoutSetAttribute(layout[i], LT_STRIDE, &stride, 8))
            return 2;
    }
    for (i = 0; i < LT_SETTINGS; ++i) {
        const uint32_t setting = record->settings[i];
        const uint16_t narrow = (uint16_t)setting;
        if (i < LT_WIDE_SETTINGS
                ? lt.cublasLtMatmulAlgoConfigSetAttribute(&algorithm, 1 + i, &setting, sizeof setting)
                : lt.cublasLtMatmulAlgoConfigSetAttribute(&algorithm, 1 + i, &narrow, sizeof narrow))
            return 2;
    }
    if (lt.cublasLtMatmulAlgoCheck(*handle, shape->description, layout[0], layout[1], layout[2],
                                   layout[2], &algorithm, &shape->check))
        return 2;
    shape->check.algorithm = algorithm;
    return 1;
}

/* The shape of a plan that cuBLASLt computes on this GPU; NULL if the exported kernel does. */
static const LtShape *lt_shape(const gemm_product *p, const Given *given, const Plan *plan,
                               const Card *card, int ordinal) {
    int i, mode = CAPTURE_RELAXED, number = plan->m ? LT_NUMBERS[plan - PLANS] : -1;
    LtShape *shape;
    /* With an alpha of 0, A and B must not count, not even NaN; cuBLASLt does not promise that. */
    if (number < 0 || card->ptx || p->dependent || p->alpha == 0) return NULL;
    for (i = 0; i < 3; ++i) {
        int64_t dense = given->batch == 1 ? 0 : given->rows[i] * given->columns[i];
        if (given->words[LEADING[i]] != given->columns[i] || given->words[STRIDES[i]] != dense ||
            (uint64_t)given->words[MATRICES[i]] % LT_ALIGNMENT)
            return NULL;
    }
    shape = &lt_shapes[ordinal][number];
    if (!__atomic_load_n(&shape->state, __ATOMIC_ACQUIRE)) {
        if (driver.cuThreadExchangeStreamCaptureMode(&mode)) return NULL;
        pthread_mutex_lock(&lock);
        if (!shape->state)
            __atomic_store_n(&shape->state, made_lt(given, &LT_RECORDS[number], ordinal, shape),
                             __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
        driver.cuThreadExchangeStreamCaptureMode(&mode);
    }
    return __atomic_load_n(&shape->state, __ATOMIC_ACQUIRE) == 1 ? shape : NULL;
}

/* Bytes of workspace that serve both the algorithm and the exported kernel, counters included. */
static size_t lt_needed(const LtShape *shape, const Plan *plan) {
    size_t bytes = shape->check.workspace ? counter_bytes() + shape->check.workspace : 0;
    return bytes > needed(plan) ? bytes : needed(plan);
}

/* Enqueues a shape; -1 if the library refuses, before anything is launched. */
static int lt_launched(const LtShape *shape, const gemm_product *p, const Plan *plan, int ordinal,
                       void *workspace, size_t bytes, CUstream stream) {
    const size_t wanted = lt_needed(shape, plan);
    if (wanted) {
        if (workspace == NULL) return GEMM_WORKSPACE_NULL;
        if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT) return GEMM_WORKSPACE_MISALIGNED;
        if (bytes < wanted) return GEMM_WORKSPACE_SMALL;
    }
    return lt.cublasLtMatmul(lt_handles[ordinal], shape->description, &p->alpha, p->b, shape->layouts[0],
                             p->a, shape->layouts[1], &p->beta, p->c, shape->layouts[2], p->c,
                             shape->layouts[2], &shape->check.algorithm,
                             wanted ? (char *)workspace + counter_bytes() : NULL, shape->check.workspace,
                             stream)
               ? -1
               : GEMM_OK;
}
