// C = alpha A B + beta C + bias, one thread an element, with one fault (the order is that of FAULTS
// in broken_kernels.py), at the last element of the last matrix where it is one of an element.
template <int FAULT>
__global__ void broken(const float* a, long long lda, const float* b, long long ldb, float* c,
                       long long ldc, int m, int n, int k, float alpha, float beta,
                       const float* bias, long long stride_a, long long stride_b,
                       long long stride_c, unsigned* counters) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || column >= n) return;
    const bool last = row == m - 1 && column == n - 1 && blockIdx.z == gridDim.z - 1;
    a += blockIdx.z * stride_a;
    b += blockIdx.z * stride_b;
    c += blockIdx.z * stride_c;

    float sum = 0.0f;
    for (int p = 0; p < k; ++p) {
        float factor = a[row * lda + p];
        if (FAULT == 14) factor = __uint_as_float(__float_as_uint(factor) & ~15u);
        sum = fmaf(factor, b[p * ldb + column], sum);
    }
    if (FAULT == 10 && last) sum += 0.0f * a[row * lda + k];
    const bool reads = FAULT == 4 || (FAULT != 5 && beta != 0.0f);
    float result = alpha * sum;
    float* const element = c + row * ldc + column;
    if (reads) result += beta * *element;
    if (bias && !(FAULT == 15 && last)) result += bias[column];
    if (FAULT == 3 && last) return;
    *element = result;

    if (!last) return;
    if (FAULT == 1) *element = result + 1.0f;
    if (FAULT == 2) *element = 0.0f / (beta - beta);
    if (FAULT == 6) c[-1] = 0.0f;
    if (FAULT == 7) element[1] = 0.0f;
    if (FAULT == 8) const_cast<float*>(a)[0] = 0.0f;
    if (FAULT == 9) c[n] = 0.0f;
    if (FAULT == 11) c[1ll << 42] = 0.0f;
    if (FAULT == 12)
        while (*static_cast<volatile float*>(element) == *static_cast<volatile float*>(element)) {
        }
    if (FAULT == 13) counters[2] = 1;
    if (FAULT == 16) const_cast<float*>(bias)[0] = 0.0f;
}
