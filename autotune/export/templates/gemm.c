/* Made by `autotune export`; gemm.h documents it. What loads kernels comes first, then the launch
 * plans, then the code that reads them. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "gemm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#ifdef __cplusplus
#define ALIGNED(bytes) alignas(bytes)
#define THREAD_LOCAL thread_local
#define NO_ROWS {}
#else
#define ALIGNED(bytes) _Alignas(bytes)
#define THREAD_LOCAL _Thread_local
#define NO_ROWS {0}
#endif

/* @DRIVER@ */

/* Types of kernel arguments. */
enum { TENSOR_MAP, POINTER, I32, I64, F32 };
/* How many numbers a vector has. */
enum { ONE, EACH_COLUMN, EACH_SCALE };
/* The symbols (words) whose values are known at the launch. Arrays of words follow: the matrices,
 * their leading dimensions and strides, and the vectors; then how many numbers each vector has. */
/* @WORDS@ */

/* The index of a map, a symbol (word), or a number with the word NUMBER. An argument that starts no
 * parameter is a member of the struct before; all but maps lie at their offsets. */
typedef struct { uint8_t type, word, starts; uint16_t offset; int64_t value; } Argument;
/* Arguments of cuTensorMapEncodeTiled. A pitch or stride is a symbol unless its word is NUMBER. */
typedef struct {
    uint8_t base, type, element_bytes, swizzle, pitch_word, stride_word;
    int64_t offset, columns, rows, batch, pitch, stride;
    uint32_t box[2];
} Map;
/* A general kernel has a tile, the rows and columns of C for each block, instead of a grid. */
typedef struct {
    int kernel;
    uint32_t grid[3], block[3], shared, tile[2];
    int first, count;         /* of ARGUMENTS */
} Launch;
typedef struct {
    int device;               /* in DEVICES; of a general kernel any of its compute capability */
    int m, n, k, batch;       /* 0 in a general plan */
    int kind;
    int align[3];             /* in elements; row lengths too in a general plan */
    int first, count;         /* of LAUNCHES */
    size_t workspace;         /* bytes, without the counters */
    int counted;              /* whether it uses counters */
    const char *config, *how;
} Plan;

/* @TABLES@ */

enum { PROMOTE_256_BYTES = 3, PROGRAMMATIC_STREAM_SERIALIZATION = 6 };  /* of cuda.h */
enum { WORKSPACE_ALIGNMENT = 256, VECTOR_BYTES = 16, LARGEST_BATCH = 65535 };
static const int64_t LARGEST = 2147483647;
static const int64_t LARGEST_STEP = (int64_t)1 << 40;  /* elements from row to row or matrix to matrix */

/* A gemm_product with its fields checked and completed. */
typedef struct {
    int64_t words[WORDS];     /* values of the symbols; alpha and beta as bits */
    int64_t batch;
    int64_t rows[MATRIX_COUNT], columns[MATRIX_COUNT], size[MATRIX_COUNT];  /* as they are stored */
    int64_t bytes[VECTOR_COUNT];
    int kind;
} Given;

/* Bytes from the first element of matrix i to the end of its last; -1 if int64_t has no room. */
static int64_t extent(const Given *given, int i) {
    int64_t rows, matrices, elements, bytes;
    if (__builtin_mul_overflow(given->rows[i] - 1, given->words[LEADING[i]], &rows) ||
        __builtin_mul_overflow(given->batch - 1, given->words[STRIDES[i]], &matrices) ||
        __builtin_add_overflow(rows, matrices, &elements) ||
        __builtin_add_overflow(elements, given->columns[i], &elements) ||
        __builtin_mul_overflow(elements, given->size[i], &bytes))
        return -1;
    return bytes;
}

