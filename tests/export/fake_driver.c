/* A fake CUDA driver, which records its calls on standard error and computes only fp32 kernels.
 *
 * FAKE_CUDA_DEVICE   name;major;minor;multiprocessors of every device, an H100 by default; a fifth
 *                    field has the bytes of shared memory of a block, 232448 by default
 * FAKE_CUDA_VERSION  the CUDA version of the driver, 13000 by default
 * FAKE_CUDA_CONTEXT  number of the device whose context is current; empty for none
 * FAKE_CUDA_FAIL     function=status: that function returns that status
 * FAKE_CUDA_KERNELS  a file with a line for each kernel: its symbol, whether A and B are stored
 *                    transposed, its epilogue (-1: it computes nothing), bytes of each argument
 * FAKE_CUDA_QUIET    if set, nothing is recorded, addresses are real memory and kernels compute,
 *                    unless FAKE_CUDA_IDLE is set too
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "injected.h"

enum { KERNELS = 512, ARGUMENTS = 64 };
typedef struct {
    char symbol[1024];
    int transposed[2], epilogue, count, size[ARGUMENTS];
} Kernel;

static Kernel kernels[KERNELS];
static int kernel_count;
unsigned long long fake_cuda_launches; /* accepted launches, for callers in the same process */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void note(const char *format, ...) {
    va_list rest;
    if (getenv("FAKE_CUDA_QUIET")) return;
    va_start(rest, format);
    vfprintf(stderr, format, rest);
    va_end(rest);
}

static int injected_status(const char *function) { return injected("FAKE_CUDA_FAIL", function); }
#define ENTER(name) do { int status_ = injected_status(#name); if (status_) return status_; } while (0)

static void read_kernels(void) {
    const char *path = getenv("FAKE_CUDA_KERNELS");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4096], *rest;
    while (file && fgets(line, sizeof line, file) && kernel_count < KERNELS) {
        Kernel *kernel = &kernels[kernel_count++];
        int used = 0;
        if (sscanf(line, "%1023s %d %d %d%n", kernel->symbol, &kernel->transposed[0],
                   &kernel->transposed[1], &kernel->epilogue, &used) != 4)
            abort();
        for (rest = line + used; kernel->count < ARGUMENTS; ++kernel->count) {
            long size = strtol(rest, &rest, 10);
            if (size == 0) break;
            kernel->size[kernel->count] = (int)size;
        }
    }
    if (file) fclose(file);
}

int cuInit(unsigned flags) { (void)flags; ENTER(cuInit); return 0; }

int cuDriverGetVersion(int *version) {
    const char *text = getenv("FAKE_CUDA_VERSION");
    ENTER(cuDriverGetVersion);
    *version = text ? atoi(text) : 13000;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    static int it;
    (void)device;
    ENTER(cuDevicePrimaryCtxRetain);
    *context = &it;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; ENTER(cuCtxSetCurrent); return 0; }
int cuCtxSynchronize(void) { ENTER(cuCtxSynchronize); return 0; }

int cuCtxGetDevice(int *device) {
    const char *text = getenv("FAKE_CUDA_CONTEXT");
    ENTER(cuCtxGetDevice);
    if (text && !*text) return 201;
    *device = text ? atoi(text) : 0;
    return 0;
}

static const char *described(void) {
    const char *text = getenv("FAKE_CUDA_DEVICE");
    return text ? text : "NVIDIA H100 80GB HBM3;9;0;132";
}

int cuDeviceGetName(char *name, int size, int device) {
    (void)device;
    ENTER(cuDeviceGetName);
    snprintf(name, (size_t)size, "%.*s", (int)strcspn(described(), ";"), described());
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *rest = strchr(described(), ';');
    int major, minor, sms, shared = 232448;
    (void)device;
    ENTER(cuDeviceGetAttribute);
    if (!rest || sscanf(rest, ";%d;%d;%d;%d", &major, &minor, &sms, &shared) < 3) return 1;
    *value = attribute == 75   ? major
             : attribute == 76 ? minor
             : attribute == 16 ? sms
             : attribute == 97 ? shared
                               : -1;
    return *value < 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
    static _Thread_local int current;
    int before = current;
    ENTER(cuThreadExchangeStreamCaptureMode);
    current = *mode;
    *mode = before;
    return 0;
}

int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned c, void *d,
                      void *e, unsigned f) {
    const char *text = (const char *)code;
    int size = 0;
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    ENTER(cuLibraryLoadData);
    if ((uintptr_t)code % 8) return 1;
    while (size < 6 && text[size] && text[size] != '\n') ++size;
    note("load %.*s\n", size, text);
    *library = malloc(1);
    return 0;
}

int cuLibraryUnload(void *library) { free(library); note("unload\n"); return 0; }

