"""What a program's host hands to kernels that means another thing there; and results that only some threads have."""

import pytest
from _programs import compiled, ran, seen

from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

ADDRESSES = """#include <new>
typedef float (*Unary)(float);
__device__ float twice(float x) { return 2 * x; }
__host__ __device__ float both(float x) { return 3 * x; }
__device__ int counter, several[4];
__managed__ int shown[2];
__constant__ float scale[2];
__device__ Unary held = twice, table[2] = {both, twice};
struct Op {
  __device__ virtual float of(float x) const = 0;
  __host__ __device__ virtual ~Op() {}
};
struct By : Op {
  float k = 2;
  __host__ __device__ By() {}
  __device__ float of(float x) const override { return k * x; }  // early
};
struct Image {  // kernels can call none of its virtual functions
  int n;
  virtual int size() const { return n; }
};
struct Into {
  int by;
  int* to;
};
__global__ void add(Into into) { atomicAdd(into.to, into.by); }
__global__ void all(int** p) { atomicAdd(p[threadIdx.x], 1); }  // all
__global__ void call(float* x, Unary f) { x[0] = f(x[1]); }
__global__ void call_held(float* x) { x[0] = held(x[1]); }  // held
__global__ void call_op(float* x, const Op* op) { x[0] = op->of(x[1]); }  // op
__global__ void take(float* x, Image i, float4 v) { x[0] = i.n + v.x; }
__global__ void take_op(float* x, By op) { x[0] = op.k; }
__global__ void give(int** p, Unary* f) { *p = &counter, *f = both; }
__global__ void make(By* op) { new (op) By(); }
__global__ void of(float* x) {  // a kernel that is called as a function of the device is
  __shared__ alignas(16) char raw[sizeof(By)];
  if (threadIdx.x == 0) new (raw) By();
#ifndef WRONG
  __syncthreads();
#endif
  x[threadIdx.x] = reinterpret_cast<Op*>(raw)->of(1);  // early
}
int main() {
  float* x;
  int *p = &counter, **pp, one = 1;
  Unary f[2] = {both, twice}, *pf;
  By *op, *seen, host;
  cudaMalloc(&x, 256), cudaMalloc(&pp, 16), cudaMalloc(&pf, 8), cudaMalloc(&op, sizeof host);
  cudaMallocManaged(&seen, sizeof host);
  cudaMemset(x, 0, 256);
  cudaMemcpyToSymbol(counter, &one, 4);
  cudaMemcpy(op, &host, sizeof host, cudaMemcpyHostToDevice);
  of<<<1, 64>>>(x);
#ifdef WRONG
  add<<<1, 1>>>({1, p});  // variable
  add<<<1, 1>>>({1, several + 1});  // array
  call<<<1, 1>>>(x, f[0]);  // function
  take_op<<<1, 1>>>(x, host);  // object
  int* two[2] = {several, p};
  cudaMemcpy(pp, two, 16, cudaMemcpyHostToDevice);
  all<<<1, 2>>>(pp);
  cudaMemcpyToSymbol(held, f + 1, 8);
  call_held<<<1, 1>>>(x);
  call_op<<<1, 1>>>(x, op);
  new (seen) By();
  call_op<<<1, 1>>>(x, seen);
  cudaDeviceSynchronize();
  cudaMemcpy(p, &one, 4, cudaMemcpyHostToDevice);  // to
  cudaMemcpy(&one, scale, 4, cudaMemcpyDeviceToHost);  // from
  cudaMemset(&counter, 0, 4);  // set
#else
  take<<<1, 1>>>(x, Image{}, make_float4(1, 2, 3, 4));
  add<<<1, 1>>>({1, shown + 1});
  cudaGetSymbolAddress((void**)&p, several);
  add<<<1, 1>>>({1, p + 1});
  give<<<1, 1>>>(pp, pf);
  cudaMemcpy(&p, pp, 8, cudaMemcpyDeviceToHost);
  cudaMemcpy(pp, &p, 8, cudaMemcpyHostToDevice);
  cudaMemset(p, 0, 4);
  all<<<1, 1>>>(pp);
  cudaMemcpyFromSymbol(f, table, 16);
  cudaMemcpyToSymbol(held, f + 1, 8);
  call<<<1, 1>>>(x, f[0]);
  call_held<<<1, 1>>>(x);
  make<<<1, 1>>>(op), call_op<<<1, 1>>>(x, op);
  alignas(By) char raw[sizeof(By)];
  cudaMemcpy(raw, op, sizeof raw, cudaMemcpyDeviceToHost);
  cudaMemcpy(op, raw, sizeof raw, cudaMemcpyHostToDevice);
  call_op<<<1, 1>>>(x, op);
  make<<<1, 1>>>(seen), call_op<<<1, 1>>>(x, seen);
#endif
  cudaDeviceSynchronize();
  cudaFree(x), cudaFree(pp), cudaFree(pf), cudaFree(op), cudaFree(seen);
}
"""
RESULTS = """#include <cooperative_groups.h>
#include <cub/cub.cuh>
namespace cg = cooperative_groups;
__global__ void sums(int* x) {
  using Block = cub::BlockReduce<int, 64>;
  using Warp = cub::WarpReduce<int, 16>;
  __shared__ Block::TempStorage temp;
  __shared__ Warp::TempStorage of_warp;
  __shared__ int kept;
  int t = threadIdx.x, all = Block(temp).Sum(t);  // block
  int least = Warp(of_warp).Reduce(t, cub::Min());  // warp
  if (t == 0) kept = all;
  __syncthreads();
  x[t] = (WRONG & 1 ? all : kept) + (WRONG & 2 ? least : __shfl_sync(~0u, least, t % 32 / 16 * 16));
}
__global__ void copies(int* x) {
  __shared__ int s[64];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, s, x, sizeof s);
  if (WRONG) x[64 + threadIdx.x] = s[threadIdx.x];  // too early
  cg::wait(block);
  cg::memcpy_async(block, s, 32, x, 64);
  x[64 + threadIdx.x] = s[63 - threadIdx.x % 32];  // no copy of these
  cg::wait(block);
}
__global__ void groups(int* x) {
  extern __shared__ int room[];
  __shared__ int fixed;
  int own = 0;
  cg::thread_group block = cg::this_thread_block(), four = cg::tiled_partition(block, 4), one = cg::this_thread();
  room[threadIdx.x] = 100 * four.size() + 10 * one.num_threads() + four.thread_rank() + one.thread_rank();
  one.sync(), four.sync(), block.sync();
  bool right = __isShared(room) && __isShared(&fixed) && __isLocal(&own) && __isGlobal(x);
  bool wrong = __isShared(x) || __isShared(&own) || __isLocal(x) || __isGlobal(room) || __isGlobal(&own);
  x[threadIdx.x] = right && !wrong ? room[block.size() - 1 - threadIdx.x] : 0;
}
__global__ void wide(int* x) { ((int2*)x)[threadIdx.x * 32] = make_int2(1, 2); }  // wide
int main() {
  int *x, host[64], of_groups;
  cudaMalloc(&x, 128 * sizeof(int));
  sums<<<1, 64>>>(x);
  cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
  copies<<<1, 64>>>(x);
  groups<<<1, 64, 256>>>(x);
  cudaMemcpy(&of_groups, x, sizeof of_groups, cudaMemcpyDeviceToHost);
  wide<<<1, WRONG ? 3 : 2>>>(x);
  for (int i = 0; i < 4 && WRONG; ++i) wide<<<1, i % 2 * 2048, i << 15>>>(x);  // launches
  cudaDeviceSynchronize();
  cudaFree(x);
  return WRONG ? 0 : host[63] - 2016 - 48 + of_groups - 413;
}
"""


