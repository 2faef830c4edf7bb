/* Times every exported problem on the first GPU, beside cuBLAS where there is one.
 *
 *     cc -std=c11 bench.c gemm.c -ldl -lpthread -lm -o bench && ./bench [libcublas.so.13]
 *
 * A time is the median of ROUNDS graphs of many launches each, with operands that the launch before
 * left in L2, if they fit there; both libraries take turns. cuBLAS computes what it can by one call:
 * products without an epilogue and of 16 or 32 bits. Times of problems with an epilogue are beside
 * that of the product alone, in brackets. */
/* @PROBLEMS@ */

#include <math.h>

enum { ROUNDS = 15, MOST_LAUNCHES = 200, WARM_UP = 3 };
static const float GRAPH_MS = 2;
static const size_t CUBLAS_WORKSPACE = (size_t)32 << 20;

typedef struct { void *handle, *workspace; } Cublas;
static int (*cuStreamCreate)(CUstream *, unsigned), (*cuStreamSynchronize)(CUstream);
static int (*cuStreamBeginCapture)(CUstream, int), (*cuStreamEndCapture)(CUstream, void **);
static int (*cuGraphInstantiate)(void **, void *, unsigned long long);
static int (*cuGraphLaunch)(void *, CUstream), (*cuGraphExecDestroy)(void *), (*cuGraphDestroy)(void *);
static int (*cuEventCreate)(void **, unsigned), (*cuEventRecord)(void *, CUstream);
static int (*cuEventElapsedTime)(float *, void *, void *);
static int (*cuDeviceGetName)(char *, int, int);
static int (*cublasCreate)(void **), (*cublasSetStream)(void *, CUstream), (*cublasGetVersion)(void *, int *);
static int (*cublasSetWorkspace)(void *, void *, size_t);
static int (*cublasGemmStridedBatchedEx)(void *, int, int, int, int, int, const void *, const void *,
                                         int, int, long long, const void *, int, int, long long,
                                         const void *, void *, int, int, long long, int, int, int);

/* One problem in device memory, and what computes it. */
typedef struct {
    const Shape *shape;
    gemm_product product;
    void *workspace;
    size_t bytes;
    const Cublas *cublas;     /* NULL: the exported library computes it */
} Run;

/* Random bits of the uniform distribution between -1 and 1, of so many bits of exponent and
 * mantissa; of integers all values. */
static uint32_t drawn(int exponent, int mantissa) {
    static uint64_t state = 1;
    uint32_t bits, power = 0;
    state = state * 6364136223846793005u + 1442695040888963407u;
    bits = (uint32_t)(state >> 32);
    if (exponent == 0) return bits;
    while (power < 4 && bits >> (27 + power) & 1) ++power;
    power = (1u << (exponent - 1)) - 2 - power;
    return (bits & 1) << (exponent + mantissa) | power << mantissa |
           (bits >> 1 & ((1u << mantissa) - 1));
}

/* Device memory with random numbers of a type; `half` makes all of them a half. */
static void *filled(size_t count, int type, int half) {
    static const int EXPONENT[] = {8, 5, 8, 4, 5, 0, 0}, MANTISSA[] = {23, 10, 7, 3, 2, 0, 0};
    size_t size = BYTES[type], i;
    char *host = (char *)malloc(count * size);
    uint64_t device;
    const float value = 0.5f;
    must("malloc", host == NULL);
    for (i = 0; i < count; ++i) {
        uint32_t bits = drawn(EXPONENT[type], MANTISSA[type]);
        if (half) memcpy(&bits, &value, sizeof bits);
        memcpy(host + size * i, &bits, size);
    }
    must("cuMemAlloc", cuMemAlloc(&device, count * size));
    must("cuMemcpyHtoD", cuMemcpyHtoD(device, host, count * size));
    free(host);
    return pointer(device);
}

/* Allocates the operands and the workspace of a problem. */
static Run opened(const Shape *s) {
    int types[3];
    size_t batch = (size_t)s->batch, m = (size_t)s->m, n = (size_t)s->n, k = (size_t)s->k;
    size_t blocks = (k + 127) / 128;
    uint64_t workspace = 0;
    Run run = {s, product_of(s), NULL, 0, NULL};
    gemm_product *p = &run.product;
    find_types(s, types);
    p->a = filled(batch * m * k, types[0], 0), p->b = filled(batch * k * n, types[1], 0);
    p->c = filled(batch * m * n, types[2], 0);
    if (s->epilogue & 1) p->bias = filled(n, BYTES[types[2]] == 1 ? BFLOAT16 : types[2], 0);
    if (s->epilogue / 2 == 5) p->residual = filled(batch * m * n, types[2], 0);
    if (s->scale) {
        size_t of_a = s->scale == GEMM_TENSOR ? 1 : s->scale == GEMM_ROW ? batch * m : batch * m * blocks;
        size_t of_b = s->scale == GEMM_TENSOR ? 1
                      : s->scale == GEMM_ROW  ? batch * n
                                              : batch * ((n + 127) / 128) * blocks;
        p->scale_a = (const float *)filled(of_a, FP32, 1);
        p->scale_b = (const float *)filled(of_b, FP32, 1);
    }
    must("gemm_workspace_size", gemm_workspace_size(p, &run.bytes));
    if (run.bytes) must("cuMemAlloc", cuMemAlloc(&workspace, run.bytes));
    run.workspace = pointer(workspace);
    must("gemm_prepare_workspace", gemm_prepare_workspace(run.workspace, run.bytes, NULL));
    must("cuCtxSynchronize", cuCtxSynchronize());
    return run;
}

