// planted: copied-beyond
__constant__ double coefficients[4];
__global__ void sum(double* out) { *out = coefficients[0] + coefficients[3]; }
int main() {
  double host[5] = {1, 2, 3, 4, 5}, *out;
  cudaMalloc(&out, sizeof(double));
#ifdef PLANTED
  cudaMemcpyToSymbol(coefficients, host, sizeof host);
#else
  cudaMemcpyToSymbol(coefficients, host, 2 * sizeof(double));
  cudaMemcpyToSymbolAsync(coefficients, host + 2, 2 * sizeof(double), 2 * sizeof(double), cudaMemcpyHostToDevice, 0);
#endif
  sum<<<1, 1>>>(out);
  cudaDeviceSynchronize();
  cudaFree(out);
}
