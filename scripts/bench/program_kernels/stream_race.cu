// planted: stream-race
// A kernel in one stream writes what a kernel in another one reads: an event between them orders the two. Halves of one
// allocation, counters and what one stream publishes to the other by a flag are no races.
#include <cassert>
__device__ int counter;
__global__ void fill(int* p, int v) { p[threadIdx.x] = v, atomicAdd(&counter, 1); }
__global__ void sum(const int* p, int* q) { q[threadIdx.x] += p[threadIdx.x]; }
__global__ void publish(int* p, int* flag) {
  *p = 7;
  __threadfence();
  atomicExch(flag, 1);
}
__global__ void await(const int* p, int* flag, int* q) {
  while (!atomicAdd(flag, 0)) {
  }
  __threadfence();
  *q = *p;
}
int main() {
  int *x, *y, *flag, seen[64];
  cudaMalloc(&x, 1024), cudaMalloc(&y, 256), cudaMalloc(&flag, 4);
  cudaMemset(y, 0, 256), cudaMemset(flag, 0, 4);
  cudaStream_t a, b, c;
  cudaEvent_t filled;
  cudaStreamCreate(&a), cudaStreamCreate(&b), cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking);
  cudaEventCreate(&filled);
  fill<<<1, 64, 0, a>>>(x, 1);
  fill<<<1, 64, 0, c>>>(x + 64, 2);
  cudaEventRecord(filled, a);
#ifndef PLANTED
  cudaStreamWaitEvent(b, filled, 0);
#endif
  sum<<<1, 64, 0, b>>>(x, y);
  publish<<<1, 1, 0, a>>>(x + 128, flag);
  await<<<1, 1, 0, c>>>(x + 128, flag, x + 130);
  cudaStreamSynchronize(a), cudaStreamSynchronize(c);
  sum<<<1, 64, 0, b>>>(x + 64, y);
  fill<<<1, 64>>>(x, 4);
  cudaMemcpy(seen, y, 256, cudaMemcpyDeviceToHost);
  assert(seen[5] == 3);
  cudaStreamDestroy(a), cudaStreamDestroy(b), cudaStreamDestroy(c), cudaEventDestroy(filled);
  cudaFree(x), cudaFree(y), cudaFree(flag);
}
