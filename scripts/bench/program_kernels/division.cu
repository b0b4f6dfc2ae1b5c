// planted: division-by-zero
__global__ void share(int* x, int by) { x[threadIdx.x] /= by + (int)threadIdx.x; }
int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof(int));
  cudaMemset(x, 1, 32 * sizeof(int));
#ifdef PLANTED
  share<<<1, 32>>>(x, 0);
#else
  share<<<1, 32>>>(x, 1);
#endif
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  cudaFree(x);
}
