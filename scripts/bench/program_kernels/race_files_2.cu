#include "race_files.cuh"
__constant__ int factor = 3;
static __global__ void multiply(int* x) { x[threadIdx.x] *= factor; }
int from_part(int* x) {
  int back[64];
  multiply<<<1, 64>>>(x);
  cudaMemcpy(back, x, sizeof back, cudaMemcpyDeviceToHost);
  return back[3];
}
