/* @TITLE@, tuned and compiled by `autotune export`; @NAME@.h documents it. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "@NAME@.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#ifdef __cplusplus
#define THREAD_LOCAL thread_local
#else
#define THREAD_LOCAL _Thread_local
#endif

/* @DRIVER@ */

/* A call on a device, which is an index in DEVICES. */
typedef struct {
    int device, kernel;
    unsigned grid[3], block[3], shared;
} Launch;

/* @TABLES@ */

int @NAME@_driver_error(void) { return driver_error; }

/* The launch for the device that is most like the GPU; NULL if there is none. */
static const Launch *chosen(const Launch *launches, int count, const Card *card) {
    int i, j;
    for (i = 0; i < card->count; ++i)
        for (j = 0; j < count; ++j)
            if (launches[j].device == card->order[i] && runs(launches[j].kernel, card))
                return &launches[j];
    return NULL;
}

static int launched(const Launch *launches, int count, void **arguments, CUstream stream) {
    const Launch *launch;
    const Card *card;
    LaunchConfig config;
    int ordinal = 0, number, result, status;
    driver_error = 0;
    if ((status = current(&ordinal, &card)) != 0) return status;
    if ((launch = chosen(launches, count, card)) == NULL) return @UPPER@_NO_DEVICE;
    number = image(launch->kernel, card);
    if ((status = ensure(&number, 1, ordinal)) != 0) return status;
    memset(&config, 0, sizeof config);
    memcpy(config.grid, launch->grid, sizeof config.grid);
    memcpy(config.block, launch->block, sizeof config.block);
    config.shared = launch->shared, config.stream = stream;
    result = driver.cuLaunchKernelEx(&config, loaded[number].kernel, arguments, NULL);
    return result ? failed(@UPPER@_DRIVER, result) : @UPPER@_OK;
}

/* @FUNCTIONS@ */
