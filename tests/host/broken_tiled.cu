// The tiled kernel for 8 x 8 tiles with one defect, to show that the harness sees it; 0 is sound.
enum Defect {
    NONE,
    READS_PAST_A,
    WRITES_PAST_C,
    WRITES_BETWEEN_ROWS,
    READS_C_AT_BETA_ZERO,
    OVERRUNS_SHARED,
    READS_BEFORE_BARRIER,
    WRITES_BEFORE_BARRIER,
    EXITS_BEFORE_BARRIER,
    SPLITS_THE_BARRIER,
};

template <int DEFECT>
__global__ void broken_tiled(const float* a, long long lda, const float* b, long long ldb, float* c,
                             long long ldc, int m, int n, int k, float alpha, float beta,
                             const float*, long long, long long, long long) {
    constexpr int WIDTH = 8;
    extern __shared__ float tiles[];
    float* a_tile = tiles;
    float* b_tile = tiles + WIDTH * WIDTH + (DEFECT == OVERRUNS_SHARED);
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * WIDTH + y, column = blockIdx.x * WIDTH + x;
    if (DEFECT == EXITS_BEFORE_BARRIER && row >= m) return;

    float sum = 0.0f;
    for (int depth = 0; depth < k; depth += WIDTH) {
        a_tile[y * WIDTH + x] = (row < m || DEFECT == READS_PAST_A) && depth + x < k
                                    ? a[row * lda + depth + x]
                                    : 0.0f;
        b_tile[y * WIDTH + x] = column < n && depth + y < k ? b[(depth + y) * ldb + column] : 0.0f;
        if (DEFECT == SPLITS_THE_BARRIER && y % 2) {
            __syncthreads();
        } else if (DEFECT != READS_BEFORE_BARRIER) {
            __syncthreads();
        }
        for (int p = 0; p < WIDTH; ++p)
            sum = fmaf(a_tile[y * WIDTH + p], b_tile[p * WIDTH + x], sum);
        if (DEFECT != WRITES_BEFORE_BARRIER) __syncthreads();
    }

    if (row >= m && DEFECT != WRITES_PAST_C) return;
    if (column >= n && (DEFECT != WRITES_BETWEEN_ROWS || row == m - 1)) return;
    float* element = c + row * ldc + column;
    const bool reads = beta != 0.0f || DEFECT == READS_C_AT_BETA_ZERO;
    *element = reads ? fmaf(alpha, sum, beta * *element) : alpha * sum;
}