static void closed(const Run *run) {
    const gemm_product *p = &run->product;
    const void *places[] = {p->a, p->b, p->c, p->bias, p->residual, p->scale_a, p->scale_b, run->workspace};
    size_t i;
    for (i = 0; i < sizeof places / sizeof *places; ++i)
        if (places[i] != NULL) cuMemFree((uint64_t)(uintptr_t)places[i]);
}

/* cuBLAS with a handle on a stream, of the first library that opens; its handle is NULL if none. */
static Cublas open_cublas(const char *path, CUstream stream) {
    static const char *const NAMES[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    Cublas cublas = {NULL, NULL};
    void *library = path ? dlopen(path, RTLD_NOW) : NULL, *symbols[5];
    uint64_t workspace;
    size_t i;
    for (i = 0; path == NULL && library == NULL && i < 3; ++i) library = dlopen(NAMES[i], RTLD_NOW);
    if (library == NULL) return cublas;
    symbols[0] = dlsym(library, "cublasCreate_v2"), symbols[1] = dlsym(library, "cublasSetStream_v2");
    symbols[2] = dlsym(library, "cublasSetWorkspace_v2");
    symbols[3] = dlsym(library, "cublasGemmStridedBatchedEx");
    symbols[4] = dlsym(library, "cublasGetVersion_v2");
    for (i = 0; i < 5; ++i)
        if (symbols[i] == NULL) return cublas;
    memcpy(&cublasCreate, &symbols[0], sizeof(void *));
    memcpy(&cublasSetStream, &symbols[1], sizeof(void *));
    memcpy(&cublasSetWorkspace, &symbols[2], sizeof(void *));
    memcpy(&cublasGemmStridedBatchedEx, &symbols[3], sizeof(void *));
    memcpy(&cublasGetVersion, &symbols[4], sizeof(void *));
    if (cublasCreate(&cublas.handle)) return cublas.handle = NULL, cublas;
    must("cublasSetStream", cublasSetStream(cublas.handle, stream));
    /* Its own workspace, so that calls can be captured without allocating. */
    must("cuMemAlloc", cuMemAlloc(&workspace, CUBLAS_WORKSPACE));
    cublas.workspace = pointer(workspace);
    must("cublasSetWorkspace",
         cublasSetWorkspace(cublas.handle, cublas.workspace, CUBLAS_WORKSPACE));
    return cublas;
}

/* Enqueues a run; cuBLAS has columns where the problem has rows: C^T = op(B)^T op(A)^T. */
static int enqueued(const Run *run, CUstream stream) {
    enum { COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77, DEFAULT_ALGORITHM = -1 };
    static const int DATA_TYPES[] = {0, 2, 14};
    const gemm_product *p = &run->product;
    const Shape *s = run->shape;
    const float one = 1, zero = 0;
    int types[3], m = (int)s->m, n = (int)s->n, k = (int)s->k;
    if (run->cublas == NULL) return gemm_matmul(p, run->workspace, run->bytes, stream);
    find_types(s, types);
    return cublasGemmStridedBatchedEx(
        run->cublas->handle, s->layout & 1, s->layout >> 1, n, m, k, &one, p->b,
        DATA_TYPES[types[1]], s->layout & 1 ? k : n, s->k * s->n, p->a, DATA_TYPES[types[0]],
        s->layout & 2 ? m : k, s->m * s->k, &zero, p->c, DATA_TYPES[types[2]], n, s->m * s->n,
        (int)s->batch, s->compute == GEMM_TF32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F,
        DEFAULT_ALGORITHM);
}

/* Milliseconds of so many launches of a graph of some, or of as many calls if it is NULL. */
static float elapsed(const Run *run, void *graph, int count, CUstream stream) {
    static void *start, *end;
    float ms;
    int i;
    if (start == NULL) {
        must("cuEventCreate", cuEventCreate(&start, 0));
        must("cuEventCreate", cuEventCreate(&end, 0));
    }
    must("cuEventRecord", cuEventRecord(start, stream));
    for (i = 0; i < count; ++i)
        must("a launch", graph ? cuGraphLaunch(graph, stream) : enqueued(run, stream));
    must("cuEventRecord", cuEventRecord(end, stream));
    must("cuStreamSynchronize", cuStreamSynchronize(stream));
    must("cuEventElapsedTime", cuEventElapsedTime(&ms, start, end));
    return ms;
}

/* A graph of enough launches to be timed, and how many they are. */
static void *captured(const Run *run, CUstream stream, int *count) {
    enum { RELAXED = 2 };
    void *graph, *executable;
    float ms;
    int i;
    elapsed(run, NULL, 1, stream);
    ms = elapsed(run, NULL, WARM_UP, stream) / WARM_UP;
    *count = ms * MOST_LAUNCHES < GRAPH_MS ? MOST_LAUNCHES : (int)(GRAPH_MS / ms) + 1;
    must("cuStreamBeginCapture", cuStreamBeginCapture(stream, RELAXED));
    for (i = 0; i < *count; ++i) must("a captured launch", enqueued(run, stream));
    must("cuStreamEndCapture", cuStreamEndCapture(stream, &graph));
    must("cuGraphInstantiate", cuGraphInstantiate(&executable, graph, 0));
    cuGraphDestroy(graph);
    return executable;
}

static int compared(const void *one, const void *other) {
    float difference = *(const float *)one - *(const float *)other;
    return (difference > 0) - (difference < 0);
}

/* Median microseconds of one launch of each of some runs, which take turns. */
static void timed(const Run *runs, int count, CUstream stream, double *us) {
    float times[2][ROUNDS];
    void *graphs[2];
    int launches[2], i, round;
    for (i = 0; i < count; ++i) graphs[i] = captured(&runs[i], stream, &launches[i]);
    for (round = -WARM_UP; round < ROUNDS; ++round)
        for (i = 0; i < count; ++i) {
            int turn = round & 1 ? count - 1 - i : i;
            float ms = elapsed(&runs[turn], graphs[turn], 1, stream);
            if (round >= 0) times[turn][round] = ms;
        }
    for (i = 0; i < count; ++i) {
        qsort(times[i], ROUNDS, sizeof **times, compared);
        us[i] = 1e3 * (double)times[i][ROUNDS / 2] / launches[i];
        cuGraphExecDestroy(graphs[i]);
    }
}

/* Whether cuBLAS computes a problem, or its product without the epilogue. */
static int has_cublas(const Run *run, const Cublas *cublas, CUstream stream) {
    Run other = *run;
    other.cublas = cublas;
    if (cublas->handle == NULL || run->shape->compute >= GEMM_F8) return 0;
    if (run->shape->epilogue == GEMM_SWIGLU) return 0;
    return enqueued(&other, stream) == 0 && cuStreamSynchronize(stream) == 0;
}

/* Times a problem and prints its line; the time of cuBLAS over that of the library, 0 for none. */
static double benched(const Shape *s, const Cublas *cublas, CUstream stream) {
    Run runs[2];
    double us[2], flop = 2e-6 * (double)s->m * (double)s->n * (double)s->k * (double)s->batch;
    int both;
    runs[0] = runs[1] = opened(s), runs[1].cublas = cublas;
    both = has_cublas(&runs[0], cublas, stream);
    timed(runs, both ? 2 : 1, stream, us);
    printf("%-40s %10.2f us %8.1f TFLOPS", s->name, us[0], flop / us[0]);
    if (both && s->epilogue == GEMM_NONE) printf(" %10.2f us %8.3f", us[1], us[1] / us[0]);
    else if (both) printf("   (%8.2f us)", us[1]);
    printf("\n");
    closed(&runs[0]);
    return both && s->epilogue == GEMM_NONE ? us[1] / us[0] : 0;
}

static void find_functions(void) {
    find(&cuDeviceGetName, "cuDeviceGetName");
    find(&cuStreamCreate, "cuStreamCreate"), find(&cuStreamSynchronize, "cuStreamSynchronize");
    find(&cuStreamBeginCapture, "cuStreamBeginCapture_v2");
    find(&cuStreamEndCapture, "cuStreamEndCapture");
    find(&cuGraphInstantiate, "cuGraphInstantiateWithFlags");
    find(&cuGraphLaunch, "cuGraphLaunch"), find(&cuGraphDestroy, "cuGraphDestroy");
    find(&cuGraphExecDestroy, "cuGraphExecDestroy");
    find(&cuEventCreate, "cuEventCreate"), find(&cuEventRecord, "cuEventRecord");
    find(&cuEventElapsedTime, "cuEventElapsedTime");
}

int main(int count, char **words) {
    char name[256] = "";
    size_t i, compared_count = 0;
    double ratio, sum = 0;
    int status, version = 0;
    Cublas cublas;
    CUstream stream;
    open_gpu();
    find_functions();
    must("cuDeviceGetName", cuDeviceGetName(name, (int)sizeof name - 1, 0));
    must("cuStreamCreate", cuStreamCreate(&stream, 1));
    status = gemm_warm_up();
    must(gemm_message(status), status);
    cublas = open_cublas(count > 1 ? words[1] : NULL, stream);
    if (cublas.handle) cublasGetVersion(cublas.handle, &version);
    if (cublas.handle) printf("%s; the library, then cuBLAS %d and its time over ours\n", name, version);
    else printf("%s; the library alone, since no cuBLAS opens: give its path\n", name);
    for (i = 0; i < sizeof SHAPES / sizeof *SHAPES; ++i)
        if ((ratio = benched(&SHAPES[i], &cublas, stream)) > 0) sum += log(ratio), ++compared_count;
    if (compared_count)
        printf("geometric mean over %d problems: %.3f\n", (int)compared_count,
               exp(sum / (double)compared_count));
    return 0;
}
