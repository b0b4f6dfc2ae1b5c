// planted: race
__global__ void reverse(int* x) {
  __shared__ int line[64];
  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(line + threadIdx.x));
  asm volatile("{ .reg .s32 v; ld.global.s32 v, [%1]; st.shared.s32 [%0], v; }" ::"r"(at), "l"(x + threadIdx.x) : "memory");
#ifndef PLANTED
  asm volatile("bar.sync 0;" ::: "memory");
#endif
  x[threadIdx.x] = line[63 - threadIdx.x];
}
int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof(int));
  cudaMemset(x, 0, 64 * sizeof(int));
  int host[64];
  for (int i = 0; i < 64; ++i) host[i] = i;
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  reverse<<<1, 64>>>(x);
  cudaDeviceSynchronize();
  cudaFree(x);
}
