// planted: copied-beyond
__global__ void rows(float* x, size_t pitch, int width, int height) {
  float* row = (float*)((char*)x + blockIdx.x * pitch);
  if (threadIdx.x < width && blockIdx.x < height) row[threadIdx.x] += 1.0f;
}
int main() {
  const int width = 50, height = 10;
  float *x, host[width * height] = {};
  size_t pitch;
  cudaMallocPitch(&x, &pitch, width * sizeof(float), height);
#ifdef PLANTED
  const int copied = height + 1;
#else
  const int copied = height;
#endif
  cudaMemset2D(x, pitch, 0, width * sizeof(float), height);
  cudaMemcpy2D(x, pitch, host, width * sizeof(float), width * sizeof(float), copied, cudaMemcpyHostToDevice);
  rows<<<height, 64>>>(x, pitch, width, height);
  cudaMemcpy2D(host, width * sizeof(float), x, pitch, width * sizeof(float), height, cudaMemcpyDeviceToHost);
  cudaFree(x);
}
