/* Makes random calls of an exported library, most of them invalid, and judges every answer.
 *
 *     bad_calls COUNT SEED < problems
 *
 * A line of `problems` has m, n, k, batch, compute, layout, epilogue, output, scale, accumulate and
 * e5m2 of a problem that the library has a kernel for. Each call starts from one of them, in memory far apart, and gets up
 * to three hostile fields. The rules of lib.h are written here once more, with 128-bit integers and
 * element by element where the matrices are small. A call is unsafe if it breaks a rule and is
 * accepted, or is refused after a launch. A call that keeps all rules must be accepted.
 *
 * Writes a line for each wrong answer, then "calls refused accepted unsafe" with their numbers. */
#include "lib.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 Wide;

enum { PROBLEMS = 64, SMALL = 4096, WORKSPACE_UNIT = 256 };
static const Wide FAR = (Wide)1 << 40;

typedef struct {
    int64_t m, n, k, batch;
    int compute, layout, epilogue, output, scale, accumulate, e5m2;
} Problem;
/* A matrix, or a batch of them, as the rules of lib.h describe it. */
typedef struct { Wide at, rows, columns, leading, stride, batch, size; } Operand;
typedef struct { lib_product product; void *workspace; size_t bytes; } Call;

static Problem problems[PROBLEMS];
static int problem_count;
static const unsigned long long *launches; /* of the fake driver */

static uint64_t state;

