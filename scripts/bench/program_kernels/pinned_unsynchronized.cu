// planted: unsynchronized
#include <cstdio>
__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }
int main() {
  int *x, *host;
  cudaMalloc(&x, 32 * sizeof(int));
  cudaHostAlloc((void**)&host, 32 * sizeof(int), cudaHostAllocDefault);
  cudaStream_t stream;
  cudaEvent_t done;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreate(&done);
  fill<<<1, 32, 0, stream>>>(x);
  cudaMemcpyAsync(host, x, 32 * sizeof(int), cudaMemcpyDeviceToHost, stream);
  cudaEventRecord(done, stream);
#ifndef PLANTED
  cudaEventSynchronize(done);
#endif
  printf("%d\n", host[3]);
  cudaEventDestroy(done), cudaStreamDestroy(stream);
  cudaFree(x), cudaFreeHost(host);
}
