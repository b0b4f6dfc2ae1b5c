#include "races.cuh"
KERNEL(tree, 2, 128) {
  __shared__ int s[128];
  s[ME] = x[I];
  __syncthreads();
  for (int by = 64; by; by /= 2) {
    if (ME < by) s[ME] += s[ME + by];
    BARRIER();
  }
  if (ME == 0) out[blockIdx.x] = s[0];
}
KERNEL(interleaved, 2, 128) {
  __shared__ int s[128];
  s[ME] = x[I];
  BARRIER();
  for (int by = 1; by < 128; by *= 2) {
    if (ME % (2 * by) == 0) s[ME] += s[ME + by];
    __syncthreads();
  }
  if (ME == 0) out[blockIdx.x] = s[0];
}
KERNEL(last_warp_without_barriers, 2, 64) {
  __shared__ int s[64];
  s[ME] = x[I];
  __syncthreads();
  if (ME < 32) {
    for (int by = 32; by; by /= 2) {
      int other = s[ME + by];
      __syncwarp();
      s[ME] += other;
      if (!racy) __syncwarp();
    }
    if (ME == 0) out[blockIdx.x] = s[0];
  }
}
KERNEL(sums_of_warps, 2, 128) {
  __shared__ int of_warp[4];
  int v = x[I];
  for (int by = 16; by; by /= 2) v += __shfl_down_sync(ALL, v, by);
  if (ME % 32 == 0) of_warp[ME / 32] = v;
  BARRIER();
  if (ME == 0) out[blockIdx.x] = of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3];
}
KERNEL(two_sums_in_turn, 1, 128) {
  __shared__ int sum;
  for (int part = 0; part < 2; ++part) {
    if (ME == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[part * 128 + ME]);
    __syncthreads();
    out[part * 128 + ME] = sum;
    BARRIER();
  }
}
KERNEL(into_one_cell, 4, 64) {
  if (racy) out[0] += x[I];
  else atomicAdd(out, x[I]);
}
KERNEL(of_each_block, 4, 64) {
  int sum = x[I];
  for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(ALL, sum, by);
  if (ME % 32 == 0) {
    if (racy) out[blockIdx.x] += sum;
    else atomicAdd(out + blockIdx.x, sum);
  }
}
KERNEL(largest, 4, 64) {
  if (racy) {
    if (x[I] > out[0]) out[0] = x[I];
  } else atomicMax(out, x[I]);
}
