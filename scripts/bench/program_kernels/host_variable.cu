// planted: host-access
#include <cstdio>
__device__ int state;
__managed__ int shared_state;
__global__ void next() { state += 1, shared_state += 2; }
int main() {
  int back;
#ifdef PLANTED
  state = 4;
#else
  int four = 4;
  cudaMemcpyToSymbol(state, &four, sizeof four);
#endif
  shared_state = 1;
  next<<<1, 1>>>();
  cudaMemcpyFromSymbol(&back, state, sizeof back);
  printf("%d %d\n", back, shared_state);
}
