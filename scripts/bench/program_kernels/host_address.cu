// planted: host-address
__device__ int hits[8];
__global__ void count(int* where) { atomicAdd(where, 1); }
int main() {
  int* where = hits + 2;
#ifndef PLANTED
  cudaGetSymbolAddress((void**)&where, hits);
#endif
  count<<<1, 32>>>(where);
  return cudaDeviceSynchronize();
}
