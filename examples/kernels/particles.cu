// Moves n particles for one time step in a periodic box, which the kernel takes by value.
//
// Particles are a float4 of position and charge and a float4 of velocity and mass. Those that leave
// the box enter it on the other side.
//
// Parameters (macros):
//   block_size_x    threads of a block
//   items           particles of a thread
//   interleaved     1: adjacent threads have adjacent particles; 0: a thread's are adjacent
//   streaming       1: loads and stores mark their cache lines as the first to evict
//   branches        1: positions wrap by comparison; 0: by a floor

struct Box {
    float low[3];
    float size[3];
    float step;
    int periodic;
};

__device__ float wrapped(float at, float low, float size, int periodic) {
    if (!periodic) return at;
    if (branches) return at < low ? at + size : at >= low + size ? at - size : at;
    return at - size * floorf((at - low) / size);
}

extern "C" __global__ void __launch_bounds__(block_size_x)
particles(const float4* __restrict__ positions, const float4* __restrict__ velocities,
          float4* __restrict__ moved, Box box, int n) {
    const int stride = interleaved ? block_size_x : 1;
    const int first = blockIdx.x * block_size_x * items +
                      threadIdx.x * (interleaved ? 1 : items);
#pragma unroll
    for (int item = 0; item < items; ++item) {
        const int i = first + item * stride;
        if (i >= n) continue;
        float4 at = streaming ? __ldcs(positions + i) : positions[i];
        const float4 velocity = streaming ? __ldcs(velocities + i) : velocities[i];
        at.x = wrapped(at.x + box.step * velocity.x, box.low[0], box.size[0], box.periodic);
        at.y = wrapped(at.y + box.step * velocity.y, box.low[1], box.size[1], box.periodic);
        at.z = wrapped(at.z + box.step * velocity.z, box.low[2], box.size[2], box.periodic);
        if (streaming) __stcs(moved + i, at);
        else moved[i] = at;
    }
}
