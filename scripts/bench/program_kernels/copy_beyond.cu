// planted: copied-beyond
int main() {
  float *x, host[128] = {};
  cudaMalloc(&x, 100 * sizeof(float));
#ifdef PLANTED
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
#else
  cudaMemcpy(x, host, 100 * sizeof(float), cudaMemcpyHostToDevice);
#endif
  cudaFree(x);
}
