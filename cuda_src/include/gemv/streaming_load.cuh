// Loads of operands that are read once, from global memory into registers.
#pragma once

#include "common/vector.cuh"

// Copies WIDTH floats into registers; zeros where `valid` is false, and then does not read
// `global`, which is aligned to WIDTH floats. Whole vectors go past L1.
//
// The load stays in front of the next barrier. ptxas moves loads of the .nc kind, which those of
// `const __restrict__` operands become, down to their use, where two are under way and not sixteen.
template <int WIDTH>
__device__ __forceinline__ void load_streaming(float* registers, const float* global, bool valid) {
#if defined(AUTOTUNE_HOST)
    for (int i = 0; i < WIDTH; ++i) registers[i] = 0.0f;
    if (valid) copy_vector<WIDTH>(registers, global);
#else
    const int loads = valid;
    if constexpr (WIDTH == 4) {
        asm volatile(
            "{\n"
            ".reg .pred loads;\n"
            "setp.ne.s32 loads, %5, 0;\n"
            "mov.b32 %0, 0;\n"
            "mov.b32 %1, 0;\n"
            "mov.b32 %2, 0;\n"
            "mov.b32 %3, 0;\n"
            "@loads ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];\n"
            "}"
            : "=&f"(registers[0]), "=&f"(registers[1]), "=&f"(registers[2]), "=&f"(registers[3])
            : "l"(global), "r"(loads)
            : "memory");
    } else if constexpr (WIDTH == 2) {
        asm volatile(
            "{\n"
            ".reg .pred loads;\n"
            "setp.ne.s32 loads, %3, 0;\n"
            "mov.b32 %0, 0;\n"
            "mov.b32 %1, 0;\n"
            "@loads ld.global.v2.f32 {%0, %1}, [%2];\n"
            "}"
            : "=&f"(registers[0]), "=&f"(registers[1])
            : "l"(global), "r"(loads)
            : "memory");
    } else {
        asm volatile(
            "{\n"
            ".reg .pred loads;\n"
            "setp.ne.s32 loads, %2, 0;\n"
            "mov.b32 %0, 0;\n"
            "@loads ld.global.f32 %0, [%1];\n"
            "}"
            : "=&f"(registers[0])
            : "l"(global), "r"(loads)
            : "memory");
    }
#endif
}
