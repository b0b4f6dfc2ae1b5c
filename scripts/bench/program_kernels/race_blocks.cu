// planted: race
#include <cstdio>
__global__ void total(const int* x, int* sum) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef PLANTED
  *sum += x[i];
#else
  atomicAdd(sum, x[i]);
#endif
}
int main() {
  int *x, *sum, back;
  cudaMallocManaged(&x, 256 * sizeof(int));
  for (int i = 0; i < 256; ++i) x[i] = i;
  cudaMalloc(&sum, sizeof(int));
  cudaMemset(sum, 0, sizeof(int));
  total<<<8, 32>>>(x, sum);
  cudaMemcpy(&back, sum, sizeof back, cudaMemcpyDeviceToHost);
  printf("%d\n", back);
  cudaFree(x), cudaFree(sum);
}
