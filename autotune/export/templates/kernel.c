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

/* A launch on a device, which is an index in DEVICES. A call has the same number of launches on each
 * device, one behind the other. All blocks of a cooperative launch are resident at once. */
typedef struct {
    int device, kernel;
    unsigned grid[3], block[3], shared;
    int cooperative;
} Launch;

/* @TABLES@ */

int @NAME@_driver_error(void) { return driver_error; }

enum { COOPERATIVE = 2 }; /* CU_LAUNCH_ATTRIBUTE_COOPERATIVE */

/* The first launch for the device that is most like the GPU; NULL if there is none. */
static const Launch *chosen(const Launch *launches, int count, int steps, const Card *card) {
    int i, j, k;
    for (i = 0; i < card->count; ++i)
        for (j = 0; j < count; j += steps) {
            for (k = 0; k < steps && runs(launches[j + k].kernel, card);) ++k;
            if (launches[j].device == card->order[i] && k == steps) return &launches[j];
        }
    return NULL;
}

static int launched(const Launch *launches, int count, int steps, void **const *arguments,
                    CUstream stream) {
    static const LaunchAttribute cooperative = {COOPERATIVE, {0}, 1, {0}};
    const Launch *launch;
    const Card *card;
    LaunchConfig config;
    int ordinal = 0, number, result, status, i;
    driver_error = 0;
    if ((status = current(&ordinal, &card)) != 0) return status;
    if ((launch = chosen(launches, count, steps, card)) == NULL) return @UPPER@_NO_DEVICE;
    for (i = 0; i < steps; ++i) {
        number = image(launch[i].kernel, card);
        if ((status = ensure(&number, 1, ordinal)) != 0) return status;
    }
    for (i = 0; i < steps; ++i, ++launch) {
        memset(&config, 0, sizeof config);
        memcpy(config.grid, launch->grid, sizeof config.grid);
        memcpy(config.block, launch->block, sizeof config.block);
        config.shared = launch->shared, config.stream = stream;
        if (launch->cooperative) config.attributes = &cooperative, config.attribute_count = 1;
        number = image(launch->kernel, card);
        result = driver.cuLaunchKernelEx(&config, loaded[number].kernel, arguments[i], NULL);
        if (result) return failed(@UPPER@_DRIVER, result);
    }
    return @UPPER@_OK;
}

/* @FUNCTIONS@ */
