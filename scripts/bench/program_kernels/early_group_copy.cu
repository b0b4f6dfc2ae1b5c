// planted: race
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
__global__ void sum(const float* x, float* out, int tiles) {
  __shared__ float tile[2][64];
  auto block = cg::this_thread_block();
  float mine = 0;
  cg::memcpy_async(block, tile[0], x, sizeof tile[0]);
  for (int i = 0; i < tiles; ++i) {
    if (i + 1 < tiles) {
      cg::memcpy_async(block, tile[(i + 1) % 2], x + (i + 1) * 64, sizeof tile[0]);
#ifdef PLANTED
      cg::wait_prior<2>(block);  // the copy of this tile may still run
#else
      cg::wait_prior<1>(block);
#endif
    } else {
      cg::wait(block);
    }
    mine += tile[i % 2][63 - threadIdx.x];
    block.sync();
  }
  out[threadIdx.x] = mine;
}
int main() {
  float *x, *out;
  cudaMalloc(&x, 512 * sizeof(float));
  cudaMalloc(&out, 64 * sizeof(float));
  cudaMemset(x, 0, 512 * sizeof(float));
  sum<<<1, 64>>>(x, out, 8);
  cudaDeviceSynchronize();
  cudaFree(x);
  cudaFree(out);
}
