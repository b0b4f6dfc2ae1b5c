// planted: unsynchronized
// The host writes the next values into memory that it has registered, while a copy may still read those before.
#include <cassert>
#include <vector>
int main() {
  std::vector<int> values(33);
  int *x, *mine = values.data() + 1, seen[32];
  cudaMalloc(&x, 32 * sizeof(int));
  cudaHostRegister(mine, 32 * sizeof(int), cudaHostRegisterDefault);
  for (int i = 0; i < 3; ++i) {
    values[0] = i;  // beside it
    for (int j = 0; j < 32; ++j) mine[j] = i + j;
    cudaMemcpyAsync(x, mine, 32 * sizeof(int), cudaMemcpyHostToDevice);
#ifndef PLANTED
    cudaStreamSynchronize(0);
#endif
  }
  cudaHostUnregister(mine);
  mine[0] = 4;
  cudaMemcpy(seen, x, sizeof seen, cudaMemcpyDeviceToHost);
  assert(seen[0] == 2 && seen[31] == 33);
  cudaFree(x);
}
