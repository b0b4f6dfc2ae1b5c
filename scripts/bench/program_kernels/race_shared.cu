// planted: race
__global__ void total(const int* x, int* out) {
  __shared__ int part[128];
  int t = threadIdx.x;
  part[t] = x[blockIdx.x * 128 + t];
  __syncthreads();
  for (int step = 64; step > 0; step /= 2) {
    if (t < step) part[t] += part[t + step];
#ifndef PLANTED
    __syncthreads();
#endif
  }
  if (t == 0) out[blockIdx.x] = part[0];
}
int main() {
  int *x, *out;
  cudaMalloc(&x, 512 * sizeof(int));
  cudaMalloc(&out, 4 * sizeof(int));
  cudaMemset(x, 1, 512 * sizeof(int));
  total<<<4, 128>>>(x, out);
  cudaFree(x), cudaFree(out);
}
