/* gemm: tuned CUDA kernels for matrix multiplication, C = act(alpha op(A) op(B) + beta C + bias),
 * where A and B of 8 bits may have scales, and a residual like C may be added.
 *
 * Made by `autotune export`; README.md lists the contents and says how to build it. C11 and C++17.
 * It needs nothing but the CUDA driver, which the first call opens.
 *
 * Several threads may call every function at once. No function allocates, prints or exits; those
 * that can fail return a gemm_status. Kernels are enqueued on the caller's stream, in the context
 * that is current in the calling thread, and no function waits for them.
 */
#ifndef GEMM_H
#define GEMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GEMM_VERSION "@VERSION@"

/* As in cuda.h; a cudaStream_t is the same. */
typedef struct CUstream_st *CUstream;

enum gemm_compute {    /* A and B are multiplied */
    GEMM_F32 = 0,      /* as fp32 */
    GEMM_TF32 = 1,     /* as fp32 that is rounded to tf32 */
    GEMM_TF32X3 = 2,   /* as fp32, nearly as accurately as GEMM_F32 */
    GEMM_F16 = 3,      /* as fp16, summed in fp32 */
    GEMM_BF16 = 4,     /* as bfloat16, summed in fp32 */
    GEMM_F8 = 5,       /* as fp8 e4m3, summed in fp32 */
    GEMM_F8E5 = 6,     /* as fp8, of which `e5m2` says which is e5m2; the other is e4m3 */
    GEMM_I8 = 7        /* as signed 8-bit integers, summed in int32 */
};

enum gemm_layout {     /* matrices are row-major; t is stored transposed */
    GEMM_NN = 0,       /* A is m x k, B is k x n */
    GEMM_NT = 1,       /* A is m x k, B is n x k */
    GEMM_TN = 2,       /* A is k x m, B is k x n */
    GEMM_TT = 3        /* A is k x m, B is n x k */
};

enum gemm_epilogue {   /* applied to each element before it is stored */
    GEMM_NONE = 0,
    GEMM_BIAS = 1,     /* one value for each of the n columns is added */
    GEMM_RELU = 2,     /* max(x, 0) */
    GEMM_BIAS_RELU = 3,
    GEMM_GELU = 4,     /* x (1 + erf(x / sqrt 2)) / 2 */
    GEMM_BIAS_GELU = 5,
    GEMM_GELU_TANH = 6, /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    GEMM_BIAS_GELU_TANH = 7,
    GEMM_SILU = 8,     /* x / (1 + exp(-x)) */
    GEMM_BIAS_SILU = 9,
    GEMM_RESIDUAL = 10, /* a matrix like C is added, where A and B have 16 or 8 bits */
    GEMM_BIAS_RESIDUAL = 11,
    /* Of each 16 columns of op(A) op(B) the first 8 are gates, the others what these are for: C, m x
     * n / 2, is silu(gate) up of each pair, where A and B have 16 or 8 bits. n is a multiple of 16. */
    GEMM_SWIGLU = 12
};

enum gemm_output {     /* C and the bias are stored */
    GEMM_SAME = 0,     /* as A and B are; as bfloat16 where these have 8 bits */
    GEMM_FLOAT = 1,    /* as fp32 */
    GEMM_HALF = 2,     /* as fp16, where A and B have 8 bits */
    GEMM_BFLOAT = 3,   /* as bfloat16, where A and B have 8 bits: GEMM_SAME */
    GEMM_INT = 4,      /* as int32: of GEMM_I8, without scales, epilogue, alpha and beta */
    GEMM_E4M3 = 5,     /* as fp8, of GEMM_F8 and GEMM_F8E5, without residual, alpha and beta: C is
                        * multiplied by scale_result, and the bias stored as bfloat16 */
    GEMM_E5M2 = 6
};

enum gemm_scale {      /* A and B of 8 bits are multiplied by fp32 scales, stored without gaps: */
    GEMM_UNSCALED = 0,
    GEMM_TENSOR = 1,   /* one of A, one of B */
    GEMM_ROW = 2,      /* batch x m, one for each row of op(A); batch x n, for each column of op(B) */
    GEMM_BLOCK = 3     /* of blocks of 128 along k, the last of which may be shorter: batch x k / 128 x
                        * m of op(A), batch x n / 128 x k / 128 of op(B); not of GEMM_I8 */
};

enum gemm_accumulate { /* sums of fp8 products */
    GEMM_EXACT = 0,    /* are added in fp32 every 128 of k */
    GEMM_FAST = 1      /* keep the 14 bits of the tensor cores all along k */
};

enum gemm_e5m2 { GEMM_E5M2_A = 0, GEMM_E5M2_B = 1, GEMM_E5M2_AB = 2 };

