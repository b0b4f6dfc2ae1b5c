// planted: unsynchronized
#include <cstdio>
__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }
int main() {
  int* x;
  cudaMallocManaged(&x, 32 * sizeof(int));
  x[0] = 5;
  fill<<<1, 32>>>(x);
#ifndef PLANTED
  cudaDeviceSynchronize();
#endif
  printf("%d\n", x[3]);
  cudaFree(x);
}
