// planted: race
__global__ void next(int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef PLANTED
  if (i < n - 1) x[i] = x[i + 1];
#else
  if (i < n) x[i] = i + 1;
#endif
}
int main() {
  int *x, n = 96, host[96];
  for (int i = 0; i < n; ++i) host[i] = i * i;
  cudaMalloc(&x, n * sizeof(int));
  cudaMemcpy(x, host, n * sizeof(int), cudaMemcpyHostToDevice);
  void* arguments[] = {&x, &n};
  cudaLaunchKernel((const void*)next, dim3(3), dim3(32), arguments, 0, 0);
  cudaLaunchCooperativeKernel((void*)next, dim3(3), dim3(32), arguments);
  cudaDeviceSynchronize();
  cudaFree(x);
}
