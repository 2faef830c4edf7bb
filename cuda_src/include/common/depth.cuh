// How far along K a product is summed.
#pragma once

// Steps of K, or k-tiles, of which alpha = 0 leaves none, as in the BLAS: A and B are not read, so
// that their NaN and infinities do not count.
__device__ __forceinline__ int summed(int steps, float alpha) { return alpha == 0.0f ? 0 : steps; }
