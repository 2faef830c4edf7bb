/* A program of a user of an exported kernel, saxpy. */
#include "saxpy.h"

#include <stddef.h>

int main(void) {
    int (*const launch)(void *, void *, float, int32_t, CUstream) = saxpy;
    int (*const error)(void) = saxpy_driver_error;
    struct CUstream_st *stream = NULL;
    const enum saxpy_status status = (enum saxpy_status)launch(NULL, NULL, 2.5f, 1000, stream);
    switch (status) {
        case SAXPY_OK: return 0;
        case SAXPY_NO_DRIVER: case SAXPY_NO_CONTEXT: case SAXPY_NO_DEVICE: case SAXPY_LOAD:
        case SAXPY_DRIVER: case SAXPY_OLD_DRIVER: case SAXPY_DAMAGED: break;
    }
    return error();
}
