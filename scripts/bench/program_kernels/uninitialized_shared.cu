// planted: uninitialized
__global__ void edges(const int* x, int* y) {
  __shared__ int line[66];
  int t = threadIdx.x;
  line[t + 1] = x[t];
#ifndef PLANTED
  if (t == 0) line[0] = line[65] = 0;
#endif
  __syncthreads();
  y[t] = line[t] + line[t + 2];
}
int main() {
  int *x, *y;
  cudaMalloc(&x, 64 * sizeof(int));
  cudaMalloc(&y, 64 * sizeof(int));
  cudaMemset(x, 0, 64 * sizeof(int));
  edges<<<1, 64>>>(x, y);
  cudaDeviceSynchronize();
  cudaFree(x), cudaFree(y);
}
