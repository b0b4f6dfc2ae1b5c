// planted: race
#include <iostream>
using namespace std;
__device__ unsigned found;
__global__ void count(const int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] % 3 == 0) {
#ifdef PLANTED
    found = found + 1;
#else
    atomicInc(&found, 0xffffffffu);
#endif
  }
}
int main() {
  int *x, host[100];
  for (int i = 0; i < 100; ++i) host[i] = i;
  cudaMalloc(&x, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  unsigned zero = 0, many;
  cudaMemcpyToSymbol(found, &zero, sizeof zero);
  count<<<2, 64>>>(x, 100);
  cudaMemcpyFromSymbol(&many, found, sizeof many);
  cout << many << " of " << max(100, 3) << endl;
  cudaFree(x);
}
