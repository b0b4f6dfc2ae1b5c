// planted: race
__global__ void rotate(int* x) {
  __shared__ volatile int line[32];
  int t = threadIdx.x;
  line[t] = x[t];
#ifndef PLANTED
  __syncwarp();
#endif
  x[t] = line[(t + 1) % 32];
}
int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof(int));
  cudaMemset(x, 0, 32 * sizeof(int));
  int host[32];
  for (int i = 0; i < 32; ++i) host[i] = i;
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  rotate<<<1, 32>>>(x);
  cudaDeviceSynchronize();
  cudaFree(x);
}
