// planted: use-after-free
#include <cstdio>
__global__ void sample(cudaTextureObject_t linear, cudaTextureObject_t plane, float* out) {
  int t = threadIdx.x;
  out[t] = tex1Dfetch<float>(linear, t) + tex2D<float>(plane, t + 0.5f, 1.5f);
}
int main() {
  float *x, *out, host[64];
  for (int i = 0; i < 64; ++i) host[i] = i;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&out, 16 * sizeof(float));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  cudaResourceDesc r = {};
  r.resType = cudaResourceTypeLinear;
  r.res.linear.devPtr = x;
  r.res.linear.desc = cudaCreateChannelDesc<float>();
  r.res.linear.sizeInBytes = sizeof host;
  cudaTextureDesc t = {};
  t.addressMode[0] = t.addressMode[1] = cudaAddressModeClamp;
  t.readMode = cudaReadModeElementType;
  cudaTextureObject_t linear, plane;
  cudaCreateTextureObject(&linear, &r, &t, nullptr);
  cudaArray_t array;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaMallocArray(&array, &format, 16, 4);
  cudaMemcpy2DToArray(array, 0, 0, host, 16 * sizeof(float), 16 * sizeof(float), 4, cudaMemcpyHostToDevice);
  r.resType = cudaResourceTypeArray;
  r.res.array.array = array;
  t.filterMode = cudaFilterModeLinear;
  cudaCreateTextureObject(&plane, &r, &t, nullptr);
#ifdef PLANTED
  cudaFree(x);
#endif
  sample<<<1, 16>>>(linear, plane, out);
  cudaMemcpy(host, out, 16 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaDestroyTextureObject(linear), cudaDestroyTextureObject(plane);
  cudaFreeArray(array);
#ifndef PLANTED
  cudaFree(x);
#endif
  cudaFree(out);
  return host[3] == 22.0f ? 0 : 1;
}
