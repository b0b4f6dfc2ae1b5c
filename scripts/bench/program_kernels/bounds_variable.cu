// planted: out-of-bounds
#include <cstdio>
__device__ float table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ float other[8];
__global__ void add(const float* from, int n) {
  if (threadIdx.x < n) other[threadIdx.x % 8] = from[threadIdx.x];
}
int main() {
  float* at;
  cudaGetSymbolAddress((void**)&at, table);
#ifdef PLANTED
  add<<<1, 32>>>(at, 9);
#else
  add<<<1, 32>>>(at, 8);
#endif
  float back[8];
  cudaMemcpyFromSymbol(back, other, sizeof back);
  printf("%g\n", back[7]);
}
