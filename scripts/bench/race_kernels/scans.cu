#include "races.cuh"
KERNEL(hillis_steele, 2, 64) {
  __shared__ int s[64];
  s[ME] = x[I];
  __syncthreads();
  for (int by = 1; by < 64; by *= 2) {
    int below = ME >= by ? s[ME - by] : 0;
    BARRIER();
    s[ME] += below;
    __syncthreads();
  }
  out[I] = s[ME];
}
KERNEL(two_buffers_in_turn, 2, 64) {
  __shared__ int s[2][64];
  int from = 0;
  s[0][ME] = x[I];
  __syncthreads();
  for (int by = 1; by < 64; by *= 2, from ^= 1) {
    s[!from][ME] = s[from][ME] + (ME >= by ? s[from][ME - by] : 0);
    BARRIER();
  }
  out[I] = s[from][ME];
}
KERNEL(blelloch, 2, 64) {
  __shared__ int s[128];
  s[2 * ME] = x[I], s[2 * ME + 1] = x[I + 1];
  for (int step = 1; step < 128; step *= 2) {
    BARRIER();
    int at = (ME + 1) * 2 * step - 1;
    if (at < 128) s[at] += s[at - step];
  }
  __syncthreads();
  out[I] = s[2 * ME + 1];
}
KERNEL(by_warps, 2, 128) {
  __shared__ int ends[4];
  int v = x[I], lane = ME % 32;
  for (int by = 1; by < 32; by *= 2) {
    int below = __shfl_up_sync(ALL, v, by);
    if (lane >= by) v += below;
  }
  if (lane == 31) ends[ME / 32] = v;
  BARRIER();
  for (int w = 0; w < ME / 32; ++w) v += ends[w];
  out[I] = v;
}
KERNEL(chained_blocks, 8, 32) {  // each waits for the sum of the one before it
  int sum = __reduce_add_sync(ALL, x[I]);
  if (ME == 0) {
    int before = 0;
    if (blockIdx.x) {
      while (atomicAdd(flags + blockIdx.x - 1, 0) == 0);
      if (!racy) __threadfence();
      before = out[blockIdx.x - 1];
    }
    out[blockIdx.x] = before + sum;
    __threadfence();
    atomicExch(flags + blockIdx.x, 1);
  }
}
KERNEL(waits_for_a_later_block, 8, 32) {
  if (ME == 0) {
    int next = 0;
    if (blockIdx.x + 1 < gridDim.x) {
      while (atomicAdd(flags + blockIdx.x + 1, 0) == 0);
      __threadfence();
      next = out[blockIdx.x + 1];
    }
    out[blockIdx.x] = next + x[I];
    if (!racy) __threadfence();
    atomicExch(flags + blockIdx.x, 1);
  }
}
