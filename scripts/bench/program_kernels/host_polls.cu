// planted: unsynchronized
// A flag in pinned memory, read again and again while the kernel may run: with `volatile`, the host has waited.
#include <cstdio>
__global__ void produce(int* data, volatile int* flag) {
  data[0] = 7;
  __threadfence_system();
  *flag = 1;
}
int main() {
  int *data, *flag;
  cudaHostAlloc((void**)&data, sizeof(int), cudaHostAllocMapped);
  cudaHostAlloc((void**)&flag, sizeof(int), cudaHostAllocMapped);
  *flag = 0;
  produce<<<1, 1>>>(data, flag);
#ifndef PLANTED
  while (*(volatile int*)flag == 0) {
  }
#endif
  printf("%d\n", data[0]);
  cudaDeviceSynchronize();
  cudaFreeHost(data);
  cudaFreeHost(flag);
}
