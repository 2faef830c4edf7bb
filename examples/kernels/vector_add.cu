// Adds two vectors, c = a + b, of n floats.
//
// A block adds block_size_x * vector_width * items adjacent floats. A thread loads vector_width of
// them at once, `items` times: block_size_x vectors apart if interleaved is 1, adjacent ones if 0.
//
// Parameters (macros):
//   block_size_x    threads of a block
//   vector_width    floats of a load: 1, 2 or 4
//   items           loads of a thread
//   interleaved     1: adjacent threads load adjacent vectors; 0: a thread's vectors are adjacent
//   streaming       1: loads and stores mark their cache lines as the first to evict
//
// Constraints: n is a multiple of vector_width.

#if vector_width == 1
typedef float Vector;
__device__ Vector add(Vector x, Vector y) { return x + y; }
#elif vector_width == 2
typedef float2 Vector;
__device__ Vector add(Vector x, Vector y) { return make_float2(x.x + y.x, x.y + y.y); }
#else
typedef float4 Vector;
__device__ Vector add(Vector x, Vector y) {
    return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}
#endif

__device__ Vector load(const Vector* at) { return streaming ? __ldcs(at) : *at; }

extern "C" __global__ void __launch_bounds__(block_size_x)
vector_add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    const int step = interleaved ? block_size_x : 1;
    const int first = blockIdx.x * block_size_x * items +
                      threadIdx.x * (interleaved ? 1 : items);
#pragma unroll
    for (int item = 0; item < items; ++item) {
        const int i = first + item * step;
        if (i >= n / vector_width) continue;
        const Vector sum = add(load((const Vector*)a + i), load((const Vector*)b + i));
        if (streaming) __stcs((Vector*)c + i, sum);
        else ((Vector*)c)[i] = sum;
    }
}
