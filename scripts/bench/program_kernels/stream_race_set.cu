// planted: stream-race
// Memory of a stream's own order is used by another one before an event says that it is there.
__device__ int last[64];
__global__ void copy(const int* p) { last[threadIdx.x] = p[threadIdx.x]; }
int main() {
  int* x;
  cudaStream_t a, b;
  cudaEvent_t set;
  cudaStreamCreate(&a), cudaStreamCreate(&b), cudaEventCreate(&set);
  cudaMallocAsync((void**)&x, 256, a);
  cudaMemsetAsync(x, 0, 256, a);
  cudaEventRecord(set, a);
#ifndef PLANTED
  cudaStreamWaitEvent(b, set, 0);
#endif
  copy<<<1, 64, 0, b>>>(x);
  cudaStreamSynchronize(b);
  cudaFreeAsync(x, a);
  cudaDeviceSynchronize();
}
