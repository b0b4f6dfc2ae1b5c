#include "races.cuh"
KERNEL(cleared_first, 2, 64) {
  __shared__ int bins[16];
  if (ME < 16) bins[ME] = 0;
  BARRIER();
  atomicAdd(&bins[x[I]], 1);
  __syncthreads();
  if (ME < 16) atomicAdd(out + ME, bins[ME]);
}
KERNEL(read_after_all_have_counted, 2, 64) {
  __shared__ int bins[16];
  if (ME < 16) bins[ME] = 0;
  __syncthreads();
  atomicAdd(&bins[x[I]], 1);
  BARRIER();
  if (ME < 16) atomicAdd(out + ME, bins[ME]);
}
KERNEL(of_global_memory, 4, 64) {
  if (racy) ++out[x[I]];
  else atomicAdd(out + x[I], 1);
}
KERNEL(of_each_warp, 2, 64) {
  __shared__ int bins[2][16];
  if (ME < 32) (&bins[0][0])[ME] = 0;
  __syncthreads();
  atomicAdd(&bins[racy ? 0 : ME / 32][x[I]], 1);
  __syncwarp();
  if (ME % 32 < 16) {
    int at = ME % 32;
    bins[ME / 32][at] += 100;
    atomicAdd(out + at, bins[ME / 32][at]);
  }
}
KERNEL(one_bin_a_thread, 2, 16) {
  int count = 0;
  for (int i = 0; i < 64; ++i) count += x[i] == ME;
  out[racy ? ME : I] = count + blockIdx.x;
}
KERNEL(scope_of_a_block, 4, 64) {
  if (racy) atomicAdd_block(out + x[I], 1);
  else atomicAdd(out + x[I], 1);
}
KERNEL(scope_of_a_block_in_its_own_part, 4, 64) {
  atomicAdd_block(out + (racy ? 0 : 16 * blockIdx.x) + x[I], 1);
}
