// planted: out-of-bounds
#include <cuda_runtime.h>
__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef PLANTED
  if (i <= n) x[i] *= 2.0f;
#else
  if (i < n) x[i] *= 2.0f;
#endif
}
int main() {
  float* x;
  const int n = 1000;
  cudaMalloc(&x, n * sizeof(float));
  cudaMemset(x, 0, n * sizeof(float));
  twice<<<(n + 255) / 256, 256>>>(x, n);
  cudaDeviceSynchronize();
  cudaFree(x);
}
