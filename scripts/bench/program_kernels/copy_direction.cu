// planted: api-error
int main() {
  float *x, host[64] = {};
  cudaMalloc(&x, sizeof host);
#ifdef PLANTED
  cudaMemcpy(host, x, sizeof host, cudaMemcpyHostToDevice);
#else
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  cudaMemcpy(host, x, sizeof host, cudaMemcpyDefault);
#endif
  cudaFree(x);
}
