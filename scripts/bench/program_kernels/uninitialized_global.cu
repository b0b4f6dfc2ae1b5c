// planted: uninitialized
__global__ void add(const float* x, float* y, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] += x[i];
}
int main() {
  float *x, *y, host[40] = {};
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&y, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
#ifndef PLANTED
  cudaMemset(y, 0, sizeof host);
#endif
  add<<<1, 64>>>(x, y, 40);
  cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(x), cudaFree(y);
}
