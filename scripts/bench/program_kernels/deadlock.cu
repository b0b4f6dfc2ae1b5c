// planted: deadlock
__global__ void meet(int* x) {
  int t = threadIdx.x, v = t;
#ifdef PLANTED
  if (t < 16) __syncthreads();
  else v = __shfl_sync(0xffffffffu, v, 0);
#else
  v = __shfl_sync(0xffffffffu, v, 0);
  __syncthreads();
#endif
  x[t] = v;
}
int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof(int));
  meet<<<1, 32>>>(x);
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  cudaFree(x);
}