int cuLibraryGetKernel(void **kernel, void *library, const char *symbol) {
    int i;
    (void)library;
    ENTER(cuLibraryGetKernel);
    pthread_once(&once, read_kernels);
    for (i = 0; i < kernel_count; ++i)
        if (strcmp(kernels[i].symbol, symbol) == 0) {
            *kernel = &kernels[i];
            return 0;
        }
    return 500;
}

int cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
    ENTER(cuKernelSetAttribute);
    if (attribute != 8) return 1;
    note("shared %s %d %d\n", ((Kernel *)kernel)->symbol, value, device);
    return 0;
}

int cuKernelGetFunction(void **function, void *kernel) {
    ENTER(cuKernelGetFunction);
    *function = kernel;
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t size) {
    void *memory = NULL;
    ENTER(cuMemAlloc_v2);
    if (posix_memalign(&memory, 256, size)) return 2;
    memset(memory, 0xff, size);
    *address = (uint64_t)(uintptr_t)memory;
    return 0;
}

int cuMemFree_v2(uint64_t address) { free((void *)(uintptr_t)address); return 0; }

int cuMemAllocAsync(uint64_t *address, size_t size, void *stream) {
    ENTER(cuMemAllocAsync);
    if (cuMemAlloc_v2(address, size)) return 2;
    note("alloc %llx %zu %p\n", (unsigned long long)*address, size, stream);
    return 0;
}

int cuMemFreeAsync(uint64_t address, void *stream) {
    note("free %llx %p\n", (unsigned long long)address, stream);
    return cuMemFree_v2(address);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    memcpy((void *)(uintptr_t)to, from, size);
    return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    memcpy(to, (const void *)(uintptr_t)from, size);
    return 0;
}

int cuMemsetD32Async(uint64_t address, unsigned value, size_t words, void *stream) {
    ENTER(cuMemsetD32Async);
    note("memset %llu %u %zu %p\n", (unsigned long long)address, value, words, stream);
    if (getenv("FAKE_CUDA_QUIET"))
        memset((void *)(uintptr_t)address, (int)value, 4 * words);
    return 0;
}

/* Time: each kernel takes 0.01 ms, and a graph as long as what was captured. */
static double now_ms, captured_ms;
static int capturing;

void fake_cuda_pass(double ms) { *(capturing ? &captured_ms : &now_ms) += ms; }

int cuStreamCreate(void **stream, unsigned flags) {
    static int it;
    (void)flags;
    ENTER(cuStreamCreate);
    *stream = &it;
    return 0;
}

int cuStreamSynchronize(void *stream) { (void)stream; return 0; }

int cuStreamBeginCapture_v2(void *stream, int mode) {
    (void)stream, (void)mode;
    ENTER(cuStreamBeginCapture_v2);
    capturing = 1, captured_ms = 0;
    return 0;
}

int cuStreamEndCapture(void *stream, void **graph) {
    double *ms = malloc(sizeof *ms);
    (void)stream;
    *ms = captured_ms, capturing = 0, *graph = ms;
    return 0;
}

int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    double *ms = malloc(sizeof *ms);
    (void)flags;
    *ms = *(double *)graph, *executable = ms;
    return 0;
}

int cuGraphLaunch(void *executable, void *stream) {
    (void)stream;
    fake_cuda_pass(*(double *)executable);
    return 0;
}

int cuGraphDestroy(void *graph) { free(graph); return 0; }
int cuGraphExecDestroy(void *executable) { free(executable); return 0; }

int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof(double));
    return 0;
}

int cuEventRecord(void *event, void *stream) { (void)stream; *(double *)event = now_ms; return 0; }

int cuEventElapsedTime(float *ms, void *start, void *end) {
    ENTER(cuEventElapsedTime);
    *ms = (float)(*(double *)end - *(double *)start);
    return 0;
}

/* Its arguments in order, in 8-byte words; the second word is all ones, which no driver writes. */
int cuTensorMapEncodeTiled(void *to, int type, uint32_t rank, void *address,
                           const uint64_t *extents, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill) {
    uint64_t words[16] = {0};
    int i;
    ENTER(cuTensorMapEncodeTiled);
    if ((uintptr_t)to % 64 || rank != 3) return 1;
    words[0] = (uint64_t)(type | swizzle << 8 | promotion << 16 | interleave << 24) | (uint64_t)fill << 32;
    words[1] = ~(uint64_t)0;
    words[2] = (uint64_t)(uintptr_t)address;
    for (i = 0; i < 3; ++i) words[3 + i] = extents[i], words[8 + i] = box[i], words[11 + i] = steps[i];
    for (i = 0; i < 2; ++i) words[6 + i] = strides[i];
    memcpy(to, words, sizeof words);
    return 0;
}

/* `Call` of cuda_src/include/common/call.cuh, for fp32: its first members, and from `lda` on its
 * last. Between them are operands that fp32 kernels without a scale do not read. */
