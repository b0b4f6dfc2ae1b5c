// planted: divergent-barrier
#ifdef PLANTED
#define BOTH(FIRST, SECOND) if (threadIdx.x < 32) { FIRST; __syncthreads(); } else { SECOND; __syncthreads(); }
#else
#define BOTH(FIRST, SECOND) if (threadIdx.x < 32) { FIRST; } else { SECOND; } __syncthreads(); __syncthreads();
#endif
__global__ void fill(int* x) {
  BOTH(x[threadIdx.x] = 1, x[threadIdx.x] = 2)
  x[threadIdx.x] += 1;
}
__global__ void same(int* x) {
  for (int i = 0; i < 3; ++i) { x[threadIdx.x] += i; __syncthreads(); }
}
int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof(int));
  cudaMemset(x, 0, 64 * sizeof(int));
  same<<<1, 64>>>(x);
  fill<<<1, 64>>>(x);
  cudaDeviceSynchronize();
  cudaFree(x);
}
