// planted: unsynchronized
// The host writes the next values into a pinned buffer while a copy may still read those before.
#include <cassert>
int main() {
  int *x, *pinned, seen;
  cudaMalloc(&x, 4), cudaMallocHost(&pinned, 4);
  for (int i = 0; i < 3; ++i) {
    *pinned = i;
    cudaMemcpyAsync(x, pinned, 4, cudaMemcpyHostToDevice);
#ifndef PLANTED
    cudaStreamSynchronize(0);
#endif
  }
  cudaMemcpy(&seen, x, 4, cudaMemcpyDeviceToHost);
  assert(seen == 2);
  cudaFree(x), cudaFreeHost(pinned);
}
