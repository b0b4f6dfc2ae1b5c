#include "races.cuh"
KERNEL(added, 4, 32) {
  if (racy) atomicAdd_block(out, 1);
  else atomicAdd_system(out, 1);
}
KERNEL(swapped, 4, 32) {
  if (racy) atomicExch_block(out, I);
  else atomicExch(out, I);
}
KERNEL(masked, 4, 32) {
  if (racy) atomicOr_block(out, 1 << ME);
  else atomicXor_system(out, 1 << ME);
}
KERNEL(compared, 4, 32) {
  if (racy) atomicCAS_block(out, 0, I + 1);
  else atomicCAS_system(out, 0, I + 1);
}
KERNEL(counted_round, 4, 32) {
  if (racy) atomicInc_block((unsigned*)out, 7);
  else atomicDec((unsigned*)out, 7);
}
KERNEL(one_of_two_is_narrow, 2, 32) {
  if (blockIdx.x || !racy) atomicMin(out, -I);
  else atomicMin_block(out, -I);
}
KERNEL(own_part, 4, 32) { atomicAnd_block(out + (racy ? 0 : blockIdx.x), I); }
KERNEL(plain_beside_atomic, 2, 32) {
  if (I == 40 && racy) out[0] = 5;
  else atomicMax(out, I);
}
KERNEL(atomic_of_a_block, 4, 32) {
  cuda::atomic_ref<int, cuda::thread_scope_block> narrow(out[0]);
  cuda::atomic_ref<int, cuda::thread_scope_device> wide(out[0]);
  if (racy) narrow.fetch_add(1, cuda::memory_order_relaxed);
  else wide.fetch_add(1, cuda::memory_order_relaxed);
}
KERNEL(flag_of_a_block, 1, 64) {
  cuda::atomic_ref<int, cuda::thread_scope_block> flag(flags[0]);
  if (ME == 0) {
    out[0] = x[1];
    flag.store(1, racy ? cuda::memory_order_relaxed : cuda::memory_order_release);
  } else if (ME == 40) {
    while (!flag.load(cuda::memory_order_acquire));
    out[1] = out[0];
  }
}
