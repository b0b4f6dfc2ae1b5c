// planted: use-after-free
__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }
int main() {
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  int *x, host[32];
  cudaMallocAsync((void**)&x, sizeof host, stream);
  fill<<<1, 32, 0, stream>>>(x);
#ifdef PLANTED
  cudaFreeAsync(x, stream);
  cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, stream);
#else
  cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, stream);
  cudaFreeAsync(x, stream);
#endif
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}
