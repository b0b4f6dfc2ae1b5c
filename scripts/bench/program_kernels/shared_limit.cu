// planted: api-error
__global__ void wide(char* x) {
  extern __shared__ char line[];
  line[threadIdx.x] = 1;
  x[threadIdx.x] = line[threadIdx.x];
}
int main() {
  char* x;
  cudaMalloc(&x, 32);
#ifndef PLANTED
  cudaFuncSetAttribute(wide, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
#endif
  wide<<<1, 32, 64 << 10>>>(x);
  cudaDeviceSynchronize();
  cudaFree(x);
}
