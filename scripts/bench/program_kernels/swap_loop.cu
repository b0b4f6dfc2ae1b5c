// planted: race
// A loop around a compare-and-swap begins with a plain read, as public code has it: a note. Without the swap: a race.
__global__ void largest(int* top, const int* x) {
  int v = x[blockIdx.x * blockDim.x + threadIdx.x], seen = *top;
#ifdef PLANTED
  if (v > seen) atomicExch(top, v);
#else
  while (v > seen) {
    int now = atomicCAS(top, seen, v);
    if (now == seen) break;
    seen = now;
  }
#endif
}
int main() {
  int *top, *x, host[128];
  for (int i = 0; i < 128; ++i) host[i] = i + 1;
  cudaMalloc(&top, sizeof(int));
  cudaMalloc(&x, sizeof host);
  cudaMemset(top, 0, sizeof(int));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  largest<<<2, 64>>>(top, x);
  cudaDeviceSynchronize();
  cudaFree(top);
  cudaFree(x);
}