typedef struct {
    const float *a, *b;
    float *c;
    const float *bias;
    int64_t lda, ldb, ldc, ldr, stride_a, stride_b, stride_c, stride_r;
    int b_ready;
} Call;

/* Kernels that read A and B in place and write C take `Call`, a schedule, the sizes and the factors;
 * or their operands one by one, before all other arguments. */
static void compute(const Kernel *kernel, void **given, unsigned batch) {
    Call call = {0};
    void **sizes = given + 2;
    float alpha, beta;
    int64_t i, j, p, m, n, k;
    if (kernel->size[0] > (int)sizeof call) {
        size_t last = sizeof call - offsetof(Call, lda);
        memcpy(&call, given[0], offsetof(Call, lda));
        memcpy(&call.lda, (char *)given[0] + kernel->size[0] - last, last);
    } else {
        call.a = *(const float **)given[0], call.b = *(const float **)given[2];
        call.c = *(float **)given[4], call.bias = *(const float **)given[11];
        call.lda = *(int64_t *)given[1], call.ldb = *(int64_t *)given[3];
        call.ldc = *(int64_t *)given[5], call.stride_a = *(int64_t *)given[12];
        call.stride_b = *(int64_t *)given[13], call.stride_c = *(int64_t *)given[14];
        sizes = given + 6;
    }
    m = *(int *)sizes[0], n = *(int *)sizes[1], k = *(int *)sizes[2];
    alpha = *(float *)sizes[3], beta = *(float *)sizes[4];
    for (; batch-- > 0; call.a += call.stride_a, call.b += call.stride_b, call.c += call.stride_c)
        for (i = 0; i < m; ++i)
            for (j = 0; j < n; ++j) {
                double sum = 0, x;
                for (p = 0; p < k; ++p)
                    sum += (double)call.a[kernel->transposed[0] ? p * call.lda + i : i * call.lda + p] *
                           call.b[kernel->transposed[1] ? j * call.ldb + p : p * call.ldb + j];
                x = alpha * sum + (beta != 0 ? beta * call.c[i * call.ldc + j] : 0);
                if (kernel->epilogue & 1) x += call.bias[j];
                if (kernel->epilogue / 2 == 1 && x < 0) x = 0;
                if (kernel->epilogue / 2 == 2) x *= (1 + erf(x / sqrt(2.0))) / 2;
                call.c[i * call.ldc + j] = (float)x;
            }
}

/* CUlaunchAttribute, whose value has 64 bytes, and CUlaunchConfig. */
typedef struct { int id, pad, value[16]; } Attribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    const Attribute *attributes;
    unsigned attribute_count;
} Config;

int cuLaunchKernelEx(const Config *config, void *kernel, void **given, void **extra) {
    const Kernel *launched = (const Kernel *)kernel;
    const Attribute *attribute = config->attributes;
    unsigned gx = config->grid[0], gy = config->grid[1], gz = config->grid[2];
    unsigned bx = config->block[0], by = config->block[1], bz = config->block[2];
    char text[2 * 128 * ARGUMENTS + ARGUMENTS + 1], *to = text;
    int i, j;
    ENTER(cuLaunchKernelEx);
    /* Only programmatic stream serialization, 6, or a cooperative launch, 2. */
    if (config->attribute_count > 1 || (config->attribute_count == 0) != (attribute == NULL)) return 1;
    if (attribute && attribute->id != 6 && attribute->id != 2) return 1;
    if (attribute && attribute->value[0] != 1) return 1;
    if (extra || !gx || !gy || !gz || gx > 2147483647 || gy > 65535 || gz > 65535) return 1;
    if (!bx || !by || !bz || bx > 1024 || by > 1024 || bz > 64 || bx * by * bz > 1024) return 1;
    ++fake_cuda_launches;
    for (i = 0; i < launched->count; ++i) {
        /* Tensor maps lie at multiples of 64, structs and pointers of 8. */
        int alignment = launched->size[i] == 128 ? 64 : launched->size[i] < 8 ? launched->size[i] : 8;
        if ((uintptr_t)given[i] % (uintptr_t)alignment) return 716;
        for (j = 0; j < launched->size[i]; ++j) to += sprintf(to, "%02x", ((unsigned char *)given[i])[j]);
        *to++ = ',';
    }
    *to = 0;
    note("launch %s %u %u %u %u %u %u %u %llu %d %s\n", launched->symbol, gx, gy, gz, bx, by, bz,
         config->shared, (unsigned long long)(uintptr_t)config->stream,
         attribute == NULL ? 0 : attribute->id == 6 ? 1 : 2, text);
    fake_cuda_pass(0.01);
    if (launched->epilogue >= 0 && getenv("FAKE_CUDA_QUIET") && !getenv("FAKE_CUDA_IDLE"))
        compute(launched, given, gz);
    return 0;
}
