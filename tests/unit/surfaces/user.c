/* A program of a user of gemm.h: every function, field, macro and value by its name and its type. */
#include "gemm.h"

static const int COMPUTES[] = {GEMM_F32, GEMM_TF32, GEMM_TF32X3, GEMM_F16, GEMM_BF16, GEMM_F8,
                               GEMM_F8E5, GEMM_I8};
static const int LAYOUTS[] = {GEMM_NN, GEMM_NT, GEMM_TN, GEMM_TT};
static const int EPILOGUES[] = {
    GEMM_NONE, GEMM_BIAS, GEMM_RELU, GEMM_BIAS_RELU, GEMM_GELU, GEMM_BIAS_GELU, GEMM_GELU_TANH,
    GEMM_BIAS_GELU_TANH, GEMM_SILU, GEMM_BIAS_SILU, GEMM_RESIDUAL, GEMM_BIAS_RESIDUAL, GEMM_SWIGLU};
static const int OUTPUTS[] = {GEMM_SAME, GEMM_FLOAT, GEMM_HALF, GEMM_BFLOAT, GEMM_INT, GEMM_E4M3,
                              GEMM_E5M2};
static const int SCALES[] = {GEMM_UNSCALED, GEMM_TENSOR, GEMM_ROW, GEMM_BLOCK};
static const int SUMS[] = {GEMM_EXACT, GEMM_FAST};
static const int OPERANDS[] = {GEMM_E5M2_A, GEMM_E5M2_B, GEMM_E5M2_AB};
static const enum gemm_compute COMPUTE = GEMM_F32;
static const enum gemm_layout LAYOUT = GEMM_NN;
static const enum gemm_epilogue EPILOGUE = GEMM_NONE;
static const enum gemm_output OUTPUT = GEMM_SAME;
static const enum gemm_scale SCALE = GEMM_UNSCALED;
static const enum gemm_accumulate ACCUMULATE = GEMM_EXACT;
static const enum gemm_e5m2 OPERAND = GEMM_E5M2_A;
static const char VERSION[] = GEMM_VERSION;

static int allowed(enum gemm_status status) {
    switch (status) {
        case GEMM_OK: return 1;
        case GEMM_NULL: case GEMM_UNKNOWN: case GEMM_SIZE: case GEMM_MISALIGNED:
        case GEMM_LEADING_DIMENSION: case GEMM_STRIDE: case GEMM_BIAS_MISSING:
        case GEMM_BIAS_UNUSED: case GEMM_OVERLAP: case GEMM_WORKSPACE_NULL:
        case GEMM_WORKSPACE_SMALL: case GEMM_WORKSPACE_MISALIGNED: case GEMM_NO_DRIVER:
        case GEMM_OLD_DRIVER: case GEMM_NO_CONTEXT: case GEMM_NO_DEVICE: case GEMM_NO_KERNEL:
        case GEMM_GRID: case GEMM_DAMAGED: case GEMM_LOAD: case GEMM_LAUNCH: case GEMM_DRIVER:
        case GEMM_NOT_DEPENDENT: case GEMM_SCALE_MISSING: case GEMM_SCALE_UNUSED:
        case GEMM_FACTORS: case GEMM_RESIDUAL_MISSING: case GEMM_RESIDUAL_UNUSED: case GEMM_PAIRS:
            break;
    }
    return 0;
}

/* A pointer to a field refuses a field of another type. */
static int filled(gemm_product *product, const void *data, const float *factors, float *largest) {
    int64_t *const sizes[] = {&product->m, &product->n, &product->k, &product->batch};
    int64_t *const pitches[] = {&product->lda, &product->ldb, &product->ldc, &product->ldr};
    int64_t *const strides[] = {&product->stride_a, &product->stride_b, &product->stride_c,
                                &product->stride_r};
    int *const words[] = {&product->compute, &product->layout, &product->epilogue,
                          &product->output, &product->dependent, &product->scale,
                          &product->accumulate, &product->e5m2};
    const void **const operands[] = {&product->a, &product->b, &product->bias, &product->residual};
    void **const result = &product->c;
    float *const numbers[] = {&product->alpha, &product->beta};
    const float **const scales[] = {&product->scale_a, &product->scale_b, &product->scale_result};
    float **const amax = &product->amax;
    *sizes[0] = 1, *pitches[0] = 1, *strides[0] = GEMM_SHARED, *words[0] = GEMM_BF16;
    *operands[0] = data, *result = NULL, *numbers[0] = 1, *scales[0] = factors, *amax = largest;
    product->compute = (int)COMPUTE, product->layout = (int)LAYOUT;
    product->epilogue = (int)EPILOGUE, product->output = (int)OUTPUT, product->scale = (int)SCALE;
    product->accumulate = (int)ACCUMULATE, product->e5m2 = (int)OPERAND;
    return COMPUTES[0] + LAYOUTS[0] + EPILOGUES[0] + OUTPUTS[0] + SCALES[0] + SUMS[0] + OPERANDS[0];
}

static int chosen(gemm_choice *choice) {
    int *const numbers[] = {&choice->exported, &choice->launches, &choice->ptx};
    const char **const texts[] = {&choice->config, &choice->device, &choice->how};
    size_t *const bytes = &choice->workspace;
    return *numbers[0] + (int)*bytes + texts[0][0][0];
}

int main(void) {
    gemm_product (*const defaults)(int64_t, int64_t, int64_t) = gemm_default;
    int (*const size)(const gemm_product *, size_t *) = gemm_workspace_size;
    int (*const prepare)(void *, size_t, CUstream) = gemm_prepare_workspace;
    int (*const matmul)(const gemm_product *, void *, size_t, CUstream) = gemm_matmul;
    int (*const warm_up)(void) = gemm_warm_up;
    int (*const choose)(const gemm_product *, gemm_choice *) = gemm_choose;
    const char *(*const message)(int) = gemm_message;
    int (*const error)(void) = gemm_driver_error;
    struct CUstream_st *stream = NULL; /* as cuda.h and cudaStream_t have it */
    struct gemm_product product = defaults(64, 48, 40);
    struct gemm_choice choice;
    size_t bytes = 0;
    int status = filled(&product, NULL, NULL, NULL) + size(&product, &bytes);
    status += prepare(NULL, bytes, stream) + matmul(&product, NULL, bytes, stream) + warm_up();
    status += choose(&product, &choice) + chosen(&choice) + error() + message(GEMM_OK)[0];
    return status + VERSION[0] + allowed(GEMM_OK);
}