static int64_t common(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Whether C shares an element with operand i, where the vectors follow the matrices. Column ranges
 * of one matrix interleave without sharing any. */
static int overlaps(const Given *given, int i) {
    int64_t size = i < MATRIX_COUNT ? given->size[i] : 0, size_c = given->size[2];
    uint64_t at = (uint64_t)given->words[i < MATRIX_COUNT ? MATRICES[i] : VECTORS[i - MATRIX_COUNT]];
    uint64_t at_c = (uint64_t)given->words[C], end_c = (uint64_t)extent(given, 2);
    uint64_t end = (uint64_t)(i < MATRIX_COUNT ? extent(given, i) : given->bytes[i - MATRIX_COUNT]);
    int64_t width = i < MATRIX_COUNT ? given->columns[i] * size : given->bytes[i - MATRIX_COUNT];
    int64_t width_c = given->columns[2] * size_c, period, place;
    if (at == 0 || at_c == 0) return 0;
    if (at_c < at ? at - at_c >= end_c : at_c - at >= end) return 0;
    period = common(given->words[LDC] * size_c, given->words[STRIDE_C] * size_c);
    period = common(period, i < MATRIX_COUNT ? given->words[LEADING[i]] * size : width);
    period = common(period, i < MATRIX_COUNT ? given->words[STRIDES[i]] * size : 0);
    place = (int64_t)((at_c < at ? at - at_c : at_c - at) % (uint64_t)period);
    return at_c < at ? place < width_c || place + width > period
                     : place < width || place + width_c > period;
}

/* Completes the leading dimension and stride of operand i; returns what is wrong with them. */
static int measured(Given *given, int i, int64_t leading, int64_t stride) {
    int64_t rows = given->rows[i], columns = given->columns[i], matrix;
    if (leading == 0) leading = columns;
    if (leading < columns || leading > LARGEST_STEP) return GEMM_LEADING_DIMENSION;
    if (__builtin_mul_overflow(rows, leading, &matrix)) return GEMM_SIZE;
    if (stride == 0) stride = matrix;
    else if (stride == GEMM_SHARED && i != 2) stride = 0;
    if (given->batch == 1) stride = 0;
    if (stride < 0) return GEMM_STRIDE;
    given->words[LEADING[i]] = leading;
    given->words[STRIDES[i]] = stride;
    if (extent(given, i) < 0) return GEMM_SIZE;
    /* Each C ends before the next begins, or their rows interleave. */
    matrix = (rows - 1) * leading + columns;
    if (i == 2 && given->batch > 1 && stride < matrix &&
        (stride < columns || (given->batch - 1) * stride + columns > leading))
        return GEMM_STRIDE;
    return GEMM_OK;
}

/* The output of a product, GEMM_SAME if it is the compute's default; -1 if the compute does not have
 * it. */
static int output_of(const gemm_product *p) {
    int own = p->compute >= GEMM_F8 ? GEMM_BFLOAT : p->compute >= GEMM_F16 ? GEMM_SAME : GEMM_FLOAT;
    if (p->output < GEMM_SAME || p->output > GEMM_E5M2) return -1;
    if (p->output >= GEMM_E4M3)
        return p->compute == GEMM_F8 || p->compute == GEMM_F8E5 ? p->output : -1;
    if (p->output == GEMM_SAME || p->output == own) return GEMM_SAME;
    if (p->output == GEMM_INT && (p->epilogue != GEMM_NONE || p->scale != GEMM_UNSCALED)) return -1;
    if (p->output == GEMM_INT) return p->compute == GEMM_I8 ? GEMM_INT : -1;
    return p->output == GEMM_FLOAT || p->compute >= GEMM_F8 ? p->output : -1;
}

static int has_residual(const gemm_product *p) {
    return p->epilogue == GEMM_RESIDUAL || p->epilogue == GEMM_BIAS_RESIDUAL;
}

static int is_fp8(int output) { return output >= GEMM_E4M3; }

/* Whether a product has codes that its compute lacks, or of 8-bit operands that do not exist. */
static int misfits(const gemm_product *p) {
    if (p->scale < GEMM_UNSCALED || p->scale > GEMM_BLOCK || p->accumulate < GEMM_EXACT ||
        p->accumulate > GEMM_FAST || p->e5m2 < GEMM_E5M2_A || p->e5m2 > GEMM_E5M2_AB)
        return 1;
    if (p->compute < GEMM_F8 && p->scale != GEMM_UNSCALED) return 1;
    if (p->compute == GEMM_I8 && p->scale == GEMM_BLOCK) return 1;
    if (p->accumulate && p->compute != GEMM_F8 && p->compute != GEMM_F8E5) return 1;
    if (p->epilogue >= GEMM_RESIDUAL && p->compute < GEMM_F16) return 1;  /* or GEMM_SWIGLU */
    if (is_fp8(p->output) && has_residual(p)) return 1;
    return p->e5m2 && p->compute != GEMM_F8E5;
}

/* Completes the sizes of the bias and the scales; returns what is wrong with them. */
static int vectors(const gemm_product *p, Given *given) {
    int64_t blocks = p->scale == GEMM_BLOCK ? (p->k + 127) / 128 : 1;
    int64_t columns = p->scale == GEMM_BLOCK ? (p->n + 127) / 128 : p->n;
    int i;
    uint64_t size = is_fp8(p->output) ? 2 : (uint64_t)given->size[2];
    if (!(p->epilogue & 1) && p->bias != NULL) return GEMM_BIAS_UNUSED;
    if (p->scale == GEMM_UNSCALED && (p->scale_a != NULL || p->scale_b != NULL))
        return GEMM_SCALE_UNUSED;
    if (!is_fp8(p->output) && (p->scale_result != NULL || p->amax != NULL))
        return GEMM_SCALE_UNUSED;
    for (i = 0; i < VECTOR_COUNT; ++i) {
        int64_t count = 1, width = sizeof(float);
        if (COUNTS[i] == EACH_COLUMN) count = p->n;
        if (VECTORS[i] == BIAS) width = (int64_t)size;
        if (COUNTS[i] == EACH_SCALE && p->scale > GEMM_TENSOR &&
            __builtin_mul_overflow(p->batch * blocks, VECTORS[i] == SCALE_A ? p->m : columns, &count))
            return GEMM_SIZE;
        if (__builtin_mul_overflow(count, width, &given->bytes[i])) return GEMM_SIZE;
        if (given->words[VECTORS[i]] % width) return GEMM_MISALIGNED;
    }
    return GEMM_OK;
}

static int checked(const gemm_product *p, Given *given) {
    int64_t leading[MATRIX_COUNT], stride[MATRIX_COUNT];
    int i, status, output, matrices;
    if (p == NULL) return GEMM_NULL;
    if (p->compute < GEMM_F32 || p->compute > GEMM_I8 || p->layout < GEMM_NN ||
        p->layout > GEMM_TT || p->epilogue < GEMM_NONE || p->epilogue > GEMM_SWIGLU ||
        p->dependent < 0 || p->dependent > 1 || misfits(p) || (output = output_of(p)) < 0)
        return GEMM_UNKNOWN;
    if (p->m < 1 || p->m > LARGEST || p->n < 1 || p->n > LARGEST || p->k < 1 || p->k > LARGEST ||
        p->batch < 1 || p->batch > LARGEST_BATCH)
        return GEMM_SIZE;
    if (p->epilogue == GEMM_SWIGLU && p->n % 16) return GEMM_PAIRS;
    if ((output >= GEMM_INT || p->epilogue == GEMM_SWIGLU) && (p->alpha != 1 || p->beta != 0))
        return GEMM_FACTORS;
    memset(given, 0, sizeof *given);
    given->kind = ((p->compute * 4 + p->layout) * 13 + p->epilogue) * 7 + output;
    given->kind = ((given->kind * 4 + p->scale) * 2 + p->accumulate) * 3 + p->e5m2;
    given->batch = p->batch;
    given->rows[0] = given->columns[0] = p->m;
    given->rows[1] = given->columns[1] = p->n;
    *(p->layout & 2 ? &given->rows[0] : &given->columns[0]) = p->k;
    *(p->layout & 1 ? &given->columns[1] : &given->rows[1]) = p->k;
    given->rows[2] = given->rows[3] = p->m;
    given->columns[2] = given->columns[3] = p->epilogue == GEMM_SWIGLU ? p->n / 2 : p->n;
    given->size[0] = given->size[1] = p->compute >= GEMM_F8 ? 1 : p->compute >= GEMM_F16 ? 2 : 4;
    given->size[2] = output == GEMM_FLOAT || output == GEMM_INT || p->compute < GEMM_F16 ? 4 : 2;
    if (is_fp8(output)) given->size[2] = 1;
    given->size[3] = given->size[2];
    /* @GIVEN@ */
    given->words[M] = p->m, given->words[N] = p->n, given->words[K] = p->k;
    memcpy(&given->words[ALPHA], &p->alpha, sizeof p->alpha);
    memcpy(&given->words[BETA], &p->beta, sizeof p->beta);
    matrices = has_residual(p) ? 4 : 3;
    if (matrices == 3 && p->residual != NULL) return GEMM_RESIDUAL_UNUSED;
    for (i = 0; i < matrices; ++i) {
        if ((uint64_t)given->words[MATRICES[i]] % (uint64_t)given->size[i]) return GEMM_MISALIGNED;
        if ((status = measured(given, i, leading[i], stride[i])) != 0) return status;
    }
    if ((status = vectors(p, given)) != 0) return status;
    for (i = 0; i < MATRIX_COUNT + VECTOR_COUNT; ++i)
        if (i != 2 && (i != 3 || matrices == 4) && overlaps(given, i)) return GEMM_OVERLAP;
    return GEMM_OK;
}

/* Whether the operands have the alignment that a plan expects. */
static int fits(const Plan *plan, const Given *given) {
    int i;
    /* The residual is loaded as C is stored; without one its words are 0. */
    for (i = 0; i < MATRIX_COUNT; ++i) {
        int64_t width = plan->align[i < 3 ? i : 2];
        if (given->words[LEADING[i]] % width || given->words[STRIDES[i]] % width ||
            (uint64_t)given->words[MATRICES[i]] % (uint64_t)(width * given->size[i]))
            return 0;
        if (plan->m == 0 && given->columns[i] % width) return 0;
    }
    return 1;
}

static int compared(const Plan *plan, int device, const Given *given) {
    int64_t order[6];
    int i;
    order[0] = plan->device - device;
    order[1] = plan->kind - given->kind;
    order[2] = plan->m - given->words[M];
    order[3] = plan->n - given->words[N];
    order[4] = plan->k - given->words[K];
    order[5] = plan->batch - given->batch;
    for (i = 0; i < 6; ++i)
        if (order[i]) return order[i] < 0 ? -1 : 1;
    return 0;
}

/* The plan exported for a shape and a device; NULL if there is none or the operands do not fit. */
static const Plan *exported(int device, const Given *given) {
    int low = 0, high = PLAN_COUNT;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = compared(&PLANS[middle], device, given);
        if (order == 0) return fits(&PLANS[middle], given) ? &PLANS[middle] : NULL;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

static int alike(int one, int other) {
    return DEVICES[one].major == DEVICES[other].major && DEVICES[one].minor == DEVICES[other].minor;
}

/* Whether all kernels of a plan run on a GPU. */
static int usable(const Plan *plan, const Card *card) {
    int i;
    for (i = 0; i < plan->count; ++i)
        if (!runs(LAUNCHES[plan->first + i].kernel, card)) return 0;
    return 1;
}

/* The plan of the shape for the device that is most like the GPU, else a general plan. */
static int chosen(const Card *card, const Given *given, const Plan **plan) {
    int i, j;
    for (i = 0; i < card->count; ++i)
        if ((*plan = exported(card->order[i], given)) != NULL && usable(*plan, card)) return GEMM_OK;
    for (i = 0; i < card->count; ++i)
        for (j = 0; j < GENERAL_COUNT; ++j) {
            const Plan *one = &GENERALS[j];
            const Launch *launch = &LAUNCHES[one->first];
            int64_t rows, columns;
            if (one->kind != given->kind || !alike(one->device, card->order[i]) ||
                !fits(one, given) || !usable(one, card))
                continue;
            rows = (given->words[M] + launch->tile[0] - 1) / launch->tile[0];
            columns = (given->words[N] + launch->tile[1] - 1) / launch->tile[1];
            if (rows * columns > LARGEST) return GEMM_GRID;
            *plan = one;
            return GEMM_OK;
        }
    return GEMM_NO_KERNEL;
}

/* Checks a call and chooses its plan; for a `query` the caller's pointers may be NULL. */
static int prepared(const gemm_product *product, int query, Given *given, const Plan **plan,
                    int *ordinal, const Card **card) {
    int status = checked(product, given);
    if (status) return status;
    if (!query && (product->a == NULL || product->b == NULL || product->c == NULL)) return GEMM_NULL;
    if (!query && (product->epilogue & 1) && product->bias == NULL) return GEMM_BIAS_MISSING;
    if (!query && has_residual(product) && product->residual == NULL)
        return GEMM_RESIDUAL_MISSING;
    if (!query && product->scale && (product->scale_a == NULL || product->scale_b == NULL))
        return GEMM_SCALE_MISSING;
    if ((status = current(ordinal, card)) != 0) return status;
    if ((status = chosen(*card, given, plan)) != 0) return status;
    /* Kernels for earlier GPUs do not wait for their predecessor. */
    return product->dependent && DEVICES[(*plan)->device].major < 9 ? GEMM_NOT_DEPENDENT : GEMM_OK;
}

/* Counters come first, the same number for every plan, so that all leave the same words zero. */
static size_t counter_bytes(void) {
    return ((size_t)COUNTER_COUNT * 4 + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT *
           WORKSPACE_ALIGNMENT;
}

static size_t needed(const Plan *plan) {
    return plan->workspace || plan->counted ? counter_bytes() + plan->workspace : 0;
}

/* Loads the kernels of a plan. */
static int loaded_all(const Plan *plan, const Card *card, int ordinal) {
    int i, numbers[LAUNCH_LIMIT] = {0};
    for (i = 0; i < plan->count; ++i) numbers[i] = image(LAUNCHES[plan->first + i].kernel, card);
    return ensure(numbers, plan->count, ordinal);
}

/* @LIBRARY@ */

static int encode(const Map *map, const Given *given, void *to) {
    const uint32_t box[3] = {map->box[0], map->box[1], 1}, steps[3] = {1, 1, 1};
    int64_t pitch = map->pitch_word ? given->words[map->pitch_word] : map->pitch;
    int64_t stride = map->stride_word ? given->words[map->stride_word] : map->stride;
    int single = stride == 0 || map->batch == 1, result;
    uint64_t extents[3], strides[2], span;
    char *address = (char *)(uintptr_t)given->words[map->base] + map->offset;
    extents[0] = (uint64_t)map->columns, extents[1] = (uint64_t)map->rows;
    extents[2] = single ? 1 : (uint64_t)map->batch;
    strides[0] = (uint64_t)(pitch * map->element_bytes);
    /* The stride of a single matrix is never used, but the driver checks it. */
    strides[1] = single ? strides[0] * extents[1] : (uint64_t)(stride * map->element_bytes);
    result = driver.cuTensorMapEncodeTiled(to, map->type, 3, address, extents, strides, box, steps,
                                           0, map->swizzle, PROMOTE_256_BYTES, 0);
    if (result) return failed(GEMM_LAUNCH, result);
    span = extents[0] * map->element_bytes + (extents[1] - 1) * strides[0] +
           (extents[2] - 1) * strides[1];
    if (span < 128 * 1024) {
        /* Drivers before 595 set bit 85 by mistake, and Blackwell then reads beyond the tensor. */
        uint64_t word;
        memcpy(&word, (char *)to + 8, sizeof word);
        word &= ~((uint64_t)1 << 21);
        memcpy((char *)to + 8, &word, sizeof word);
    }
    return GEMM_OK;
}

static int launched(const Launch *launch, const Given *given, const Card *card, int dependent,
                    CUstream stream) {
    static const LaunchAttribute ATTRIBUTE = {PROGRAMMATIC_STREAM_SERIALIZATION, {0}, 1, {0}};
    LaunchConfig config;
    ALIGNED(64) unsigned char maps[MAP_LIMIT][128];
    ALIGNED(8) unsigned char bytes[PARAMETER_BYTES] = {0};
    void *parameters[PARAMETER_LIMIT];
    int i, j, used = 0, parameter = 0, status;
    for (i = 0; i < launch->count; ++i) {
        const Argument *one = &ARGUMENTS[launch->first + i];
        int64_t value = one->word ? given->words[one->word] : one->value;
        const int32_t low = (int32_t)value;
        const void *pointer = (void *)(uintptr_t)value;
        unsigned char *to = bytes + one->offset;
        if (one->starts) parameters[parameter++] = to;
        switch (one->type) {
            case TENSOR_MAP:
                /* A kernel may take the same map several times; maps come first. */
                for (j = 0; j < i; ++j)
                    if (ARGUMENTS[launch->first + j].value == value) break;
                parameters[i] = j < i ? parameters[j] : maps[used++];
                if (j == i && (status = encode(&MAPS[value], given, parameters[i])) != 0)
                    return status;
                break;
            case POINTER: memcpy(to, &pointer, sizeof pointer); break;
            case I64: memcpy(to, &value, sizeof value); break;
            default: memcpy(to, &low, sizeof low); break;  /* I32, and the bits of F32 */
        }
    }
    memset(&config, 0, sizeof config);
    memcpy(config.grid, launch->grid, sizeof config.grid);
    memcpy(config.block, launch->block, sizeof config.block);
    config.shared = launch->shared, config.stream = stream;
    if (dependent) config.attributes = &ATTRIBUTE, config.attribute_count = 1;
    if (launch->tile[0]) {
        int64_t rows = (given->words[M] + launch->tile[0] - 1) / launch->tile[0];
        int64_t columns = (given->words[N] + launch->tile[1] - 1) / launch->tile[1];
        config.grid[0] = (uint32_t)(rows * columns), config.grid[1] = 1;
        config.grid[2] = (uint32_t)given->batch;
    }
    status = driver.cuLaunchKernelEx(&config, loaded[image(launch->kernel, card)].kernel, parameters,
                                     NULL);
    return status ? failed(GEMM_LAUNCH, status) : GEMM_OK;
}

/* Whether the second and later launches of a plan start before the one before them has ended. Since
 * CUDA 12.3 a graph captures that. */
static int follows_dependently(const Plan *plan) {
    return DEVICES[plan->device].major >= 9 && driver_version >= 12030;
}

gemm_product gemm_default(int64_t m, int64_t n, int64_t k) {
    gemm_product product;
    memset(&product, 0, sizeof product);
    product.m = m, product.n = n, product.k = k;
    product.batch = 1;
    product.alpha = 1.0f;
    return product;
}

int gemm_workspace_size(const gemm_product *product, size_t *bytes) {
    Given given;
    const Plan *plan;
    const Card *card;
    int ordinal, status;
    if (bytes == NULL) return GEMM_NULL;
    if ((status = prepared(product, 1, &given, &plan, &ordinal, &card)) != 0) return status;
    *bytes = needed(plan);
    /* @LIBRARY_SIZE@ */
    return GEMM_OK;
}

int gemm_prepare_workspace(void *workspace, size_t bytes, CUstream stream) {
    const Card *card;
    int ordinal, result, status;
    if (bytes == 0) return GEMM_OK;
    if (workspace == NULL) return GEMM_WORKSPACE_NULL;
    if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT) return GEMM_WORKSPACE_MISALIGNED;
    if (bytes < counter_bytes()) return GEMM_WORKSPACE_SMALL;
    if ((status = current(&ordinal, &card)) != 0) return status;
    if (counter_bytes() == 0) return GEMM_OK;
    result = driver.cuMemsetD32Async((uint64_t)(uintptr_t)workspace, 0, counter_bytes() / 4, stream);
    return result ? failed(GEMM_DRIVER, result) : GEMM_OK;
}

int gemm_matmul(const gemm_product *product, void *workspace, size_t bytes, CUstream stream) {
    Given given;
    const Plan *plan;
    const Card *card;
    int i, ordinal, status = prepared(product, 0, &given, &plan, &ordinal, &card);
    if (status) return status;
    /* @LIBRARY_RUN@ */
    if (needed(plan)) {
        if (workspace == NULL) return GEMM_WORKSPACE_NULL;
        if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT) return GEMM_WORKSPACE_MISALIGNED;
        if (bytes < needed(plan)) return GEMM_WORKSPACE_SMALL;
        if (plan->counted) given.words[COUNTERS] = (int64_t)(uintptr_t)workspace;
        if (plan->workspace)
            given.words[WORKSPACE] = (int64_t)((uintptr_t)workspace + counter_bytes());
    }
    if ((status = loaded_all(plan, card, ordinal)) != 0) return status;
    for (i = 0; i < plan->count && !status; ++i)
        status = launched(&LAUNCHES[plan->first + i], &given, card,
                          i ? follows_dependently(plan) : product->dependent, stream);
    return status;
}

int gemm_warm_up(void) {
    const Card *card;
    int i, j, ordinal, status = current(&ordinal, &card);
    for (i = 0; i < PLAN_COUNT + GENERAL_COUNT && !status; ++i) {
        const Plan *plan = i < PLAN_COUNT ? &PLANS[i] : &GENERALS[i - PLAN_COUNT];
        for (j = 0; j < card->count && !alike(plan->device, card->order[j]);) ++j;
        if (j < card->count && usable(plan, card)) status = loaded_all(plan, card, ordinal);
    }
    return status;
}

int gemm_choose(const gemm_product *product, gemm_choice *choice) {
    Given given;
    const Plan *plan;
    const Card *card;
    int ordinal, status;
    if (choice == NULL) return GEMM_NULL;
    if ((status = prepared(product, 1, &given, &plan, &ordinal, &card)) != 0) return status;
    choice->exported = plan->m != 0;
    choice->config = plan->config;
    choice->device = DEVICES[plan->device].name;
    choice->how = plan->how;
    choice->launches = plan->count;
    choice->workspace = needed(plan);
    choice->ptx = card->ptx;
    /* @LIBRARY_CHOICE@ */
    return GEMM_OK;
}

const char *gemm_message(int status) {
    switch (status) {
        case GEMM_OK: return "done";
        case GEMM_NULL: return "a pointer that has to be there is NULL";
        case GEMM_UNKNOWN: return "no such compute, layout, epilogue, output, scale or dependent";
        case GEMM_SIZE: return "m, n, k take 1 to 2^31 - 1, batch 1 to 65535, matrices 2^63 bytes";
        case GEMM_MISALIGNED: return "A, B, C, the bias, a scale or the residual begins between two elements";
        case GEMM_LEADING_DIMENSION: return "a leading dimension is shorter than a row, or absurd";
        case GEMM_STRIDE: return "a stride is negative, or the matrices of C overlap";
        case GEMM_BIAS_MISSING: return "the epilogue has a bias, and none was given";
        case GEMM_BIAS_UNUSED: return "a bias was given, and the epilogue has none";
        case GEMM_OVERLAP: return "C shares elements with A, B, the bias, the scales or the residual";
        case GEMM_WORKSPACE_NULL: return "the product needs a workspace: see gemm_workspace_size";
        case GEMM_WORKSPACE_SMALL: return "the workspace is smaller than gemm_workspace_size";
        case GEMM_WORKSPACE_MISALIGNED: return "the workspace is not at a multiple of 256 bytes";
        case GEMM_NO_DRIVER: return "no CUDA driver: libcuda.so.1 cannot be opened";
        case GEMM_OLD_DRIVER: return "the CUDA driver is too old: CUDA 12 or newer is needed";
        case GEMM_NO_CONTEXT: return "no CUDA context is current in this thread";
        case GEMM_NO_DEVICE: return "nothing was exported for GPUs like the current one";
        case GEMM_NO_KERNEL: return "nothing was exported for products of this kind";
        case GEMM_GRID: return "the product needs more blocks than a grid has";
        case GEMM_DAMAGED: return "a kernel is not as it was exported: its checksum is wrong";
        case GEMM_LOAD: return "the driver refused a kernel: see gemm_driver_error";
        case GEMM_LAUNCH: return "the driver refused a launch: see gemm_driver_error";
        case GEMM_DRIVER: return "a call of the driver failed: see gemm_driver_error";
        case GEMM_NOT_DEPENDENT: return "dependent needs a GPU of compute capability 9.0 or more";
        case GEMM_SCALE_MISSING: return "the product has scales, and scale_a or scale_b is NULL";
        case GEMM_SCALE_UNUSED: return "a scale was given, and the product has none";
        case GEMM_FACTORS: return "a product in int32 or of gates takes an alpha of 1 and a beta of 0";
        case GEMM_RESIDUAL_MISSING: return "the epilogue has a residual, and none was given";
        case GEMM_RESIDUAL_UNUSED: return "a residual was given, and the epilogue has none";
        case GEMM_PAIRS: return "n is not a multiple of 16, so that gates and their columns have no pairs";
        default: return "no such status";
    }
}

int gemm_driver_error(void) { return driver_error; }
