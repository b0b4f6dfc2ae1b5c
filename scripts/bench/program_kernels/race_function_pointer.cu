// planted: race
typedef float (*Combine)(float, float);
__device__ float add(float a, float b) { return a + b; }
__device__ float larger(float a, float b) { return a > b ? a : b; }
__device__ Combine combines[2] = {add, larger};
__global__ void fold(float* x, Combine by, int which, int n) {
  __shared__ float best[64];
  int t = threadIdx.x;
  best[t] = x[t];
  Combine f = which < 0 ? by : combines[which];
#ifdef PLANTED
  if (t < 32) best[t] = f(best[t], best[t + 32]);
#else
  __syncthreads();
  float mine = t < 32 ? f(best[t], best[t + 32]) : best[t];
  __syncthreads();
  best[t] = mine;
#endif
  x[t] = best[t];
}
int main() {
  float *x, host[64];
  for (int i = 0; i < 64; ++i) host[i] = i % 7;
  cudaMalloc(&x, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  Combine by;
  cudaMemcpyFromSymbol(&by, combines, sizeof by, sizeof by);
  fold<<<1, 64>>>(x, by, -1, 64);
  fold<<<1, 64>>>(x, nullptr, 0, 64);
  cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(x);
}
