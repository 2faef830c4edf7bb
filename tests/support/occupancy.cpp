// NVIDIA's occupancy calculator behind one C function, as the oracle of tests/support/nvidia_occupancy.py.
// c++ -O2 -shared -fPIC -I DIRECTORY_OF_cuda_occupancy.h occupancy.cpp -o occupancy.so

#include <climits>
#include <cuda_occupancy.h>

struct Case {
    int major, minor;
    int threads_per_block, threads_per_sm, registers_per_block, registers_per_sm, warp_size;
    int shared_per_block, shared_per_block_optin, shared_per_sm, reserved_shared_per_block;
    int threads, registers, static_shared, dynamic_shared, barriers, carve_out;
};

struct Limits {
    int blocks_per_sm, by_warps, by_blocks, by_registers, by_shared, by_barriers;
};

// Returns the number of cases answered before NVIDIA's calculator refused one.
extern "C" int occupancy(int count, const Case *cases, Limits *limits)
{
    for (int i = 0; i < count; ++i) {
        const Case &c = cases[i];
        cudaOccDeviceProp device;
        device.computeMajor = c.major;
        device.computeMinor = c.minor;
        device.maxThreadsPerBlock = c.threads_per_block;
        device.maxThreadsPerMultiprocessor = c.threads_per_sm;
        device.regsPerBlock = c.registers_per_block;
        device.regsPerMultiprocessor = c.registers_per_sm;
        device.warpSize = c.warp_size;
        device.sharedMemPerBlock = c.shared_per_block;
        device.sharedMemPerBlockOptin = c.shared_per_block_optin;
        device.sharedMemPerMultiprocessor = c.shared_per_sm;
        device.reservedSharedMemPerBlock = c.reserved_shared_per_block;
        device.numSms = 1;

        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = INT_MAX;
        kernel.numRegs = c.registers;
        kernel.sharedSizeBytes = c.static_shared;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = c.dynamic_shared;
        kernel.numBlockBarriers = c.barriers;

        cudaOccDeviceState state;
        state.carveoutConfig = c.carve_out;

        cudaOccResult result;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, c.threads,
                                                    c.dynamic_shared) != CUDA_OCC_SUCCESS)
            return i;
        limits[i] = {result.activeBlocksPerMultiprocessor, result.blockLimitWarps,
                     result.blockLimitBlocks, result.blockLimitRegs, result.blockLimitSharedMem,
                     result.blockLimitBarriers};
    }
    return count;
}