/* A matrix multiplication, or a batch of equal sizes. gemm_default fills in the defaults. */
typedef struct gemm_product {
    int64_t m, n, k;          /* 1 to 2^31 - 1 */
    int64_t batch;            /* 1 to 65535 */
    int compute, layout, epilogue, output;
    const void *a, *b;        /* device memory, at a multiple of an element */
    void *c;                  /* written, and read unless beta is 0; apart from all others */
    const void *bias;         /* n elements, as the output says, where the epilogue has one, else NULL */
    int64_t lda, ldb, ldc;    /* elements from row to row; 0: without gaps */
    /* Elements from matrix to matrix of a batch. 0: without gaps; GEMM_SHARED, of A or B: one
     * matrix for all. */
    int64_t stride_a, stride_b, stride_c;
    float alpha, beta;        /* 0 leaves out A and B, or C, NaN in them too */
    /* 1: programmatic dependent launch, from compute capability 9.0 on. The kernels may start before
     * the one before them on the stream has ended, and wait for it on the GPU. */
    int dependent;
    int scale, accumulate, e5m2;      /* other than 0 where A and B have 8 bits */
    const float *scale_a, *scale_b;   /* device memory; NULL for GEMM_UNSCALED */
    const void *residual;     /* as C where the epilogue has one, else NULL */
    int64_t ldr, stride_r;    /* of the residual, as ldc and stride_c; GEMM_SHARED: one for all */
    /* Of GEMM_E4M3 and GEMM_E5M2, or NULL: the scale of C, and a number that is raised to the
     * largest size of C before it is scaled. */
    const float *scale_result;
    float *amax;
} gemm_product;

#define GEMM_SHARED (-1)

enum gemm_status {
    GEMM_OK = 0,
    GEMM_NULL = 1,                 /* a required pointer is NULL */
    GEMM_UNKNOWN = 2,              /* no such compute, layout, epilogue, output, scale, ... */
    GEMM_SIZE = 3,                 /* m, n, k or batch out of range, or a matrix beyond 2^63 bytes */
    GEMM_MISALIGNED = 4,           /* an operand is not aligned to its elements */
    GEMM_LEADING_DIMENSION = 5,    /* shorter than a row */
    GEMM_STRIDE = 6,               /* negative, or the matrices of C would overlap */
    GEMM_BIAS_MISSING = 7,         /* the epilogue has a bias, but none was passed */
    GEMM_BIAS_UNUSED = 8,          /* a bias was passed, but the epilogue has none */
    GEMM_OVERLAP = 9,              /* C shares elements with another operand */
    GEMM_WORKSPACE_NULL = 10,      /* a workspace is needed */
    GEMM_WORKSPACE_SMALL = 11,     /* fewer bytes than gemm_workspace_size returns */
    GEMM_WORKSPACE_MISALIGNED = 12,/* not at a multiple of 256 bytes */
    GEMM_NO_DRIVER = 13,           /* libcuda.so.1 cannot be opened */
    GEMM_OLD_DRIVER = 14,          /* the driver is older than CUDA 12 */
    GEMM_NO_CONTEXT = 15,          /* no CUDA context is current in the calling thread */
    GEMM_NO_DEVICE = 16,           /* nothing was exported for GPUs like the current one */
    GEMM_NO_KERNEL = 17,           /* no kernel was exported for this compute, layout and so on */
    GEMM_GRID = 18,                /* more blocks than a grid can have */
    GEMM_DAMAGED = 19,             /* a kernel is not as it was exported: its checksum is wrong */
    GEMM_LOAD = 20,                /* the driver refused a kernel */
    GEMM_LAUNCH = 21,              /* the driver refused a launch */
    GEMM_DRIVER = 22,              /* another call of the driver failed */
    GEMM_NOT_DEPENDENT = 23,       /* no programmatic dependent launch below compute capability 9.0 */
    GEMM_SCALE_MISSING = 24,       /* the product has scales, but scale_a or scale_b is NULL */
    GEMM_SCALE_UNUSED = 25,        /* a scale was passed, but the product has none */
    GEMM_FACTORS = 26,             /* GEMM_INT and GEMM_SWIGLU take an alpha of 1 and a beta of 0 */
    GEMM_RESIDUAL_MISSING = 27,    /* the epilogue has a residual, but none was passed */
    GEMM_RESIDUAL_UNUSED = 28,     /* a residual was passed, but the epilogue has none */
    GEMM_PAIRS = 29                /* GEMM_SWIGLU takes an n that is a multiple of 16 */
};

/* What gemm_matmul runs. The texts are constants of the library. */
typedef struct gemm_choice {
    int exported;             /* 1: a kernel for this shape; 0: the general one */
    const char *config;       /* the kernel and its parameters */
    const char *device;       /* the GPU it was chosen for */
    const char *how;          /* exact, range, nearest, related, predicted or general */
    int launches;
    size_t workspace;         /* bytes, as gemm_workspace_size */
    int ptx;                  /* 1: the driver compiles the kernel for this GPU, from its PTX */
} gemm_choice;

/* An m x k times a k x n matrix: batch and alpha are 1, all else is 0. */
gemm_product gemm_default(int64_t m, int64_t n, int64_t k);

/* Bytes of workspace needed on the current device; 0 for none. NULL pointers count as aligned. */
int gemm_workspace_size(const gemm_product *product, size_t *bytes);

/* Enqueues the zeroing of a new workspace, which is needed once. Each gemm_matmul leaves the
 * workspace ready for the next, as long as no two of them use it at the same time. */
int gemm_prepare_workspace(void *workspace, size_t bytes, CUstream stream);

/* Enqueues the matrix multiplication. */
int gemm_matmul(const gemm_product *product, void *workspace, size_t bytes, CUstream stream);

/* Loads every kernel for the current device, which otherwise happens at the first calls. Later
 * calls neither load kernels nor make the driver allocate. */
int gemm_warm_up(void);

/* What gemm_matmul would run on the current device; nothing is loaded or launched. */
int gemm_choose(const gemm_product *product, gemm_choice *choice);

/* The meaning of a status, in one line. */
const char *gemm_message(int status);

/* The CUresult of the last driver call that failed in this thread; 0 if none did. */
int gemm_driver_error(void);

#ifdef __cplusplus
}
#endif

#endif
