// planted: divergent-barrier
__global__ void halves(int* x) {
  __shared__ int line[64];
  int t = threadIdx.x;
  line[t] = t;
#ifdef PLANTED
  if (t < 32) {
    __syncthreads();
    x[t] = line[t + 32];
  } else {
    __syncthreads();
    x[t] = line[t - 32];
  }
#else
  __syncthreads();
  x[t] = line[t < 32 ? t + 32 : t - 32];
#endif
}
int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof(int));
  halves<<<1, 64>>>(x);
  cudaDeviceSynchronize();
  cudaFree(x);
}
