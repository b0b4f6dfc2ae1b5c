#include "races.cuh"
__device__ int total(const int* parts) {
  int sum = 0;
  for (int b = 0; b < gridDim.x; ++b) sum += parts[b];
  return sum;
}
KERNEL(fence_before_the_ticket, 4, 32) {
  __shared__ bool last;
  if (ME == 0) {
    out[blockIdx.x] = x[I];
    if (!racy) __threadfence();
    last = atomicAdd(flags, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && ME == 1) out[100] = total(out);
}
KERNEL(fence_of_every_thread, 4, 64) {
  __shared__ bool last;
  out[I] = x[I];
  __threadfence();
  BARRIER();
  if (ME == 0) last = atomicAdd(flags, 1) == gridDim.x - 1;
  __syncthreads();
  if (last) out[512 + ME] = out[ME] + out[64 + ME] + out[128 + ME] + out[192 + ME];
}
KERNEL(ticket_that_is_not_atomic, 4, 32) {
  __shared__ bool last;
  if (ME == 0) {
    out[blockIdx.x] = x[I];
    __threadfence();
    last = (racy ? flags[0]++ : atomicAdd(flags, 1)) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && ME == 1) out[100] = total(out);
}
KERNEL(told_without_a_barrier, 4, 64) {
  __shared__ bool last;
  if (ME == 0) {
    out[blockIdx.x] = x[I];
    __threadfence();
    last = atomicAdd(flags, 1) == gridDim.x - 1;
  }
  BARRIER();
  if (last && ME == 33) out[100] = total(out);
}
KERNEL(ticket_of_a_block, 4, 32) {
  __shared__ bool last;
  if (ME == 0) {
    out[blockIdx.x] = x[I];
    __threadfence();
    last = (racy ? atomicAdd_block(flags, 1) : atomicAdd(flags, 1)) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && ME == 1) out[100] = total(out);
}
KERNEL(ticket_with_order, 4, 32) {
  cuda::atomic_ref<int, cuda::thread_scope_device> tickets(flags[0]);
  if (ME == 0) {
    out[blockIdx.x] = x[I];
    if (tickets.fetch_add(1, racy ? cuda::memory_order_acquire : cuda::memory_order_acq_rel) == gridDim.x - 1) out[100] = total(out);
  }
}
