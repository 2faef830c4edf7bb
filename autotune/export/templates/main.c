/* Computes every exported problem on the first GPU and compares the result with the CPU.
 *
 *     cc -std=c11 main.c gemm.c -ldl -lpthread -lm -o example && ./example
 *
 * The exit status is 0 if all are right. Operands are whole numbers from -2 to 2, exact in every
 * precision. Of large results, some elements are compared. */
/* @PROBLEMS@ */

#include <math.h>

static const size_t CHECKED = 500;

static float read_number(const void *from, size_t at, int type) {
    uint32_t bits;
    uint16_t half;
    float value;
    if (type == E4M3 || type == E5M2) {
        int byte = ((const uint8_t *)from)[at], mantissa = type == E4M3 ? 3 : 2;
        int power = (byte & 127) >> mantissa, part = byte & ((1 << mantissa) - 1);
        int last = (type == E4M3 ? -6 : -14) - mantissa;
        if ((byte & 127) == 127) return NAN;
        value = ldexpf((float)(power ? part + (1 << mantissa) : part), last + (power ? power - 1 : 0));
        return byte & 128 ? -value : value;
    }
    if (type == INT32) {
        int32_t whole;
        memcpy(&whole, (const char *)from + 4 * at, 4);
        return (float)whole;
    }
    if (type == FP32) memcpy(&bits, (const char *)from + 4 * at, 4);
    else memcpy(&half, (const char *)from + 2 * at, 2), bits = (uint32_t)half << 16;
    if (type == FP16) {
        int power = half >> 10 & 31, part = half & 1023;
        value = ldexpf((float)(power ? part + 1024 : part), (power ? power : 1) - 25);
        return half & 0x8000 ? -value : value;
    }
    memcpy(&value, &bits, 4);
    return value;
}

/* Device memory with `count` random numbers of a type; `host` gets the same numbers. */
static uint64_t filled(int8_t *host, size_t count, int type) {
    static const float wide[5] = {-2, -1, 0, 1, 2};
    static const uint16_t half[5] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000};
    static const uint16_t brain[5] = {0xc000, 0xbf80, 0, 0x3f80, 0x4000};
    static const uint8_t eight[3][5] = {
        {0xc0, 0xb8, 0, 0x38, 0x40}, {0xc0, 0xbc, 0, 0x3c, 0x40}, {0xfe, 0xff, 0, 1, 2}};
    static uint32_t seed = 1;
    size_t i, size = BYTES[type];
    char *stored = (char *)malloc(count * size);
    uint64_t device;
    must("malloc", stored == NULL || host == NULL);
    for (i = 0; i < count; ++i) {
        const void *from;
        int number;
        seed = seed * 1664525u + 1013904223u;
        number = (int)((seed >> 16) % 5);
        from = type == FP32    ? (const void *)&wide[number]
               : type == FP16  ? (const void *)&half[number]
               : type < E4M3   ? (const void *)&brain[number]
                               : (const void *)&eight[type - E4M3][number];
        memcpy(stored + size * i, from, size);
        host[i] = (int8_t)(number - 2);
    }
    must("cuMemAlloc", cuMemAlloc(&device, count * size));
    must("cuMemcpyHtoD", cuMemcpyHtoD(device, stored, count * size));
    free(stored);
    return device;
}

/* The scale of a number of A (row, p) or of B (p, column): a half for every third one, else 1. */
static double scaled(const Shape *s, int of_b, size_t z, size_t at, size_t p) {
    size_t count = of_b ? (size_t)s->n : (size_t)s->m, blocks = ((size_t)s->k + 127) / 128, place;
    if (s->scale == GEMM_UNSCALED) return 1;
    if (s->scale == GEMM_TENSOR) place = 0;
    else if (s->scale == GEMM_ROW) place = z * count + at;
    else if (of_b) place = (z * ((count + 127) / 128) + at / 128) * blocks + p / 128;
    else place = (z * blocks + p / 128) * count + at;
    return place % 3 ? 1 : 0.5;
}

/* The scales of A or of B in device memory, 0 for none. */
static uint64_t filled_scales(const Shape *s, int of_b) {
    size_t size = of_b ? (size_t)s->n : (size_t)s->m, blocks = ((size_t)s->k + 127) / 128, i;
    size_t count = s->scale == GEMM_TENSOR ? 1 : (size_t)s->batch * size;
    float *scales;
    uint64_t device;
    if (s->scale == GEMM_UNSCALED) return 0;
    if (s->scale == GEMM_BLOCK)
        count = (size_t)s->batch * blocks * (of_b ? (size + 127) / 128 : size);
    scales = (float *)malloc(count * sizeof *scales);
    must("malloc", scales == NULL);
    for (i = 0; i < count; ++i) scales[i] = i % 3 ? 1.0f : 0.5f;
    must("cuMemAlloc", cuMemAlloc(&device, count * sizeof *scales));
    must("cuMemcpyHtoD", cuMemcpyHtoD(device, scales, count * sizeof *scales));
    free(scales);
    return device;
}

