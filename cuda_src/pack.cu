// Copies an operand into a workspace where every row starts at a multiple of 4 floats and runs
// along M or N, the way `simt` multiplies it: vectors of 4 and cp.async then serve any leading
// dimension.
//
//      ALONG_K = 0   from[k][x], with gaps or odd rows      to[k][pitch]
//      ALONG_K = 1   from[x][k], transposed on the way
//
// A block of 32 x 8 threads copies a tile of 32 x 32, through shared memory with rows of 33 floats
// where it transposes. What lies between `extent` and `pitch` is left as it is.
//
// Constraints: gridDim.x covers K, gridDim.y covers the extent with stride, gridDim.z is the batch;
// 32 x 33 floats of dynamic shared memory.
template <int ALONG_K>
__global__ void __launch_bounds__(256)
    pack(const float* __restrict__ from, long long ld, long long stride, float* __restrict__ to,
         long long start, int pitch, int extent, int k) {
    constexpr int TILE = 32, ROWS = 8;
    extern __shared__ float tile[];
    const int lane = threadIdx.x, first_k = blockIdx.x * TILE;
    from += blockIdx.z * stride;
    to += start + blockIdx.z * static_cast<long long>(pitch) * k;
    for (int first_x = blockIdx.y * TILE; first_x < extent; first_x += gridDim.y * TILE) {
        if constexpr (ALONG_K) {
            for (int row = threadIdx.y; row < TILE; row += ROWS)
                if (first_x + row < extent && first_k + lane < k)
                    tile[row * (TILE + 1) + lane] = from[(first_x + row) * ld + first_k + lane];
            __syncthreads();
        }
        for (int row = threadIdx.y; row < TILE; row += ROWS) {
            if (first_x + lane >= extent || first_k + row >= k) continue;
            to[static_cast<long long>(first_k + row) * pitch + first_x + lane] =
                ALONG_K ? tile[lane * (TILE + 1) + row]
                        : from[(first_k + row) * ld + first_x + lane];
        }
        if constexpr (ALONG_K) __syncthreads();
    }
}
