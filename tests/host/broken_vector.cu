// C = A for matrices of 4 columns, one row a thread as a float4: sound only if the rows of A and C
// are aligned to 16 bytes.
template <int DEFECT>
__global__ void broken_vector(const float* a, long long lda, const float*, long long, float* c,
                              long long ldc, int, int, int, float, float,
                              const float*, long long, long long, long long) {
    *reinterpret_cast<float4*>(c + threadIdx.x * ldc) =
        *reinterpret_cast<const float4*>(a + threadIdx.x * lda);
}
