// planted: trap
#include <cassert>
__global__ void check(const int* x) { assert(x[threadIdx.x] == 0); }
int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof(int));
#ifdef PLANTED
  cudaMemset(x, 1, 32 * sizeof(int));
#else
  cudaMemset(x, 0, 32 * sizeof(int));
#endif
  check<<<1, 32>>>(x);
  cudaError_t e = cudaDeviceSynchronize();
  if (e != cudaSuccess && e != cudaErrorAssert) return 3;
  cudaFree(x);
  cudaDeviceReset();
}
