// One thread for one element of the product, of its slice of K; the slices are added in order.
extern "C" __global__ void gemm_pack(long long rows, long long cols, const float *source, long long ld,
                                     float *packed)
{
    const long long i = blockIdx.x * 64LL + threadIdx.x;
    if (i < rows * cols)
        packed[i] = source[i / cols * ld + i % cols];
}

__device__ void part(long long M, long long N, long long K, long long split_k, float alpha,
                     const float *a, long long lda, const float *b, long long ldb, float *partial)
{
    const long long split = blockIdx.x % split_k, i = blockIdx.x / split_k * 64 + threadIdx.x;
    const long long slice = (K + split_k - 1) / split_k, end = min(K, (split + 1) * slice);
    if (i >= M * N)
        return;
    float sum = 0.0f;
    if (alpha != 0.0f)
        for (long long k = split * slice; k < end; ++k)
            sum += a[i / N * lda + k] * b[k * ldb + i % N];
    partial[split * M * N + i] = sum;
}

extern "C" __global__ void gemm_main(long long M, long long N, long long K, long long split_k, float alpha,
                                     const float *a, long long lda, const float *b, long long ldb,
                                     float *partial)
{
    part(M, N, K, split_k, alpha, a, lda, b, ldb, partial);
}

extern "C" __global__ void gemm_packed(long long M, long long N, long long K, long long split_k,
                                       float alpha, const float *packed_a, const float *packed_b,
                                       float *partial)
{
    part(M, N, K, split_k, alpha, packed_a, K, packed_b, N, partial);
}

extern "C" __global__ void gemm_reduce(long long M, long long N, long long planes, float alpha, float beta,
                                       const float *partial, const float *c, long long ldc, float *d,
                                       long long ldd)
{
    const long long i = blockIdx.x * 64LL + threadIdx.x;
    if (i >= M * N)
        return;
    float sum = 0.0f;
    for (long long p = 0; p < planes; ++p)
        sum += partial[p * M * N + i];
    const long long row = i / N, col = i % N;
    d[row * ldd + col] = alpha * sum + (beta != 0.0f ? beta * c[row * ldc + col] : 0.0f);
}
