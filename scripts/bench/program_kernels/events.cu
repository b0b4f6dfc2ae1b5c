// planted: api-error
#include <cstdio>
__global__ void nothing() {}
int main() {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  cudaEventRecord(begin);
  nothing<<<1, 32>>>();
#ifndef PLANTED
  cudaEventRecord(end);
#endif
  cudaEventSynchronize(end);
  float ms = -1;
  cudaEventElapsedTime(&ms, begin, end);
  cudaEventDestroy(begin), cudaEventDestroy(end);
  return ms < 0;
}
