// planted: out-of-bounds
__global__ void shift(int* out) {
  __shared__ int line[64];
  int t = threadIdx.x;
  line[t] = t;
  __syncthreads();
#ifdef PLANTED
  const int* at = line + t + 1;
#else
  const int* at = line + (t + 1) % 64;
#endif
  out[t] = *at;
}
int main() {
  int* out;
  cudaMalloc((void**)&out, 64 * sizeof(int));
  shift<<<1, 64>>>(out);
  cudaFree(out);
}
