#include "races.cuh"
namespace cg = cooperative_groups;
KERNEL(whole_grid, 4, 64) {
  out[I] = x[I];
  if (!racy) cg::this_grid().sync();
  flags[I] = out[255 - I];
}
KERNEL(stencil, 4, 64) {
  auto grid = cg::this_grid();
  int *from = out, *to = flags;
  for (int step = 0; step < 4; ++step) {
    to[I] = from[(I + 1) % 256] + from[(I + 255) % 256] + 1;
    if (racy) cg::this_thread_block().sync();
    else grid.sync();
    int* swapped = from;
    from = to, to = swapped;
  }
}
KERNEL(sum_of_the_grid, 4, 64) {
  __shared__ int sum;
  if (ME == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, x[I]);
  __syncthreads();
  if (ME == 0) flags[blockIdx.x] = sum;
  if (!racy) cg::this_grid().sync();
  if (I == 0) out[0] = flags[0] + flags[1] + flags[2] + flags[3];
}
KERNEL(block, 2, 64) {
  __shared__ int s[64];
  auto all = cg::this_thread_block();
  s[ME] = x[I];
  if (!racy) all.sync();
  out[I] = s[63 - ME];
}
KERNEL(tiles_of_eight, 2, 64) {
  __shared__ int s[64];
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  s[ME] = x[I];
  tile.sync();
  out[I] = s[racy ? ME ^ 8 : ME ^ 7];
}
KERNEL(tile_without_sync, 2, 64) {
  __shared__ int s[64];
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  s[ME] = x[I];
  if (!racy) tile.sync();
  out[I] = s[ME ^ 5];
}
KERNEL(sum_of_a_tile, 2, 64) {
  __shared__ int s[4];
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  int sum = cg::reduce(tile, x[I], cg::plus<int>());
  if (tile.thread_rank() == 0) s[tile.meta_group_rank()] = sum;
  if (racy) tile.sync();
  else cg::sync(cg::this_thread_block());
  out[I] = s[0] + s[1];
}
KERNEL(own_barrier_of_the_grid, 4, 64) {  // as written by hand
  out[I] = x[I];
  __syncthreads();
  if (ME == 0) {
    if (!racy) __threadfence();
    atomicAdd(flags, 1);
    while (atomicAdd(flags, 0) < gridDim.x);
    __threadfence();
  }
  __syncthreads();
  out[512 + I] = out[255 - I];
}
