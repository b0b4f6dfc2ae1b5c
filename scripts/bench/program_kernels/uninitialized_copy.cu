// planted: copied-undefined
__global__ void fill(int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = i;
}
int main() {
  int *x, host[100];
  cudaMalloc(&x, sizeof host);
#ifdef PLANTED
  fill<<<1, 64>>>(x, 100);
#else
  fill<<<2, 64>>>(x, 100);
#endif
  cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(x);
}