static uint64_t drawn(void) {
    uint64_t x = state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static int below(int limit) { return (int)(drawn() % (uint64_t)limit); }

/* A value that a caller gets wrong: a limit of a type, a neighbour of the right one, a random one. */
static int64_t hostile(int64_t right) {
    static const int64_t EXTREMES[] = {
        0, -1, -2, 1, 2, 255, INT32_MAX, (int64_t)INT32_MAX + 1, INT32_MIN, UINT32_MAX,
        (int64_t)UINT32_MAX + 2, 65535, 65536, (int64_t)1 << 40, ((int64_t)1 << 40) + 1,
        (int64_t)1 << 61, (int64_t)1 << 62, INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1};
    switch (below(4)) {
        case 0: return (int64_t)((uint64_t)right + drawn() % 7 - 3);
        case 1: return (int64_t)(drawn() >> below(64));
        default: return EXTREMES[below((int)(sizeof EXTREMES / sizeof *EXTREMES))];
    }
}

static int64_t leading_of(const lib_product *p, int i) {
    return i == 0 ? (p->layout & 2 ? p->m : p->k) : i == 1 ? (p->layout & 1 ? p->k : p->n) : p->n;
}

static void spoil_pointer(lib_product *p) {
    const void **inputs[5] = {
        &p->a, &p->b, &p->bias, (const void **)&p->scale_a, (const void **)&p->scale_b};
    uint64_t c = (uint64_t)(uintptr_t)p->c, moved = c + (drawn() % 513 - 256) * 4;
    const void **input = inputs[below(5)];
    switch (below(4)) {
        case 0: *input = NULL; break;
        case 1: *input = (const char *)*input + 1 + below(7); break;
        case 2: *input = (const void *)(uintptr_t)moved; break;
        default: p->c = below(2) ? NULL : (void *)(uintptr_t)(c + 1 + (uint64_t)below(7));
    }
}

static void spoil(Call *call) {
    lib_product *p = &call->product;
    int64_t *sizes[4] = {&p->m, &p->n, &p->k, &p->batch};
    int64_t *leading[3] = {&p->lda, &p->ldb, &p->ldc};
    int64_t *strides[3] = {&p->stride_a, &p->stride_b, &p->stride_c};
    int *codes[8] = {&p->compute, &p->layout, &p->epilogue, &p->output, &p->dependent,
                     &p->scale, &p->accumulate, &p->e5m2};
    int i = below(4), j = below(3), code = below(8);
    switch (below(7)) {
        case 0: *sizes[i] = hostile(*sizes[i]); break;
        case 1: *codes[code] = below(2) ? below(10) - 1 : (int)hostile(*codes[code]); break;
        case 2: *leading[j] = hostile(leading_of(p, j)); break;
        case 3:
            p->batch = 1 + below(4);
            *strides[j] = hostile(below(2) ? leading_of(p, j) : p->m);
            break;
        case 4: spoil_pointer(p); break;
        case 5: p->alpha = below(2) ? (float)(1e300 * 1e300) : -0.0f, p->beta = p->alpha * 0; break;
        default:
            if (below(2)) call->bytes = (size_t)hostile((int64_t)call->bytes);
            else if (below(2)) call->workspace = NULL;
            else call->workspace = (char *)call->workspace + 1 + below(WORKSPACE_UNIT - 1);
    }
}

static Wide extent(const Operand *o) {
    return ((o->rows - 1) * o->leading + (o->batch - 1) * o->stride + o->columns) * o->size;
}

/* Whether an address is inside an element of an operand. */
static int inside(const Operand *o, Wide address) {
    Wide z, offset = address - o->at;
    if (offset < 0 || offset >= extent(o)) return 0;
    for (z = 0; z < o->batch; ++z) {
        Wide rest = offset - z * o->stride * o->size, row = rest / (o->leading * o->size);
        if (rest < 0) return 0;
        if (row >= o->rows) row = o->rows - 1;
        if (rest - row * o->leading * o->size < o->columns * o->size) return 1;
        if (o->stride == 0) return 0;
    }
    return 0;
}

static Wide address_of(const Operand *o, Wide z, Wide row, Wide column) {
    return o->at + (z * o->stride + row * o->leading + column) * o->size;
}

/* Whether two operands share an element: exact if C is small, else by the corners of C. */
static int shares(const Operand *c, const Operand *other) {
    int exact = c->rows * c->columns * c->batch <= SMALL;
    Wide z, row, column;
    for (z = 0; z < c->batch; z += exact || c->batch == 1 ? 1 : c->batch - 1)
        for (row = 0; row < c->rows; row += exact || c->rows == 1 ? 1 : c->rows - 1)
            for (column = 0; column < c->columns;
                 column += exact || c->columns == 1 ? 1 : c->columns - 1) {
                Wide address = address_of(c, z, row, column);
                if (inside(other, address) || inside(other, address + c->size - 1)) return 1;
            }
    return 0;
}

static int ordered(const void *first, const void *second) {
    Wide a = *(const Wide *)first, b = *(const Wide *)second;
    return a < b ? -1 : a > b;
}

/* Whether two elements of a small C have one address. */
static int repeats(const Operand *c) {
    static Wide addresses[SMALL];
    size_t count = 0, i;
    Wide z, row, column;
    if (c->rows * c->columns * c->batch > SMALL) return 0;
    for (z = 0; z < c->batch; ++z)
        for (row = 0; row < c->rows; ++row)
            for (column = 0; column < c->columns; ++column)
                addresses[count++] = address_of(c, z, row, column);
    qsort(addresses, count, sizeof *addresses, ordered);
    for (i = 1; i < count; ++i)
        if (addresses[i] == addresses[i - 1]) return 1;
    return 0;
}

static const char *described(const lib_product *p, Operand *operands) {
    const int64_t leading[3] = {p->lda, p->ldb, p->ldc};
    const int64_t stride[3] = {p->stride_a, p->stride_b, p->stride_c};
    const void *at[3] = {p->a, p->b, p->c};
    int in = p->compute >= LIB_F8 ? 1 : p->compute >= LIB_F16 ? 2 : 4, i;
    int wide = in == 4 || p->output == LIB_FLOAT || p->output == LIB_INT;
    for (i = 0; i < 3; ++i) {
        Operand *o = &operands[i];
        int turned = i == 0 ? p->layout & 2 : i == 1 ? p->layout & 1 : 0;
        Wide rows = i == 1 ? p->k : p->m, columns = i == 0 ? p->k : p->n;
        o->at = (Wide)(uintptr_t)at[i];
        o->rows = turned ? columns : rows, o->columns = turned ? rows : columns;
        o->batch = p->batch;
        o->size = i < 2 ? in : wide ? 4 : 2;
        o->leading = leading[i] ? leading[i] : o->columns;
        o->stride = stride[i] ? stride[i] : o->rows * o->leading;
        if (i < 2 && stride[i] == LIB_SHARED) o->stride = 0;
        if (p->batch == 1) o->stride = 0;
        if (o->leading < o->columns) return "a leading dimension shorter than a row";
        if (o->stride < 0) return "a negative stride";
        if (extent(o) > INT64_MAX) return "an operand beyond 2^63 bytes";
        if (o->at % o->size) return "an address between elements";
    }
    return NULL;
}

/* Whether the compute of a product has all its other codes. */
static int legal(const lib_product *p) {
    int eight = p->compute >= LIB_F8, whole = p->compute == LIB_I8;
    if (p->compute < 0 || p->compute > 7 || p->layout < 0 || p->layout > 3 || p->epilogue < 0 ||
        p->epilogue > LIB_BIAS_SILU || p->dependent < 0 || p->dependent > 1)
        return 0;
    if (p->output < 0 || p->output > (whole ? LIB_INT : eight ? LIB_BFLOAT : LIB_FLOAT)) return 0;
    if (p->output == LIB_INT && (p->epilogue || p->scale)) return 0;
    if (p->scale < 0 || p->scale > (whole ? LIB_ROW : eight ? LIB_BLOCK : 0)) return 0;
    if (p->accumulate < 0 || p->accumulate > (eight && !whole)) return 0;
    return p->e5m2 >= 0 && p->e5m2 <= (p->compute == LIB_F8E5 ? 2 : 0);
}

/* A bias, or the scales of A or of B, as a row. */
static Operand vector_of(const lib_product *p, int i, Wide size_c) {
    const void *at = i == 0 ? p->bias : i == 1 ? p->scale_a : p->scale_b;
    Wide blocks = p->scale == LIB_BLOCK ? (p->k + 127) / 128 : 1;
    Wide columns = p->scale == LIB_BLOCK ? ((Wide)p->n + 127) / 128 : p->n;
    Operand o;
    memset(&o, 0, sizeof o);
    o.at = (Wide)(uintptr_t)at, o.rows = o.batch = 1, o.size = i ? 4 : size_c;
    o.columns = i == 0                     ? p->n
                : p->scale == LIB_UNSCALED ? 0
                : p->scale == LIB_TENSOR   ? 1
                                           : p->batch * blocks * (i == 1 ? p->m : columns);
    o.leading = o.columns;
    return o;
}

/* The rule of lib.h that a product breaks; NULL if it keeps them all. */
static const char *broken(const lib_product *p, int query) {
    Operand operands[3], *c = &operands[2], vectors[3];
    const char *fault;
    int i;
    if (!legal(p)) return "an unknown code";
    if (p->m < 1 || p->n < 1 || p->k < 1 || p->m > INT32_MAX || p->n > INT32_MAX ||
        p->k > INT32_MAX || p->batch < 1 || p->batch > 65535)
        return "a size out of range";
    if ((fault = described(p, operands)) != NULL) return fault;
    if (!query && (!p->a || !p->b || !p->c)) return "a pointer that is NULL";
    if (!(p->epilogue & 1) && p->bias) return "a bias without use";
    if (!query && (p->epilogue & 1) && !p->bias) return "no bias";
    if (!p->scale && (p->scale_a || p->scale_b)) return "a scale without use";
    if (!query && p->scale && (!p->scale_a || !p->scale_b)) return "no scale";
    if (p->output == LIB_INT && (p->alpha != 1 || p->beta != 0)) return "a factor of int32";
    for (i = 0; i < 3; ++i) {
        vectors[i] = vector_of(p, i, c->size);
        if (vectors[i].at % vectors[i].size) return "a vector between elements";
        if (vectors[i].columns * vectors[i].size > INT64_MAX) return "scales beyond 2^63 bytes";
    }
    if (repeats(c)) return "matrices of C that overlap";
    for (i = 0; i < 5; ++i) {
        const Operand *other = i < 2 ? &operands[i] : &vectors[i - 2];
        if (c->at && other->at && shares(c, other)) return "C in another operand";
    }
    return NULL;
}

/* Whether a library may refuse a product that keeps the rules: lib.h says so of these. */
static int may_refuse(const lib_product *p, int status) {
    const int64_t steps[] = {p->lda, p->ldb, p->ldc};
    int i, absurd = 0;
    for (i = 0; i < 3; ++i) absurd |= steps[i] > FAR;
    return status == LIB_NO_KERNEL || status == LIB_GRID ||
           (absurd && status == LIB_LEADING_DIMENSION) ||
           /* Rows that interleave are told apart where C and the other operand have one period. */
           (status == LIB_OVERLAP || status == LIB_STRIDE);
}

static Call sound_call(void) {
    const Problem *problem = &problems[below(problem_count)];
    Call call;
    lib_product *p = &call.product;
    *p = lib_default(problem->m, problem->n, problem->k);
    if (below(3) == 0) p->m = 1 + below(9), p->n = 1 + below(9), p->k = 1 + below(9);
    p->batch = problem->batch;
    p->compute = problem->compute, p->layout = problem->layout;
    p->epilogue = problem->epilogue, p->output = problem->output;
    p->a = (const void *)((uintptr_t)1 << 50), p->b = (const void *)((uintptr_t)2 << 50);
    p->c = (void *)((uintptr_t)3 << 50);
    p->dependent = below(2);
    if (p->epilogue & 1) p->bias = (const void *)((uintptr_t)4 << 50);
    p->scale = problem->scale, p->accumulate = problem->accumulate, p->e5m2 = problem->e5m2;
    if (p->scale) p->scale_a = (const float *)((uintptr_t)5 << 50);
    if (p->scale) p->scale_b = (const float *)((uintptr_t)6 << 50);
    call.workspace = NULL, call.bytes = 0;
    return call;
}

/* What is wrong with the library's answer to a call; NULL if nothing is. `size` is the workspace
 * that the call needs, 0 if it is not known. */
static const char *judged(const Call *call, int verb, int status, size_t size, int kept,
                          unsigned long long launched) {
    const char *fault = broken(&call->product, verb != 0);
    int bad_workspace = size && (!call->workspace || (uintptr_t)call->workspace % WORKSPACE_UNIT ||
                                 call->bytes < size);
    if (status < 0 || status > LIB_FACTORS) return "a status of no meaning";
    if (status == LIB_OK && fault) return fault;
    if (status == LIB_OK && verb == 0 && bad_workspace) return "a bad workspace";
    if (status == LIB_OK && verb == 0 && !launched) return "no launch";
    if (status && status < LIB_LAUNCH && launched) return "a refusal after a launch";
    if (status && kept && !fault && !bad_workspace && !may_refuse(&call->product, status))
        return "a refusal of a valid call";
    return NULL;
}

/* Makes one call; returns its status. */
static int made(const Call *call, int verb) {
    /* On the heap, where the sanitizer sees every byte read beyond it. */
    lib_product *product = malloc(sizeof *product);
    lib_choice *choice = malloc(sizeof *choice);
    size_t *bytes = malloc(sizeof *bytes);
    int status;
    if (!product || !choice || !bytes) abort();
    *product = call->product;
    status = verb == 0   ? lib_matmul(product, call->workspace, call->bytes, NULL)
             : verb == 1 ? lib_choose(product, choice)
                         : lib_workspace_size(product, bytes);
    free(product), free(choice), free(bytes);
    return status;
}

/* Makes a random call and judges it; returns its status, or -1 after printing what is wrong. */
static int tried(void) {
    static const char *const FUNCTIONS[] = {
        "cuCtxGetDevice", "cuLibraryLoadData", "cuLaunchKernelEx", "cuTensorMapEncodeTiled"};
    int verb = below(4) == 0 ? 1 + below(2) : 0, spoilt = below(8) ? 1 + below(3) : 0, i, status;
    int injected = below(50) == 0;
    unsigned long long before;
    size_t size = 0;
    void *memory = NULL;
    char setting[64];
    const char *wrong;
    Call call = sound_call();
    if (lib_workspace_size(&call.product, &size) == LIB_OK && size) {
        if (posix_memalign(&memory, WORKSPACE_UNIT, size)) abort();
        call.workspace = memory, call.bytes = size;
        if (lib_prepare_workspace(memory, size, NULL)) return puts("UNSAFE: no workspace"), -1;
    }
    for (i = 0; i < spoilt; ++i) spoil(&call);
    if (lib_workspace_size(&call.product, &size) != LIB_OK) size = 0;
    if (injected) {
        snprintf(setting, sizeof setting, "%s=%d", FUNCTIONS[below(4)], 1 + below(900));
        setenv("FAKE_CUDA_FAIL", setting, 1);
    }
    before = *launches;
    status = made(&call, verb);
    unsetenv("FAKE_CUDA_FAIL");
    wrong = judged(&call, verb, status, size, !injected, *launches - before);
    free(memory);
    if (wrong) {
        const lib_product *p = &call.product;
        printf("UNSAFE: %s, status %d, verb %d: %" PRId64 "x%" PRId64 "x%" PRId64 " batch %" PRId64
               " codes %d %d %d %d at %p %p %p %p leading %" PRId64 " %" PRId64 " %" PRId64
               " strides %" PRId64 " %" PRId64 " %" PRId64 " workspace %p %zu of %zu\n",
               wrong, status, verb, p->m, p->n, p->k, p->batch, p->compute, p->layout, p->epilogue,
               p->output, p->a, p->b, p->c, p->bias, p->lda, p->ldb, p->ldc, p->stride_a,
               p->stride_b, p->stride_c, call.workspace, call.bytes, size);
    }
    return wrong ? -1 : status;
}

int main(int count, char **words) {
    long calls, refused = 0, accepted = 0, unsafe = 0, i;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (count != 3 || !driver) return 2;
    launches = (const unsigned long long *)dlsym(driver, "fake_cuda_launches");
    calls = strtol(words[1], NULL, 10), state = strtoull(words[2], NULL, 10);
    while (problem_count < PROBLEMS) {
        Problem *p = &problems[problem_count];
        if (scanf("%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %d %d %d %d %d %d %d", &p->m,
                  &p->n, &p->k, &p->batch, &p->compute, &p->layout, &p->epilogue, &p->output,
                  &p->scale, &p->accumulate, &p->e5m2) != 11)
            break;
        ++problem_count;
    }
    if (!launches || !problem_count) return 2;
    for (i = 0; i < calls; ++i) {
        int status = tried();
        *(status < 0 ? &unsafe : status ? &refused : &accepted) += 1;
    }
    printf("%ld %ld %ld %ld\n", calls, refused, accepted, unsafe);
    return unsafe != 0;
}
