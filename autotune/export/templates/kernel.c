/* @TITLE@, tuned and compiled by `autotune export`; @NAME@.h documents it. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "@NAME@.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
#define THREAD_LOCAL thread_local
#else
#define THREAD_LOCAL _Thread_local
#endif

typedef struct { const uint64_t *cubin; const char *symbol; int shared; } Program;
/* A call on a device. */
typedef struct {
    const char *device;
    int major, minor, sms, program;
    unsigned grid[3], block[3], shared;
} Launch;

/* @TABLES@ */

/* The driver: constants and structures of cuda.h, and the functions that are called. */
enum {
    CUDA_NOT_INITIALIZED = 3, CUDA_INVALID_CONTEXT = 201, CUDA_CONTEXT_IS_DESTROYED = 709,
    MULTIPROCESSORS = 16, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76,
    MAX_DYNAMIC_SHARED = 8, CAPTURE_RELAXED = 2, ORDINALS = 64
};
typedef struct {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    const void *attributes;
    unsigned attribute_count;
} LaunchConfig;
#define FUNCTIONS(X) \
    X(cuCtxGetDevice, (int *)) \
    X(cuDeviceGetName, (char *, int, int)) \
    X(cuDeviceGetAttribute, (int *, int, int)) \
    X(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned)) \
    X(cuLibraryGetKernel, (void **, void *, const char *)) \
    X(cuLibraryUnload, (void *)) \
    X(cuKernelSetAttribute, (int, int, void *, int)) \
    X(cuKernelGetFunction, (void **, void *)) \
    X(cuThreadExchangeStreamCaptureMode, (int *)) \
    X(cuLaunchKernelEx, (const LaunchConfig *, void *, void **, void **))

#define MEMBER(name, arguments) int(*name) arguments;
static struct { FUNCTIONS(MEMBER) } driver;
#undef MEMBER

/* State that is loaded once: written under the lock, then published by a flag. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int driver_ready;
static struct { void *library, *kernel; uint64_t ready; } loaded[sizeof PROGRAMS / sizeof *PROGRAMS];
static THREAD_LOCAL int driver_error;

int @NAME@_driver_error(void) { return driver_error; }

static int failed(int status, int result) {
    driver_error = result;
    return status;
}

static int open_driver(void) {
    int found = 1;
    if (__atomic_load_n(&driver_ready, __ATOMIC_ACQUIRE)) return @UPPER@_OK;
    pthread_mutex_lock(&lock);
    if (!driver_ready) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol;
        found = library != NULL;
#define FIND(name, arguments)                     \
    symbol = found ? dlsym(library, #name) : NULL; \
    if (symbol == NULL) found = 0;                 \
    else memcpy(&driver.name, &symbol, sizeof symbol);
        FUNCTIONS(FIND)
#undef FIND
        if (found) __atomic_store_n(&driver_ready, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return found ? @UPPER@_OK : @UPPER@_NO_DRIVER;
}

/* The launch for the current device: that of its name, else that of its compute capability with the
 * nearest number of multiprocessors. */
static int chosen(const Launch *launches, int count, int *ordinal, const Launch **launch) {
    char name[256] = "";
    int major = 0, minor = 0, sms = 0, distance = 0, i;
    int result = driver.cuCtxGetDevice(ordinal);
    if (result == CUDA_NOT_INITIALIZED || result == CUDA_INVALID_CONTEXT ||
        result == CUDA_CONTEXT_IS_DESTROYED)
        return failed(@UPPER@_NO_CONTEXT, result);
    if (result || (result = driver.cuDeviceGetName(name, (int)sizeof name - 1, *ordinal)) ||
        (result = driver.cuDeviceGetAttribute(&major, CAPABILITY_MAJOR, *ordinal)) ||
        (result = driver.cuDeviceGetAttribute(&minor, CAPABILITY_MINOR, *ordinal)) ||
        (result = driver.cuDeviceGetAttribute(&sms, MULTIPROCESSORS, *ordinal)))
        return failed(@UPPER@_DRIVER, result);
    *launch = NULL;
    for (i = 0; i < count; ++i) {
        const Launch *each = &launches[i];
        int off = each->sms < sms ? sms - each->sms : each->sms - sms;
        if (each->major != major || each->minor != minor) continue;
        if (strcmp(each->device, name) == 0) off = -1;
        if (*launch == NULL || off < distance) *launch = each, distance = off;
    }
    return *launch == NULL || *ordinal < 0 || *ordinal >= ORDINALS ? @UPPER@_NO_DEVICE : @UPPER@_OK;
}

/* Loads a program; the caller holds the lock. Libraries belong to no context. */
static int load(int number, int ordinal) {
    const Program *program = &PROGRAMS[number];
    void *library = loaded[number].library, *kernel = loaded[number].kernel, *function;
    int result;
    if (library == NULL) {
        result = driver.cuLibraryLoadData(&library, program->cubin, NULL, NULL, 0, NULL, NULL, 0);
        if (result) return failed(@UPPER@_LOAD, result);
        if ((result = driver.cuLibraryGetKernel(&kernel, library, program->symbol)) != 0) {
            driver.cuLibraryUnload(library);
            return failed(@UPPER@_LOAD, result);
        }
        loaded[number].library = library, loaded[number].kernel = kernel;
    }
    if ((result = driver.cuKernelSetAttribute(MAX_DYNAMIC_SHARED, program->shared, kernel, ordinal)) ||
        /* Otherwise the first launch would load it. */
        (result = driver.cuKernelGetFunction(&function, kernel)))
        return failed(@UPPER@_LOAD, result);
    __atomic_store_n(&loaded[number].ready, loaded[number].ready | (uint64_t)1 << ordinal,
                     __ATOMIC_RELEASE);
    return @UPPER@_OK;
}

static int is_ready(int number, int ordinal) {
    return (int)(__atomic_load_n(&loaded[number].ready, __ATOMIC_ACQUIRE) >> ordinal & 1);
}

static int launched(const Launch *launches, int count, void **arguments, CUstream stream) {
    const Launch *launch = NULL;
    LaunchConfig config;
    int ordinal = 0, mode = CAPTURE_RELAXED, result, status = open_driver();
    driver_error = 0;
    if (!status) status = chosen(launches, count, &ordinal, &launch);
    if (status) return status;
    if (!is_ready(launch->program, ordinal)) {
        /* Relaxed mode allows loading during a graph capture, which does not record it. */
        if ((result = driver.cuThreadExchangeStreamCaptureMode(&mode)) != 0)
            return failed(@UPPER@_DRIVER, result);
        pthread_mutex_lock(&lock);
        if (!is_ready(launch->program, ordinal)) status = load(launch->program, ordinal);
        pthread_mutex_unlock(&lock);
        result = driver.cuThreadExchangeStreamCaptureMode(&mode);
        if (status || result) return status ? status : failed(@UPPER@_DRIVER, result);
    }
    memset(&config, 0, sizeof config);
    memcpy(config.grid, launch->grid, sizeof config.grid);
    memcpy(config.block, launch->block, sizeof config.block);
    config.shared = launch->shared, config.stream = stream;
    result = driver.cuLaunchKernelEx(&config, loaded[launch->program].kernel, arguments, NULL);
    return result ? failed(@UPPER@_DRIVER, result) : @UPPER@_OK;
}

/* @FUNCTIONS@ */