/* The sum of the products of a row and a column of a matrix of the batch. */
static double sum_of(const Shape *s, const int8_t *a, const int8_t *b, size_t z, size_t row,
                     size_t column) {
    size_t m = (size_t)s->m, n = (size_t)s->n, k = (size_t)s->k, p;
    double sum = 0;
    for (p = 0; p < k; ++p)
        sum += a[z * m * k + (s->layout & 2 ? p * m + row : row * k + p)] *
               b[z * k * n + (s->layout & 1 ? column * k + p : p * n + column)] *
               scaled(s, 0, z, row, p) * scaled(s, 1, z, column, p);
    return sum;
}

/* The largest error of some elements, as a multiple of the rounding error of the type. */
static double worst(const Shape *s, const int8_t *a, const int8_t *b, const int8_t *bias,
                    const int8_t *residual, const void *c, int type) {
    static const double UNITS[] = {1e-6, 1 / 2048., 1 / 256., 1 / 16., 1 / 8., 1, 1e-6};
    double excess = 0, unit = UNITS[type];
    int gated = s->epilogue == GEMM_SWIGLU;
    size_t m = (size_t)s->m, n = (size_t)s->n / (gated ? 2 : 1), all = m * n * (size_t)s->batch, i;
    size_t count = all < CHECKED ? all : CHECKED;
    for (i = 0; i < count; ++i) {
        size_t at = i * (all / count), z = at / (m * n), row = at / n % m, column = at % n;
        size_t from = gated ? column / 8 * 16 + column % 8 : column;
        double x = sum_of(s, a, b, z, row, from) + (s->epilogue & 1 ? bias[column] : 0), error;
        if (s->epilogue / 2 == 1 && x < 0) x = 0;
        if (s->epilogue / 2 == 2) x *= (1 + erf(x / sqrt(2.0))) / 2;
        if (s->epilogue / 2 == 3)
            x *= (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) / 2;
        if (s->epilogue / 2 == 4) x /= 1 + exp(-x);
        if (s->epilogue / 2 == 5) x += residual[at];
        if (gated) x *= sum_of(s, a, b, z, row, from + 8) / (1 + exp(-x));
        if (type == E4M3 && fabs(x) > 448) x = copysign(448, x);
        error = fabs(read_number(c, at, type) - x) / (unit * (1 + fabs(x)));
        if (!(error <= excess)) excess = error;
    }
    return excess;
}

/* Runs one problem; returns whether the result is right. */
static int right(const Shape *s) {
    int types[3], added;
    size_t batch = (size_t)s->batch, size_a = batch * (size_t)(s->m * s->k);
    size_t size_b = batch * (size_t)(s->k * s->n), size_c = batch * (size_t)(s->m * s->n);
    size_t needed = 0;
    int8_t *a = (int8_t *)malloc(size_a), *b = (int8_t *)malloc(size_b);
    int8_t *bias = (int8_t *)malloc((size_t)s->n), *residual = (int8_t *)malloc(size_c);
    uint64_t at_a, at_b, at_c, at_bias, at_residual, scale_a, scale_b, space = 0;
    void *c;
    gemm_product product = product_of(s);
    gemm_choice choice;
    double error;
    find_types(s, types);
    added = types[2] == INT32 ? FP32 : BYTES[types[2]] == 1 ? BFLOAT16 : types[2];
    at_a = filled(a, size_a, types[0]), at_b = filled(b, size_b, types[1]);
    at_bias = filled(bias, (size_t)s->n, added), at_residual = filled(residual, size_c, added);
    scale_a = filled_scales(s, 0), scale_b = filled_scales(s, 1);
    c = malloc(size_c * BYTES[types[2]]);
    must("malloc", c == NULL);
    must("cuMemAlloc", cuMemAlloc(&at_c, size_c * BYTES[types[2]]));
    product.a = pointer(at_a), product.b = pointer(at_b), product.c = pointer(at_c);
    product.scale_a = (const float *)pointer(scale_a);
    product.scale_b = (const float *)pointer(scale_b);
    if (s->epilogue / 2 == 5) product.residual = pointer(at_residual);
    if (s->epilogue & 1) product.bias = pointer(at_bias);

    must("gemm_choose", gemm_choose(&product, &choice));
    must("gemm_workspace_size", gemm_workspace_size(&product, &needed));
    if (needed) must("cuMemAlloc", cuMemAlloc(&space, needed));
    must("gemm_prepare_workspace", gemm_prepare_workspace(pointer(space), needed, NULL));
    must("gemm_matmul", gemm_matmul(&product, pointer(space), needed, NULL));
    must("cuCtxSynchronize", cuCtxSynchronize());
    must("cuMemcpyDtoH", cuMemcpyDtoH(c, at_c, size_c * BYTES[types[2]]));

    error = worst(s, a, b, bias, residual, c, types[2]);
    printf("%s %s: %s\n", error <= 1 ? "right" : "WRONG", s->name, choice.config);
    cuMemFree(at_a), cuMemFree(at_b), cuMemFree(at_c), cuMemFree(at_bias);
    cuMemFree(at_residual);
    if (needed) cuMemFree(space);
    if (s->scale) cuMemFree(scale_a), cuMemFree(scale_b);
    free(a), free(b), free(bias), free(residual), free(c);
    return error <= 1;
}

int main(void) {
    size_t i, wrong = 0;
    int status;
    open_gpu();
    status = gemm_warm_up();
    must(gemm_message(status), status);
    for (i = 0; i < sizeof SHAPES / sizeof *SHAPES; ++i) wrong += !right(&SHAPES[i]);
    return wrong != 0;
}
