// planted: undefined-result
#include <cub/cub.cuh>
__global__ void center(float* x) {
  using Block = cub::BlockReduce<float, 64>;
  using Warp = cub::WarpReduce<float>;
  __shared__ Block::TempStorage temp;
  __shared__ Warp::TempStorage of_warp[2];
  __shared__ float sum;
  float mine = x[threadIdx.x], all = Block(temp).Sum(mine), least = Warp(of_warp[threadIdx.x / 32]).Reduce(mine, cub::Min());
#ifndef PLANTED
  if (threadIdx.x == 0) sum = all;
  __syncthreads();
  all = sum;
#endif
  x[threadIdx.x] = mine - all / 64 + __shfl_sync(~0u, least, 0);
}
int main() {
  float *x, host[64] = {1, 2, 3};
  cudaMalloc(&x, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  center<<<1, 64>>>(x);
  cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(x);
}
