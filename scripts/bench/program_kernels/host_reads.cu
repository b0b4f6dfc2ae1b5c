// planted: host-access
#include <cstdio>
__global__ void fill(int* x) { *x = 7; }
int main() {
  int *x, host;
  cudaMalloc(&x, sizeof(int));
  fill<<<1, 1>>>(x);
  cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost);
#ifdef PLANTED
  printf("%d\n", *x);
#else
  printf("%d\n", host);
#endif
  cudaFree(x);
}
