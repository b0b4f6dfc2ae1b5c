// planted: unsynchronized
#include <cstdio>
#include <cstdlib>
__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }
int main() {
  int *host = (int*)malloc(3 * 32 * sizeof(int)), *device, *x;
  cudaMalloc(&x, 32 * sizeof(int));
  cudaHostRegister(host + 32, 32 * sizeof(int), cudaHostRegisterMapped);
  cudaHostGetDevicePointer((void**)&device, host + 32, 0);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  host[0] = host[64] = 1;
  fill<<<1, 32, 0, stream>>>(device);
  host[31] = host[64];  // beside it
#ifndef PLANTED
  cudaStreamSynchronize(stream);
#endif
  printf("%d\n", host[32 + 3]);
  fill<<<1, 32, 0, stream>>>(x);
  cudaMemcpyAsync(host + 32, x, 32 * sizeof(int), cudaMemcpyDeviceToHost, stream);
#ifndef PLANTED
  cudaDeviceSynchronize();
#endif
  host[32] = 5;
  cudaDeviceSynchronize();
  cudaHostUnregister(host + 32);
  cudaStreamDestroy(stream);
  cudaFree(x), free(host);
}
