#include <cuda/std/array>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
__global__ void meet(int* out, int good) {
  __shared__ Barrier b; __shared__ int s[64];
  auto block = cg::this_thread_block(); int t = threadIdx.x;
  if (block.thread_rank() == 0) init(&b, block.size());
  block.sync();
  for (int i = 0; i < 3; ++i) {
    s[t] = t + i;  // write
    auto token = b.arrive();
    if (!good) out[t] = s[63 - t];  // early
    b.wait(std::move(token));
    out[t] = s[63 - t];
    b.arrive_and_wait();
  }
}
__global__ void copies(int* out, const int* in, int good) {
  __shared__ Barrier b; __shared__ int s[64]; int t = threadIdx.x; auto block = cg::this_thread_block();
  if (t == 0) init(&b, blockDim.x);
  __syncthreads();
  for (int i = 0; i < 2; ++i) {
    cuda::memcpy_async(block, s, in, cuda::aligned_size_t<16>(sizeof s), b);  // copied
    auto token = b.arrive();
    if (!good) out[t] = s[t];  // too early
    b.wait(std::move(token));
    out[t] = s[63 - t];
    if (good < 2) block.sync();  // else the next copy overwrites what is read
  }
}
__global__ void buffers(int* out, const int* in, int n, int good) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state; __shared__ int s[2][64];
  auto block = cg::this_thread_block(); auto pipe = cuda::make_pipeline(block, &state);
  int t = threadIdx.x, sum = 0, next = 0;
  for (int i = 0; i < n; ++i) {
    for (; next < n && next < i + 2; ++next) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, s[next % 2], in + next * 64, sizeof(int) * 64, pipe);
      pipe.producer_commit();
    }
    if (good) pipe.consumer_wait();
    sum += s[i % 2][63 - t];  // sum
    pipe.consumer_release();
  }
  out[t] = sum;
}
__global__ void roles(int* out, const int* in, int n) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state; __shared__ int s[2][32];
  auto block = cg::this_thread_block(); bool makes = threadIdx.x < 32;
  auto pipe = cuda::make_pipeline(block, &state, makes ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  int t = threadIdx.x % 32, sum = 0;
  for (int i = 0; i < n; ++i)
    if (makes) { pipe.producer_acquire(); cuda::memcpy_async(&s[i % 2][t], in + i * 32 + t, 4, pipe); pipe.producer_commit(); }
    else { pipe.consumer_wait(); sum += s[i % 2][31 - t]; pipe.consumer_release(); }
  if (!makes) out[t] = sum;
}
__global__ void alone(int* out, const int* in, int good) {
  __shared__ int s[2][32]; auto pipe = cuda::make_pipeline(); int t = threadIdx.x, sum = 0;
  pipe.producer_acquire(); cuda::memcpy_async(&s[0][t], in + t, 4, pipe); pipe.producer_commit();
  for (int i = 0; i < 4; ++i) {
    if (i < 3) { pipe.producer_acquire(); cuda::memcpy_async(&s[(i + 1) % 2][t], in + (i + 1) * 32 + t, 4, pipe); pipe.producer_commit(); }
    if (i < 3 && good) cuda::pipeline_consumer_wait_prior<1>(pipe); else if (good) cuda::pipeline_consumer_wait_prior<0>(pipe);
    sum += s[i % 2][t];
  }
  out[t] = sum;
}
__global__ void unset(int* out) { __shared__ Barrier b; b.arrive_and_wait();  // unset
  out[threadIdx.x] = 1; }
__global__ void never(int* out) { __shared__ Barrier b; if (!threadIdx.x) init(&b, 65); __syncthreads();
  b.arrive_and_wait(); }  // never
__global__ void dropped(int* out) { __shared__ Barrier b; if (!threadIdx.x) init(&b, 64); __syncthreads(); if (threadIdx.x > 40) b.arrive_and_drop(); else for (int i = 0; i < 3; ++i) b.arrive_and_wait(); out[threadIdx.x] = 1; }
#include <cub/block/block_reduce.cuh>
#include <cub/cub.cuh>
__global__ void sums(float* out, const float* x, int n) {
  using Reduce = cub::BlockReduce<float, 96>;
  __shared__ typename Reduce::TempStorage temp;
  float v = threadIdx.x < n ? x[threadIdx.x] : 0, all = Reduce(temp).Sum(v);
  if (threadIdx.x == 0) out[0] = all;
  __syncthreads();  // again
  all = Reduce(temp).Reduce(v, cub::Max(), n);
  if (threadIdx.x == 0) out[1] = all;
  using Pair = cub::KeyValuePair<int, float>;
  typedef cub::BlockReduce<Pair, 96> Arg; __shared__ typename Arg::TempStorage other;
  Pair p = Arg(other).Reduce(Pair{(int)threadIdx.x, v}, cub::ArgMin());
  if (threadIdx.x == 0) out[2] = p.key;
  __shared__ typename cub::WarpReduce<float, 8>::TempStorage w[12];
  float part = cub::WarpReduce<float, 8>(w[threadIdx.x / 8]).Sum(v);
  if (threadIdx.x % 8 == 0) out[3 + threadIdx.x / 8] = part;
}
__global__ void scans(int* out, const int* x) {
  using Load = cub::BlockLoad<int, 96, 3, cub::BLOCK_LOAD_WARP_TRANSPOSE>; using Store = cub::BlockStore<int, 96, 3>; using Scan = cub::BlockScan<int, 96>;
  __shared__ union { typename Load::TempStorage l; typename Scan::TempStorage s; } temp;
  int items[3], total, v = threadIdx.x;
  Load(temp.l).Load(x, items, 280, 0); __syncthreads();
  Scan(temp.s).ExclusiveSum(items, items, total);
  Store().Store(out, items, 288);
  __syncthreads();
  Scan(temp.s).InclusiveScan(x[v], v, cub::Max()); out[288 + threadIdx.x] = v;
  typename cub::WarpScan<int>::TempStorage t; cub::WarpScan<int>(t).ExclusiveSum(x[threadIdx.x], v); out[384 + threadIdx.x] = v;
  if (threadIdx.x == 0) out[480] = total;
}
__global__ void hasty(float* out, const float* x) {
  __shared__ typename cub::BlockReduce<float, 64>::TempStorage temp;
  float a = cub::BlockReduce<float, 64>(temp).Sum(x[threadIdx.x]), b = cub::BlockReduce<float, 64>(temp).Sum(a);  // twice
  if (threadIdx.x == 0) out[0] = b;
}
