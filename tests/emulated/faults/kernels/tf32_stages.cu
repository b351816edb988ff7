// C[M][N] = A[M][K] * B[N][K]^T in tf32: cp.async in four stages, padded rows, mma.sync m16n8k8. Whole tiles.
constexpr int BM = 64, BN = 64, BK = 16, PAD = 4, STAGES = 4, ROW = BK + PAD;

struct Stage {
  float a[BM][ROW];
  float b[BN][ROW];
};

__device__ __forceinline__ void copy16(float* to, const float* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
               : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_group() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void fetch(Stage& stage, const float* A, const float* B, int K) {
  for (int i = threadIdx.x; i < BM * BK / 4; i += 128) {
    const int row = i / (BK / 4), col = i % (BK / 4) * 4;
    copy16(&stage.a[row][col], &A[row * K + col]);
    copy16(&stage.b[row][col], &B[row * K + col]);
  }
}

extern "C" __global__ void __launch_bounds__(128) gemm(const float* A, const float* B, float* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char memory[];
  Stage* stages = reinterpret_cast<Stage*>(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  const int warp_m = warp / 2 * 32, warp_n = warp % 2 * 32, steps = K / BK;
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN * K;

  for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) fetch(stages[s], A + s * BK, B + s * BK, K);
    commit();
  }
  float acc[2][4][4] = {};
  for (int step = 0; step < steps; step++) {
    wait_group<STAGES - 2>();
    __syncthreads();
    const int next = step + STAGES - 1;
    if (next < steps) fetch(stages[next % STAGES], A + next * BK, B + next * BK, K);
    commit();
    const Stage& now = stages[step % STAGES];
    for (int k = 0; k < BK; k += 8) {
      unsigned a[2][4], b[4][2];
      for (int i = 0; i < 2; i++)
        for (int r = 0; r < 4; r++)
          a[i][r] = __float_as_uint(now.a[warp_m + 16 * i + group + r % 2 * 8][k + quad + r / 2 * 4]);
      for (int j = 0; j < 4; j++)
        for (int r = 0; r < 2; r++) b[j][r] = __float_as_uint(now.b[warp_n + 8 * j + group][k + quad + r * 4]);
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) mma(acc[i][j], a[i], b[j]);
    }
  }
  wait_group<0>();
  C += (blockIdx.y * BM + warp_m) * N + blockIdx.x * BN + warp_n;
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 4; j++)
      for (int r = 0; r < 4; r++) C[(16 * i + group + r / 2 * 8) * N + 8 * j + quad * 2 + r % 2] = acc[i][j][r];
}
