// Multiplies square matrices, C = A B, each n x n and row-major, by a template.
//
// A block of (TILE_M / THREAD_M) * (TILE_N / THREAD_N) threads computes TILE_M x TILE_N elements of
// C, a thread THREAD_M x THREAD_N of them in registers; TILE_K columns of A and rows of B are in
// shared memory at a time.
//
// Parameters (template arguments): tile_m, tile_n, tile_k, thread_m, thread_n.
//
// Constraints: n is a multiple of the tiles, the threads divide the elements of both tiles, and the
// tiles fit into 48 KB.

template <class T, int TILE_M, int TILE_N, int TILE_K, int THREAD_M, int THREAD_N>
__global__ void __launch_bounds__((TILE_M / THREAD_M) * (TILE_N / THREAD_N))
matmul_template(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int n) {
    constexpr int COLUMNS = TILE_N / THREAD_N, THREADS = TILE_M / THREAD_M * COLUMNS;
    __shared__ T tile_a[TILE_K][TILE_M + 1], tile_b[TILE_K][TILE_N];
    const int thread = threadIdx.x, x = thread % COLUMNS, y = thread / COLUMNS;
    const int left = blockIdx.x * TILE_N, top = blockIdx.y * TILE_M;
    T sums[THREAD_M][THREAD_N] = {};
    for (int k = 0; k < n; k += TILE_K) {
#pragma unroll
        for (int i = thread; i < TILE_M * TILE_K; i += THREADS)
            tile_a[i % TILE_K][i / TILE_K] = a[(size_t)(top + i / TILE_K) * n + k + i % TILE_K];
#pragma unroll
        for (int i = thread; i < TILE_K * TILE_N; i += THREADS)
            tile_b[i / TILE_N][i % TILE_N] = b[(size_t)(k + i / TILE_N) * n + left + i % TILE_N];
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < TILE_K; ++kk) {
            T right[THREAD_N];
#pragma unroll
            for (int i = 0; i < THREAD_N; ++i) right[i] = tile_b[kk][x + i * COLUMNS];
#pragma unroll
            for (int j = 0; j < THREAD_M; ++j) {
                const T factor = tile_a[kk][y * THREAD_M + j];
#pragma unroll
                for (int i = 0; i < THREAD_N; ++i) sums[j][i] += factor * right[i];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < THREAD_M; ++j) {
#pragma unroll
        for (int i = 0; i < THREAD_N; ++i)
            c[(size_t)(top + y * THREAD_M + j) * n + left + x + i * COLUMNS] = sums[j][i];
    }
}
