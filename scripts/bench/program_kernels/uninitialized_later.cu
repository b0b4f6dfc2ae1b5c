// planted: uninitialized
__global__ void first(int* x, int n) {
  if (threadIdx.x < n) x[threadIdx.x] = threadIdx.x;
}
__global__ void second(const int* x, int* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[n - 1 - threadIdx.x];
}
int main() {
  int *x, *y;
  cudaMalloc(&x, 64 * sizeof(int));
  cudaMalloc(&y, 64 * sizeof(int));
#ifdef PLANTED
  first<<<1, 64>>>(x, 60);
#else
  first<<<1, 64>>>(x, 64);
#endif
  second<<<1, 64>>>(x, y, 64);
  cudaDeviceSynchronize();
  cudaFree(x), cudaFree(y);
}
