// planted: api-error
#include <cstdio>
int main() {
  int many, sms, blocks, size, least;
  cudaGetDeviceCount(&many);
#ifdef PLANTED
  cudaSetDevice(many);
#else
  cudaSetDevice(many - 1);
#endif
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  size_t free_bytes, total;
  cudaMemGetInfo(&free_bytes, &total);
  printf("%d %d %s\n", many, sms, free_bytes <= total ? "ok" : "bad");
}
