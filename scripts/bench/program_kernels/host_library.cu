// planted: host-access
#include <cstdio>
#include <cstdlib>
int main() {
  char *x, *y;
  cudaMalloc(&x, 64);
  cudaMallocHost(&y, 64);
#ifdef PLANTED
  snprintf(x, 64, "%d", rand());
#else
  snprintf(y, 64, "%d", rand());
#endif
  cudaMemcpy(x, y, 64, cudaMemcpyHostToDevice);
  cudaFree(x), cudaFreeHost(y);
}
