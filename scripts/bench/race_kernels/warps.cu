#include "races.cuh"
KERNEL(neighbour_lane, 2, 32) {
  __shared__ int s[32];
  s[ME] = x[I];
  if (!racy) __syncwarp();
  out[I] = s[ME ^ 1];
}
KERNEL(overwritten, 2, 32) {
  __shared__ int s[32];
  s[ME] = x[I];
  __syncwarp();
  int other = s[ME ^ 1];
  if (!racy) __syncwarp();
  s[ME] = other + 1;
  out[I] = s[ME];
}
KERNEL(shuffle_is_no_barrier, 2, 32) {
  __shared__ int s[32];
  s[ME] = x[I];
  int sum = __shfl_xor_sync(ALL, x[I], 1);
  if (!racy) __syncwarp();
  out[I] = s[31 - ME] + sum;
}
KERNEL(halves, 2, 32) {
  __shared__ int s[32];
  s[ME] = x[I];
  __syncwarp(racy ? (ME < 16 ? 0xffffu : 0xffff0000u) : ALL);
  out[I] = s[31 - ME];
}
KERNEL(two_warps, 2, 64) {
  __shared__ int s[64];
  s[ME] = x[I];
  if (racy) __syncwarp();
  else __syncthreads();
  out[I] = s[63 - ME];
}
KERNEL(volatile_is_no_barrier, 2, 32) {
  __shared__ volatile int s[32];
  s[ME] = x[I];
  if (!racy) __syncwarp();
  out[I] = s[ME ^ 8];
}
KERNEL(compacted, 2, 64) {
  __shared__ int s[64];
  unsigned yes = __ballot_sync(ALL, x[I] > 7);
  int at = __popc(yes & ((1u << ME % 32) - 1)) + ME / 32 * 32;
  if (x[I] > 7) s[racy ? ME / 32 * 32 : at] = I;
  __syncthreads();
  if (ME % 32 < __popc(yes) && !racy) out[I] = s[ME];
}
KERNEL(leader, 2, 64) {
  __shared__ int found[2];
  if (ME % 32 == 0) found[ME / 32] = x[I];
  if (!racy) __syncwarp();
  out[I] = found[ME / 32];
}
