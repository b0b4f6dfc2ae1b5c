// planted: constant-write
__constant__ float weights[16];
__global__ void sum(const float* w, float* out) {
  float s = 0;
  for (int i = 0; i < 16; ++i) s += w[i];
#ifdef PLANTED
  const_cast<float*>(w)[0] = s;
#endif
  *out = s;
}
int main() {
  float host[16] = {1, 2}, *out, *w;
  cudaMalloc(&out, sizeof(float));
  cudaMemcpyToSymbol(weights, host, sizeof host);
  cudaGetSymbolAddress((void**)&w, weights);
  sum<<<1, 1>>>(w, out);
  cudaMemcpy(host, out, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(out);
  return host[0] == 3.0f ? 0 : 1;
}
