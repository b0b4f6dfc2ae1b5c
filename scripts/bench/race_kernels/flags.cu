#include "races.cuh"
#define FIRST (ME == 0 && blockIdx.x == 0)
#define OTHERS (ME == 0 && blockIdx.x)
KERNEL(published, 4, 32) {
  if (FIRST) {
    out[0] = x[5];
    if (!racy) __threadfence();
    atomicExch(flags, 1);
  }
  if (OTHERS) {
    while (atomicAdd(flags, 0) == 0);
    __threadfence();
    out[blockIdx.x] = out[0];
  }
}
KERNEL(taken_up, 4, 32) {
  if (FIRST) {
    out[0] = x[5];
    __threadfence();
    atomicExch(flags, 1);
  }
  if (OTHERS) {
    while (atomicAdd(flags, 0) == 0);
    if (!racy) __threadfence();
    out[blockIdx.x] = out[0];
  }
}
KERNEL(volatile_flag, 4, 32) {
  volatile int* flag = flags;
  if (FIRST) {
    out[0] = x[5];
    if (!racy) __threadfence();
    flag[0] = 1;
  }
  if (OTHERS) {
    while (flag[0] == 0);
    if (!racy) __threadfence();
    out[blockIdx.x] = out[0];
  }
}
KERNEL(plain_flag, 4, 32) {
  if (FIRST) {
    out[0] = x[5];
    __threadfence();
    if (racy) flags[0] = 1;
    else atomicExch(flags, 1);
  }
  if (OTHERS && (racy ? flags[0] : atomicAdd(flags, 0))) {
    __threadfence();
    out[blockIdx.x] = out[0];
  }
}
KERNEL(fence_of_a_block, 4, 32) {
  if (FIRST) {
    out[0] = x[5];
    if (racy) __threadfence_block();
    else __threadfence();
    atomicExch(flags, 1);
  }
  if (OTHERS) {
    while (atomicAdd(flags, 0) == 0);
    __threadfence();
    out[blockIdx.x] = out[0];
  }
}
KERNEL(between_warps, 2, 64) {
  __shared__ int box, full;
  if (ME == 0) full = 0;
  __syncthreads();
  if (ME == 0) {
    box = x[I];
    if (!racy) __threadfence_block();
    atomicExch_block(&full, 1);
  }
  if (ME == 32) {
    while (atomicAdd_block(&full, 0) == 0);
    __threadfence_block();
    out[blockIdx.x] = box;
  }
}
KERNEL(between_lanes, 2, 32) {
  __shared__ int box, full;
  if (ME == 0) full = 0;
  __syncwarp();
  if (ME == 1) {
    box = x[I];
    __threadfence_block();
    atomicExch(&full, 1);
  }
  if (ME == 9) {
    while (atomicAdd(&full, 0) == 0);
    if (!racy) __threadfence_block();
    out[blockIdx.x] = box;
  }
}
KERNEL(release_and_acquire, 4, 32) {
  cuda::atomic_ref<int, cuda::thread_scope_device> flag(flags[0]);
  if (FIRST) {
    out[0] = x[5];
    flag.store(1, cuda::memory_order_release);
  }
  if (OTHERS) {
    while (!flag.load(racy ? cuda::memory_order_relaxed : cuda::memory_order_acquire));
    out[blockIdx.x] = out[0];
  }
}
KERNEL(relaxed_store, 4, 32) {
  cuda::atomic_ref<int, cuda::thread_scope_device> flag(flags[0]);
  if (FIRST) {
    out[0] = x[5];
    flag.store(1, racy ? cuda::memory_order_relaxed : cuda::memory_order_release);
  }
  if (OTHERS) {
    while (!flag.load(cuda::memory_order_acquire));
    out[blockIdx.x] = out[0];
  }
}
KERNEL(written_behind_the_release, 4, 32) {
  if (FIRST) {
    if (!racy) out[0] = x[5];
    __threadfence();
    if (racy) out[0] = x[5];
    atomicExch(flags, 1);
  }
  if (OTHERS) {
    while (atomicAdd(flags, 0) == 0);
    __threadfence();
    out[blockIdx.x] = out[0];
  }
}
KERNEL(of_the_whole_block, 4, 64) {  // a barrier carries what all have written to the thread that publishes
  if (blockIdx.x == 0) {
    out[ME] = x[ME];
    BARRIER();
    if (ME == 0) {
      __threadfence();
      atomicExch(flags, 1);
    }
  } else {
    if (ME == 0) {
      while (atomicAdd(flags, 0) == 0);
      __threadfence();
    }
    __syncthreads();
    out[I] = out[63 - ME];
  }
}
KERNEL(passed_on, 3, 32) {  // from block 0 to 1 to 2
  if (ME == 0) {
    if (blockIdx.x) {
      while (atomicAdd(flags + blockIdx.x, 0) == 0);
      if (!racy || blockIdx.x == 2) __threadfence();
    } else out[0] = x[5];
    if (blockIdx.x == 2) out[2] = out[0];
    if (!racy || blockIdx.x != 1) __threadfence();
    atomicExch(flags + blockIdx.x + 1, 1);
  }
}
KERNEL(standalone_fences, 4, 32) {
  cuda::atomic_ref<int, cuda::thread_scope_device> flag(flags[0]);
  if (FIRST) {
    out[0] = x[5];
    cuda::atomic_thread_fence(cuda::memory_order_release, racy ? cuda::thread_scope_block : cuda::thread_scope_device);
    flag.store(1, cuda::memory_order_relaxed);
  }
  if (OTHERS) {
    while (!flag.load(cuda::memory_order_relaxed));
    cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_device);
    out[blockIdx.x] = out[0];
  }
}
KERNEL(polled_before_a_barrier, 4, 32) {  // a barrier is no fence between blocks
  volatile int* flag = flags;
  if (FIRST) {
    out[0] = x[5];
    __threadfence();
    flag[0] = 1;
  }
  if (OTHERS) {
    while (flag[0] == 0);
    if (!racy) __threadfence();
  }
  __syncthreads();
  if (ME == 1 && blockIdx.x) out[blockIdx.x] = out[0];
}
KERNEL(loaded_before_a_barrier, 4, 32) {
  cuda::atomic_ref<int, cuda::thread_scope_device> flag(flags[0]);
  if (FIRST) {
    out[0] = x[5];
    flag.store(1, cuda::memory_order_release);
  }
  if (OTHERS)
    while (!flag.load(racy ? cuda::memory_order_relaxed : cuda::memory_order_acquire));
  __syncthreads();
  if (ME == 1 && blockIdx.x) out[blockIdx.x] = out[0];
}
