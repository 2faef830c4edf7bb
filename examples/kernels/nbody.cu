// Gravitational acceleration of n bodies by all others, with softening.
//
// A body is a float4: its position and its mass. A thread has `bodies` of them; all bodies pass by
// in tiles of block_size_x * stage, which shared memory holds if use_shared is 1.
//
// Parameters (macros):
//   block_size_x    threads of a block
//   bodies          bodies of a thread
//   stage           bodies of a tile that a thread loads
//   unroll          iterations of the inner loop that are unrolled
//   use_shared      1: tiles are in shared memory; 0: bodies are read through the caches
//   fast_root       1: rsqrtf; 0: 1 / sqrtf
//
// Constraints: n is a multiple of block_size_x * stage, unroll divides that tile, and the tile fits
// into 48 KB.

extern "C" __global__ void __launch_bounds__(block_size_x)
nbody(const float4* __restrict__ positions, float4* __restrict__ accelerations, int n,
      float softening) {
    constexpr int unrolled = unroll;  // a pragma does not expand macros
    constexpr int tile_bodies = block_size_x * stage;
    const int first = blockIdx.x * block_size_x * bodies + threadIdx.x;
    float4 mine[bodies];
    float3 sums[bodies];
#pragma unroll
    for (int i = 0; i < bodies; ++i) {
        mine[i] = positions[min(first + i * block_size_x, n - 1)];
        sums[i] = make_float3(0.0f, 0.0f, 0.0f);
    }
#if use_shared
    __shared__ float4 tile[tile_bodies];
#endif
    for (int start = 0; start < n; start += tile_bodies) {
#if use_shared
#pragma unroll
        for (int i = threadIdx.x; i < tile_bodies; i += block_size_x) tile[i] = positions[start + i];
        __syncthreads();
#else
        const float4* tile = positions + start;
#endif
#pragma unroll unrolled
        for (int other = 0; other < tile_bodies; ++other) {
            const float4 body = tile[other];
#pragma unroll
            for (int i = 0; i < bodies; ++i) {
                const float x = body.x - mine[i].x, y = body.y - mine[i].y, z = body.z - mine[i].z;
                const float squared = x * x + y * y + z * z + softening;
                const float inverse = fast_root ? rsqrtf(squared) : 1.0f / sqrtf(squared);
                const float factor = body.w * inverse * inverse * inverse;
                sums[i].x += factor * x;
                sums[i].y += factor * y;
                sums[i].z += factor * z;
            }
        }
#if use_shared
        __syncthreads();
#endif
    }
#pragma unroll
    for (int i = 0; i < bodies; ++i) {
        const int at = first + i * block_size_x;
        if (at < n) accelerations[at] = make_float4(sums[i].x, sums[i].y, sums[i].z, 0.0f);
    }
}
