// planted: illegal-address
__global__ void fill(int* x, int* flag) {
  x[threadIdx.x] = 1;
  if (flag) *flag = 1;
}
int main() {
  int* x = NULL;
#ifndef PLANTED
  cudaMalloc(&x, 32 * sizeof(int));
#endif
  fill<<<1, 32>>>(x, NULL);
  cudaError_t launched = cudaGetLastError();
  cudaError_t ran = cudaDeviceSynchronize(), after = cudaFree(0);
  bool sticks = ran == cudaErrorIllegalAddress && after == ran && cudaGetLastError() == ran && cudaGetLastError() == ran;
  if (launched != cudaSuccess || (ran != cudaSuccess && !sticks)) return 3;
  cudaFree(x);
}
