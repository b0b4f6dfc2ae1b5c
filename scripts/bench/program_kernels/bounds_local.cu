// planted: out-of-bounds
__global__ void sort4(int* x, int n) {
  int mine[4];
  for (int i = 0; i < n; ++i) mine[i] = x[threadIdx.x * 4 + i % 4];
  for (int i = 0; i < 4; ++i) x[threadIdx.x * 4 + i] = mine[3 - i];
}
int main() {
  int* x;
  cudaMalloc(&x, 128 * sizeof(int));
  cudaMemset(x, 1, 128 * sizeof(int));
#ifdef PLANTED
  sort4<<<1, 32>>>(x, 5);
#else
  sort4<<<1, 32>>>(x, 4);
#endif
  cudaDeviceSynchronize();
  cudaFree(x);
}
