// planted: race
#include <cooperative_groups.h>
#include <cub/block/block_reduce.cuh>
#include <cuda/pipeline>
__global__ void sum(const float* x, float* out, int tiles) {
  using Reduce = cub::BlockReduce<float, 64>;
  __shared__ typename Reduce::TempStorage temp;
  __shared__ float tile[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cooperative_groups::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  float mine = 0;
  for (int i = 0, next = 0; i < tiles; ++i) {
    for (; next < tiles && next < i + 2; ++next) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, tile[next % 2], x + next * 64, sizeof tile[0], pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    mine += tile[i % 2][63 - threadIdx.x];
#ifdef PLANTED
    if (i) mine += tile[(i + 1) % 2][threadIdx.x];  // which is being filled, or was released
#endif
    pipe.consumer_release();
  }
  float all = Reduce(temp).Sum(mine);
  if (threadIdx.x == 0) *out = all;
}
int main() {
  float *x, *out;
  cudaMalloc(&x, 512 * sizeof(float));
  cudaMalloc(&out, sizeof(float));
  cudaMemset(x, 0, 512 * sizeof(float));
  sum<<<1, 64>>>(x, out, 8);
  cudaDeviceSynchronize();
  cudaFree(x);
  cudaFree(out);
}
