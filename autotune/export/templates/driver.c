/* The driver, the devices that kernels were exported for, and the kernels: opened, compared with the
 * current device, and loaded. */
typedef struct { const char *name; int major, minor, sms; } Device;
typedef struct {
    const uint64_t *code;     /* a cubin, or PTX as text that ends with a zero */
    size_t bytes;
    uint8_t sha256[32];
    const char *symbol;
    int shared, memory;       /* shared memory: the most that a launch sets, and that with the rest */
    int ptx;                  /* in KERNELS: the same kernel as PTX; 0 if there is none */
} Kernel;

/* @KERNELS@ */

/* Constants and structures of cuda.h, and the functions that are called. */
enum {
    CUDA_NOT_INITIALIZED = 3, CUDA_INVALID_CONTEXT = 201, CUDA_CONTEXT_IS_DESTROYED = 709,
    MULTIPROCESSORS = 16, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, SHARED_MEMORY = 97,
    MAX_DYNAMIC_SHARED = 8, CAPTURE_RELAXED = 2
};
typedef struct { int id; char pad[4]; int32_t value, rest[15]; } LaunchAttribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    const LaunchAttribute *attributes;
    unsigned attribute_count;
} LaunchConfig;
#define FUNCTIONS(X) \
    X(cuDriverGetVersion, (int *)) \
    X(cuCtxGetDevice, (int *)) \
    X(cuDeviceGetName, (char *, int, int)) \
    X(cuDeviceGetAttribute, (int *, int, int)) \
    X(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned)) \
    X(cuLibraryGetKernel, (void **, void *, const char *)) \
    X(cuLibraryUnload, (void *)) \
    X(cuKernelSetAttribute, (int, int, void *, int)) \
    X(cuKernelGetFunction, (void **, void *)) \
    X(cuThreadExchangeStreamCaptureMode, (int *)) \
    X(cuMemsetD32Async, (uint64_t, unsigned, size_t, CUstream)) \
    X(cuTensorMapEncodeTiled, \
      (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, \
       const uint32_t *, int, int, int, int)) \
    X(cuLaunchKernelEx, (const LaunchConfig *, void *, void **, void **))

#define MEMBER(name, arguments) int(*name) arguments;
static struct { FUNCTIONS(MEMBER) } driver;
#undef MEMBER

enum { ORDINALS = 64 };

/* What the kernels are for a GPU. Those of the devices in `order`, the most alike first, run on it:
 * as cubins if their compute capability is that of the GPU, else the driver compiles their PTX. */
typedef struct { int ready, shared, ptx, count; short order[DEVICE_COUNT]; } Card;

/* State that is loaded once: written under the lock, then published by a flag. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int driver_ready, driver_version;
static Card cards[ORDINALS];
static struct { void *library, *kernel; uint64_t ready; } loaded[sizeof KERNELS / sizeof *KERNELS];
static THREAD_LOCAL int driver_error;

static int failed(int status, int result) {
    driver_error = result;
    return status;
}

static int open_driver(void) {
    int status = @UPPER@_OK;
    if (__atomic_load_n(&driver_ready, __ATOMIC_ACQUIRE)) return @UPPER@_OK;
    pthread_mutex_lock(&lock);
    if (!driver_ready) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        void *symbol;
        int found = library != NULL;
#define FIND(name, arguments)                                \
    symbol = found ? dlsym(library, #name) : NULL;           \
    if (symbol == NULL) found = 0;                           \
    else memcpy(&driver.name, &symbol, sizeof symbol);
        FUNCTIONS(FIND)
#undef FIND
        if (library == NULL) status = @UPPER@_NO_DRIVER;
        else if (!found || driver.cuDriverGetVersion(&driver_version)) status = @UPPER@_OLD_DRIVER;
        else __atomic_store_n(&driver_ready, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* How little a device is like a GPU; -1 if nothing that was compiled for it runs there. */
static int64_t distance(const Device *device, const Device *gpu) {
    int64_t newer = 256 * (gpu->major - device->major) + gpu->minor - device->minor;
    int64_t off = gpu->sms < device->sms ? device->sms - gpu->sms : gpu->sms - device->sms;
    if (newer == 0) return strcmp(device->name, gpu->name) == 0 ? 0 : 1 + off;
    return WITH_PTX && newer > 0 ? newer << 32 | off : -1;
}

/* Compares a GPU with the devices; the caller holds the lock. */
static int matched(int ordinal, Card *card) {
    char name[256] = "";
    Device gpu = {name, 0, 0, 0};
    int64_t far[DEVICE_COUNT];
    int result, shared = 0, count = 0, i, j;
    if ((result = driver.cuDeviceGetName(name, (int)sizeof name - 1, ordinal)) ||
        (result = driver.cuDeviceGetAttribute(&gpu.major, CAPABILITY_MAJOR, ordinal)) ||
        (result = driver.cuDeviceGetAttribute(&gpu.minor, CAPABILITY_MINOR, ordinal)) ||
        (result = driver.cuDeviceGetAttribute(&gpu.sms, MULTIPROCESSORS, ordinal)) ||
        (result = driver.cuDeviceGetAttribute(&shared, SHARED_MEMORY, ordinal)))
        return failed(@UPPER@_DRIVER, result);
    for (i = 0; i < DEVICE_COUNT; ++i) {
        int64_t off = distance(&DEVICES[i], &gpu);
        if (off < 0) continue;
        for (j = count++; j > 0 && far[j - 1] > off; --j)
            far[j] = far[j - 1], card->order[j] = card->order[j - 1];
        far[j] = off, card->order[j] = (short)i;
    }
    card->shared = shared;
    card->ptx = count > 0 && far[0] >> 32;
    /* PTX is for a GPU that no cubin fits. */
    for (i = 0; !card->ptx && i < count && !(far[i] >> 32);) ++i;
    card->count = card->ptx ? count : i;
    __atomic_store_n(&card->ready, 1, __ATOMIC_RELEASE);
    return @UPPER@_OK;
}

