// planted: api-error
#include <cstdio>
__global__ void nothing() {}
int main() {
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  int threads = p.maxThreadsPerBlock;
#ifdef PLANTED
  threads *= 2;
#endif
  nothing<<<1, threads>>>();
  cudaError_t seen = cudaPeekAtLastError(), again = cudaGetLastError();
  if (seen != again || cudaGetLastError() != cudaSuccess) return 3;
  printf("%s\n", cudaGetErrorName(seen));
}
