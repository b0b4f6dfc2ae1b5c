// planted: use-after-free
__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }
int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof(int));
#ifdef PLANTED
  cudaFree(x);
  fill<<<1, 32>>>(x);
#else
  fill<<<1, 32>>>(x);
  cudaFree(x);
#endif
  cudaDeviceSynchronize();
}
