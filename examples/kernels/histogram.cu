// Adds to 256 bins how often each value occurs among n bytes.
//
// The blocks stride through the bytes. Each counts in `copies` histograms in shared memory, which
// its threads take in turns to collide less, and adds their sums to the bins.
//
// Parameters (macros):
//   block_size_x    threads of a block
//   num_blocks      blocks of the grid
//   copies          histograms of a block
//   padding         1: one more counter between the histograms, against bank conflicts
//   load_bytes      bytes of a load: 4, 8 or 16
//   unroll          loads of a thread in flight
//
// Constraints: n is a multiple of load_bytes; the histograms fit into 48 KB.

struct alignas(load_bytes) Words {
    unsigned int word[load_bytes / 4];
};

extern "C" __global__ void __launch_bounds__(block_size_x)
histogram(const unsigned char* __restrict__ values, unsigned int* __restrict__ bins, int n) {
    constexpr int unrolled = unroll;  // a pragma does not expand macros
    constexpr int pitch = 256 + padding;
    __shared__ unsigned int counts[copies * pitch];
    for (int i = threadIdx.x; i < copies * pitch; i += block_size_x) counts[i] = 0;
    __syncthreads();
    unsigned int* mine = counts + threadIdx.x % copies * pitch;
    const Words* loads = (const Words*)values;
    const int stride = num_blocks * block_size_x;
#pragma unroll unrolled
    for (int i = blockIdx.x * block_size_x + threadIdx.x; i < n / load_bytes; i += stride) {
        const Words words = loads[i];
#pragma unroll
        for (int j = 0; j < load_bytes / 4; ++j) {
#pragma unroll
            for (int shift = 0; shift < 32; shift += 8)
                atomicAdd(mine + (words.word[j] >> shift & 255), 1u);
        }
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < 256; bin += block_size_x) {
        unsigned int sum = 0;
        for (int copy = 0; copy < copies; ++copy) sum += counts[copy * pitch + bin];
        atomicAdd(bins + bin, sum);
    }
}
