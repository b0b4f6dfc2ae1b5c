// planted: stream-race
// A copy in a stream of its own while a kernel still writes: two buffers, each with an event of its own.
#include <cassert>
__global__ void fill(int* p, int v) { p[threadIdx.x] = v; }
int main() {
  int *x, *pinned, sum = 0;
  cudaMalloc(&x, 512), cudaMallocHost(&pinned, 512);
  cudaStream_t works, copies;
  cudaEvent_t filled[2], copied[2];
  cudaStreamCreateWithFlags(&works, cudaStreamNonBlocking), cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
  for (int i = 0; i < 2; ++i) cudaEventCreate(&filled[i]), cudaEventCreate(&copied[i]);
  for (int i = 0; i < 6; ++i) {
    int at = i % 2 * 64;
    cudaStreamWaitEvent(works, copied[i % 2], 0);
    fill<<<1, 64, 0, works>>>(x + at, i);
    cudaEventRecord(filled[i % 2], works);
#ifdef PLANTED
    if (i != 4)
#endif
    cudaStreamWaitEvent(copies, filled[i % 2], 0);
    cudaMemcpyAsync(pinned + at, x + at, 256, cudaMemcpyDeviceToHost, copies);
    cudaEventRecord(copied[i % 2], copies);
    cudaEventSynchronize(copied[i % 2]);
    sum += pinned[at];
  }
  assert(sum == 15);
  cudaFree(x), cudaFreeHost(pinned);
}
