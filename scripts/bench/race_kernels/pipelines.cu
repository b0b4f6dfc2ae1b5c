#include "races.cuh"
#include <cuda/barrier>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
KERNEL(copies_with_a_barrier, 2, 64) {
  __shared__ Barrier b;
  __shared__ int s[64];
  auto block = cg::this_thread_block();
  if (ME == 0) init(&b, 64);
  block.sync();
  cuda::memcpy_async(block, s, x + blockIdx.x * 64, sizeof s, b);
  auto token = b.arrive();
  if (!racy) b.wait(std::move(token));
  out[I] = s[63 - ME];
}
KERNEL(phases_of_a_barrier, 2, 64) {
  __shared__ Barrier b;
  __shared__ int s[64];
  if (ME == 0) init(&b, 64);
  __syncthreads();
  for (int i = 0; i < 3; ++i) {
    s[ME] = x[I] + i;
    b.arrive_and_wait();
    out[I] = s[63 - ME];
    if (!racy) b.arrive_and_wait();
  }
}
KERNEL(stages_of_a_pipeline, 2, 64) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ int s[2][64];
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int sum = 0, next = 0;
  for (int i = 0; i < 5; ++i) {
    for (; next < 5 && next < i + 2; ++next) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, s[next % 2], x + next * 64, sizeof s[0], pipe);
      pipe.producer_commit();
    }
    if (!racy) pipe.consumer_wait();
    sum += s[i % 2][63 - ME];
    pipe.consumer_release();
  }
  out[I] = sum;
}
KERNEL(ptx_copies, 2, 64) {
  __shared__ __align__(16) int s[256];
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(s + 4 * ME)), "l"(x + 4 * ME));
  asm volatile("cp.async.commit_group;");
  asm volatile("cp.async.wait_group 0;");
  if (!racy) asm volatile("bar.sync 0;");
  out[I] = s[255 - 4 * ME];
}
KERNEL(ptx_flag, 2, 32) {
  int seen = 0;
  if (ME) return;
  if (blockIdx.x == 0) {
    out[1] = 7;
    if (racy) asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" ::"l"(flags) : "memory");
    else asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flags) : "memory");
  } else {
    while (!seen) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flags) : "memory");
    out[2] = out[1];
  }
}
KERNEL(ptx_matrix, 1, 64) {
  __shared__ __align__(16) int s[64];
  int a;
  s[ME] = x[I];
  if (racy) __syncwarp();
  else asm volatile("barrier.sync 0;");
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(at(s + (ME % 8) * 8)));
  out[I] = a;
}
