// D[M][N] = A[M][K] * B[N][K]^T, bytes to 32-bit sums: mma.sync m16n8k32 with fragments straight from global memory,
// whole tiles of 16 x 8 a warp; the K tail of fewer than 32 by dp4a, and the row sums of A by redux.
extern "C" __global__ void __launch_bounds__(64)
s8_direct(const signed char* A, const signed char* B, int* D, int* row_sums, int M, int N, int K) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  const int row = blockIdx.y * 16 + group, col = blockIdx.x * 16 + warp * 8;
  const int *a = reinterpret_cast<const int*>(A), *b = reinterpret_cast<const int*>(B);
  const int ld = K / 4;
  int d[4] = {0, 0, 0, 0};
  int k = 0;
  for (; k + 32 <= K; k += 32) {
    int x[4], y[2];
    for (int r = 0; r < 4; r++) x[r] = a[(row + r % 2 * 8) * ld + k / 4 + quad + r / 2 * 4];
    for (int r = 0; r < 2; r++) y[r] = b[(col + group) * ld + k / 4 + quad + r * 4];
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  }
  for (; k < K; k += 4)
    for (int r = 0; r < 4; r++)
      asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(d[r]) : "r"(a[(row + r / 2 * 8) * ld + k / 4]), "r"(b[(col + quad * 2 + r % 2) * ld + k / 4]));
  for (int r = 0; r < 4; r++) D[(row + r / 2 * 8) * N + col + quad * 2 + r % 2] = d[r];
  if (blockIdx.x == 0 && warp == 0) {
    for (int i = 0; i < 16; i++) {
      int sum = 0;
      for (int at = lane; at < K; at += 32) sum += A[(blockIdx.y * 16 + i) * K + at];
      asm volatile("redux.sync.add.s32 %0, %0, 0xffffffff;" : "+r"(sum));
      if (lane == i) row_sums[blockIdx.y * 16 + i] = sum;
    }
  }
}
