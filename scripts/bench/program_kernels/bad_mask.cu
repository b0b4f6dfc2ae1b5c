// planted: bad-mask
__global__ void spread(int* x) {
  int t = threadIdx.x;
  if (t < 8) {
#ifdef PLANTED
    x[t] = __shfl_sync(0xf0u, t, 4);
#else
    x[t] = __shfl_sync(0xffu, t, 4);
#endif
  }
}
int main() {
  int* x;
  cudaMalloc(&x, 8 * sizeof(int));
  spread<<<1, 32>>>(x);
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  cudaFree(x);
}