/* The ordinal of the current GPU, and what the kernels are for it. */
static int current(int *ordinal, const Card **card) {
    int result, status = open_driver();
    if (status) return status;
    result = driver.cuCtxGetDevice(ordinal);
    if (result == CUDA_NOT_INITIALIZED || result == CUDA_INVALID_CONTEXT ||
        result == CUDA_CONTEXT_IS_DESTROYED)
        return failed(@UPPER@_NO_CONTEXT, result);
    if (result) return failed(@UPPER@_DRIVER, result);
    if (*ordinal < 0 || *ordinal >= ORDINALS) return @UPPER@_NO_DEVICE;
    if (!__atomic_load_n(&cards[*ordinal].ready, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&lock);
        if (!cards[*ordinal].ready) status = matched(*ordinal, &cards[*ordinal]);
        pthread_mutex_unlock(&lock);
        if (status) return status;
    }
    *card = &cards[*ordinal];
    return (*card)->count ? @UPPER@_OK : @UPPER@_NO_DEVICE;
}

/* Whether a kernel runs on a GPU: PTX does if it exists and has enough shared memory. */
static int runs(int number, const Card *card) {
    return !card->ptx || (KERNELS[number].ptx && KERNELS[number].memory <= card->shared);
}

/* The cubin of a kernel, or its PTX where the GPU takes that. */
static int image(int number, const Card *card) {
    return card->ptx ? KERNELS[number].ptx : number;
}

/* SHA-256 (FIPS 180-4) of a kernel, compared with the exported one. */
static const uint32_t SHA256_START[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint32_t SHA256_ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void mixed(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64], s[8];
    int i;
    for (i = 0; i < 16; ++i)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (; i < 64; ++i)
        w[i] = w[i - 16] + w[i - 7] +
               (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof s);
    for (i = 0; i < 64; ++i) {
        uint32_t one = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) +
                       ((s[4] & s[5]) ^ (~s[4] & s[6])) + SHA256_ROUNDS[i] + w[i];
        uint32_t two = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) +
                       ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (i = 0; i < 8; ++i) state[i] += s[i];
}

static int intact(const Kernel *kernel) {
    const uint8_t *bytes = (const uint8_t *)kernel->code;
    uint8_t tail[128] = {0};
    uint32_t state[8];
    size_t whole = kernel->bytes / 64 * 64, rest = kernel->bytes - whole, at;
    size_t end = rest < 56 ? 64 : 128, i;
    memcpy(state, SHA256_START, sizeof state);
    for (at = 0; at < whole; at += 64) mixed(state, bytes + at);
    memcpy(tail, bytes + whole, rest);
    tail[rest] = 0x80;
    for (i = 0; i < 8; ++i) tail[end - 1 - i] = (uint8_t)((uint64_t)kernel->bytes * 8 >> 8 * i);
    for (at = 0; at < end; at += 64) mixed(state, tail + at);
    for (i = 0; i < 32; ++i)
        if (kernel->sha256[i] != (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)))) return 0;
    return 1;
}

/* Loads a kernel; the caller holds the lock. Libraries belong to no context. */
static int load(int number, int ordinal) {
    const Kernel *kernel = &KERNELS[number];
    void *library = loaded[number].library, *found = loaded[number].kernel, *function;
    int result;
    if (library == NULL) {
        if (!intact(kernel)) return @UPPER@_DAMAGED;
        result = driver.cuLibraryLoadData(&library, kernel->code, NULL, NULL, 0, NULL, NULL, 0);
        if (result) return failed(@UPPER@_LOAD, result);
        if ((result = driver.cuLibraryGetKernel(&found, library, kernel->symbol)) != 0) {
            driver.cuLibraryUnload(library);
            return failed(@UPPER@_LOAD, result);
        }
        loaded[number].library = library, loaded[number].kernel = found;
    }
    if ((result = driver.cuKernelSetAttribute(MAX_DYNAMIC_SHARED, kernel->shared, found, ordinal)) ||
        /* Otherwise the first launch would load it. */
        (result = driver.cuKernelGetFunction(&function, found)))
        return failed(@UPPER@_LOAD, result);
    __atomic_store_n(&loaded[number].ready, loaded[number].ready | (uint64_t)1 << ordinal,
                     __ATOMIC_RELEASE);
    return @UPPER@_OK;
}

static int is_ready(int number, int ordinal) {
    return (int)(__atomic_load_n(&loaded[number].ready, __ATOMIC_ACQUIRE) >> ordinal & 1);
}

/* Loads some kernels for a GPU, unless they are. */
static int ensure(const int *numbers, int count, int ordinal) {
    int i, mode = CAPTURE_RELAXED, status = @UPPER@_OK, result, ready = 1;
    for (i = 0; i < count; ++i) ready = ready && is_ready(numbers[i], ordinal);
    if (ready) return @UPPER@_OK;
    /* Relaxed mode allows loading during a graph capture, which does not record it. */
    if ((result = driver.cuThreadExchangeStreamCaptureMode(&mode)) != 0)
        return failed(@UPPER@_DRIVER, result);
    pthread_mutex_lock(&lock);
    for (i = 0; i < count && !status; ++i)
        if (!is_ready(numbers[i], ordinal)) status = load(numbers[i], ordinal);
    pthread_mutex_unlock(&lock);
    result = driver.cuThreadExchangeStreamCaptureMode(&mode);
    return status == @UPPER@_OK && result ? failed(@UPPER@_DRIVER, result) : status;
}
