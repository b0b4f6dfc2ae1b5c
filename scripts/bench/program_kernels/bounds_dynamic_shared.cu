// planted: out-of-bounds
__global__ void reverse(int* x, int n) {
  extern __shared__ int line[];
  int t = threadIdx.x;
  line[t] = x[t];
  __syncthreads();
  x[t] = line[n - 1 - t];
}
int main() {
  int *x, n = 128;
  cudaMalloc(&x, n * sizeof(int));
  cudaMemset(x, 1, n * sizeof(int));
#ifdef PLANTED
  reverse<<<1, n, n>>>(x, n);
#else
  reverse<<<1, n, n * sizeof(int)>>>(x, n);
#endif
  cudaDeviceSynchronize();
  cudaFree(x);
}
