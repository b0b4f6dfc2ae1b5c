// planted: misaligned
__global__ void copy(const float* x, float* y) {
  reinterpret_cast<float4*>(y)[threadIdx.x] = *reinterpret_cast<const float4*>(x + 4 * threadIdx.x);
}
int main() {
  float *x, *y;
  cudaMalloc(&x, 1024);
  cudaMalloc(&y, 1024);
  cudaMemset(x, 0, 1024);
#ifdef PLANTED
  copy<<<1, 32>>>(x + 1, y);
#else
  copy<<<1, 32>>>(x + 4, y);
#endif
  cudaDeviceSynchronize();
  cudaFree(x), cudaFree(y);
}
