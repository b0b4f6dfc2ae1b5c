// planted: race
#include <cstdio>
template <class F>
__global__ void for_each(int n, F f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) f(i);
}
int main() {
  int *x, *y, n = 50;
  cudaMalloc(&x, n * sizeof(int));
  cudaMalloc(&y, n * sizeof(int));
  for_each<<<2, 32>>>(n, [=] __device__(int i) { x[i] = i; });
#ifdef PLANTED
  for_each<<<2, 32>>>(n, [=] __device__(int i) { x[i] = x[n - 1 - i]; });
#else
  for_each<<<2, 32>>>(n, [=] __device__(int i) { y[i] = x[n - 1 - i]; });
#endif
  cudaDeviceSynchronize();
  cudaFree(x), cudaFree(y);
}
