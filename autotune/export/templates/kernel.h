/* @TITLE@, tuned and compiled by `autotune export`. C11 and C++17.
 *
 * It needs nothing but the CUDA driver, which the first call opens: build it with
 *     cc -c @NAME@.c && cc main.o @NAME@.o -ldl -lpthread
 *
 * Several threads may call every function at once. A function enqueues its launches on a stream,
 * in the context that is current in the calling thread, and does not wait for them. Pointers are device
 * addresses. The sizes are those that the kernel was tuned for: the grid does not follow others.
 */
#ifndef @UPPER@_H
#define @UPPER@_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As in cuda.h; a cudaStream_t is the same. */
typedef struct CUstream_st *CUstream;

enum @NAME@_status {
    @UPPER@_OK = 0,
    @UPPER@_NO_DRIVER = 1,   /* libcuda.so.1 cannot be opened */
    @UPPER@_NO_CONTEXT = 2,  /* no context is current: call cudaSetDevice or cuCtxSetCurrent */
    @UPPER@_NO_DEVICE = 3,   /* nothing was exported for the compute capability of this GPU */
    @UPPER@_LOAD = 4,        /* the driver cannot load the kernel */
    @UPPER@_DRIVER = 5,      /* the driver refused the launch, or another call */
    @UPPER@_OLD_DRIVER = 6,  /* the driver is older than CUDA 12 */
    @UPPER@_DAMAGED = 7      /* the kernel is not as it was exported: its checksum is wrong */
};

/* @FUNCTIONS@ */

/* The driver's own number of the last error of this thread. */
int @NAME@_driver_error(void);

#ifdef __cplusplus
}
#endif
#endif
