#include "races.cuh"
__device__ void take(int* lock) { while (atomicCAS(lock, 0, 1)); }
__device__ void take_in_block(int* lock) { while (atomicCAS_block(lock, 0, 1)); }
KERNEL(fence_after_taking, 4, 32) {
  if (ME == 0) {
    take(flags);
    if (!racy) __threadfence();
    out[0] += x[I];
    __threadfence();
    atomicExch(flags, 0);
  }
}
KERNEL(fence_before_giving, 4, 32) {
  if (ME == 0) {
    take(flags);
    __threadfence();
    out[0] += x[I];
    if (!racy) __threadfence();
    atomicExch(flags, 0);
  }
}
KERNEL(no_lock, 4, 32) {
  if (ME == 0) {
    if (!racy) take(flags);
    __threadfence();
    out[0] += x[I];
    __threadfence();
    if (!racy) atomicExch(flags, 0);
  }
}
KERNEL(lock_of_a_block_between_blocks, 4, 32) {
  if (ME == 0) {
    if (racy) take_in_block(flags);
    else take(flags);
    __threadfence();
    out[0] += x[I];
    __threadfence();
    if (racy) atomicExch_block(flags, 0);
    else atomicExch(flags, 0);
  }
}
KERNEL(lock_of_a_block, 4, 64) {  // each block has its own, and its own sum
  for (int turn = 0; turn < 64; ++turn)
    if (turn == ME) {
      take_in_block(flags + blockIdx.x);
      if (!racy) __threadfence_block();
      out[blockIdx.x] += x[I];
      if (!racy) __threadfence_block();
      atomicExch_block(flags + blockIdx.x, 0);
    }
}
KERNEL(fences_of_a_block_between_blocks, 4, 32) {
  if (ME == 0) {
    take(flags);
    if (racy) __threadfence_block();
    else __threadfence();
    out[0] += x[I];
    if (racy) __threadfence_block();
    else __threadfence();
    atomicExch(flags, 0);
  }
}
KERNEL(tickets, 4, 32) {
  if (ME == 0) {
    int mine = atomicAdd(flags, 1);
    while (atomicAdd(flags + 1, 0) != mine);
    if (!racy) __threadfence();
    out[0] += x[I];
    __threadfence();
    atomicAdd(flags + 1, 1);
  }
}
KERNEL(given_by_a_volatile_write, 4, 32) {
  if (ME == 0) {
    take(flags);
    __threadfence();
    out[0] += x[I];
    if (!racy) __threadfence();
    *(volatile int*)flags = 0;
  }
}
KERNEL(one_lock_an_element, 4, 64) {
  for (int turn = 0; turn < 32; ++turn)
    if (turn == ME % 32) {
      int at = x[I];
      take(flags + (racy ? I : at));
      __threadfence();
      out[at] += 1;
      __threadfence();
      atomicExch(flags + (racy ? I : at), 0);
    }
}
KERNEL(held_by_a_block, 4, 64) {  // taken by one thread, used by all
  if (ME == 0) {
    take(flags);
    __threadfence();
  }
  __syncthreads();
  out[ME] += x[I];
  BARRIER();
  if (ME == 0) {
    __threadfence();
    atomicExch(flags, 0);
  }
}
KERNEL(taken_with_order, 4, 32) {
  if (ME == 0) {
    cuda::atomic_ref<int, cuda::thread_scope_device> lock(flags[0]);
    int free = 0;
    while (!lock.compare_exchange_weak(free, 1, racy ? cuda::memory_order_relaxed : cuda::memory_order_acquire)) free = 0;
    out[0] += x[I];
    lock.store(0, cuda::memory_order_release);
  }
}
