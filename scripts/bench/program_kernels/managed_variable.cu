// planted: unsynchronized
#include <cassert>
__managed__ int sum, flag;
__global__ void add(int n) {
  atomicAdd(&sum, n);
  __threadfence_system();
  atomicExch(&flag, 1);
}
int main() {
  sum = 1;
  add<<<1, 32>>>(2);
#ifndef PLANTED
  cudaDeviceSynchronize();
#endif
  sum += 2;
  add<<<1, 32>>>(1);
  while (!*(volatile int*)&flag) {
  }
  assert(sum == 99);
}
