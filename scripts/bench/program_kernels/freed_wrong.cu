// planted: bad-free
#include <cstdlib>
int main() {
  int *x, *pinned;
  cudaMalloc(&x, 100);
  cudaMallocHost((void**)&pinned, 100);
#ifdef PLANTED
  cudaFree(pinned);
#endif
  cudaFreeHost(pinned);
  cudaFree(x);
}
