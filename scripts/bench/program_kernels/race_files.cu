// planted: race
#include "race_files.cuh"
#include <cstdio>
int main() {
  int* x;
  cudaMalloc(&x, 64 * sizeof(int));
  cudaMemset(x, 0, 64 * sizeof(int));
  start(x);
  int back = from_part(x);
  printf("%d\n", back);
  cudaFree(x);
}
