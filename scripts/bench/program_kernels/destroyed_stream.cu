// planted: api-error
// Work is put into a stream that was destroyed.
__global__ void set(int* p) { p[threadIdx.x] = 1; }
int main() {
  int* x;
  cudaStream_t s;
  cudaStreamCreate(&s);
  cudaMalloc(&x, 256);
#ifdef PLANTED
  cudaStreamDestroy(s);
#endif
  cudaMemsetAsync(x, 0, 256, s);
  set<<<1, 64, 0, s>>>(x);
  cudaDeviceSynchronize();
#ifndef PLANTED
  cudaStreamDestroy(s);
#endif
  cudaFree(x);
}
