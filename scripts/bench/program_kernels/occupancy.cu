// planted: out-of-bounds
#include <cstdio>
__global__ void fill(int* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = i;
}
int main() {
  int least, size, blocks, *x, n = 3000;
  cudaOccupancyMaxPotentialBlockSize(&least, &size, fill, 0, 0);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, size, 0);
  cudaFuncAttributes a;
  cudaFuncGetAttributes(&a, fill);
  cudaMalloc(&x, n * sizeof(int));
#ifdef PLANTED
  fill<<<2, size / 4>>>(x, n + 5);
#else
  fill<<<2, size / 4>>>(x, n);
#endif
  cudaDeviceSynchronize();
  cudaFree(x);
  return blocks < 1 || a.maxThreadsPerBlock != 1024;
}