def test_addresses_that_the_host_has_itself_are_none_of_the_devices(tmp_path):
    passed = {("host-address", mark) for mark in ("variable", "array", "function", "object", "all", "held", "op")}
    told = passed | {("api-error", mark) for mark in ("to", "from", "set")} | {("race", "early")}
    assert seen(tmp_path, ADDRESSES, defines=("WRONG",))[0] == told
    assert seen(tmp_path, ADDRESSES)[1] == set()


def test_results_and_copies_that_are_used_where_they_are_not(tmp_path):
    found, _ = ran(compiled(tmp_path, RESULTS, ("WRONG=3",)), tmp_path)
    marks = [RESULTS.splitlines()[f.place.line - 1].rpartition("// ")[2] for f in found.findings]
    kinds = {(f.kind, mark) for f, mark in zip(found.findings, marks, strict=True)}
    assert kinds == {
        ("undefined-result", "block"),
        ("undefined-result", "warp"),
        ("race", "too early"),
        ("out-of-bounds", "wide"),
        ("api-error", "launches"),
    }
    messages = [f.message for f in found.findings]
    assert any("writes x[128] and 1 behind it" in said and "it has 128 elements" in said for said in messages)
    assert [sum(why in said for said in messages) for why in ("of 0 threads", "of more than 1024 threads")] == [1, 1]
    assert seen(tmp_path, RESULTS, defines=("WRONG=0",))[1] == set()
