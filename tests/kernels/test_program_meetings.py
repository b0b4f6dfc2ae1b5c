"""Where threads of a program meet, or should have: CUB's temporary memory, halves of barriers, lanes of shuffles."""

import pytest
from _programs import compiled, ran, seen

from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

CUB = """#include <cub/cub.cuh>
#include <cstdio>
#ifdef BARRIER
#define MEET __syncthreads()
#else
#define MEET
#endif
__global__ void radix(int* p) {
  using Sort = cub::BlockRadixSort<int, 48, 3>;
  __shared__ Sort::TempStorage t;
  int k[3];
  for (int i = 0; i < 3; ++i) k[i] = p[threadIdx.x * 3 + i];
  Sort(t).Sort(k);
  MEET;
  Sort(t).SortDescending(k);  // radix
  MEET;
  Sort(t).SortBlockedToStriped(k);  // striped
  for (int i = 0; i < 3; ++i) p[threadIdx.x + i * 48] = k[i];
}
__global__ void merges(int* p) {
  using Sort = cub::BlockMergeSort<int, 48, 2>;
  __shared__ Sort::TempStorage t;
  int k[2] = {p[threadIdx.x], p[threadIdx.x + 48]};
  for (int i = 0; i < 2; ++i) {
    Sort(t).Sort(k, [=](int a, int b) { return i ? a < b : b < a; });  // merges
    MEET;
  }
  p[threadIdx.x * 2] = k[0], p[threadIdx.x * 2 + 1] = k[1];
}
template <cub::BlockLoadAlgorithm L, cub::BlockStoreAlgorithm W>
__global__ void through(int* p, int valid) {
  using In = cub::BlockLoad<int, 48, 3, L>;
  using Out = cub::BlockStore<int, 48, 3, W>;
  __shared__ union { typename In::TempStorage in; typename Out::TempStorage out; } t;
  int k[3];
  In(t.in).Load(p, k, valid, 7);
  MEET;
  for (int& i : k) i += threadIdx.x % 2 * 1000;
  Out(t.out).Store(p, k, valid);  // through
}
int main() {
  int h[144], *p;
  cudaMalloc(&p, sizeof h);
  for (int i = 0; i < 144; ++i) h[i] = i * 89 % 144;
  cudaMemcpy(p, h, sizeof h, cudaMemcpyHostToDevice);
  radix<<<1, 48>>>(p);
  merges<<<1, 48>>>(p);
  through<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE><<<1, 48>>>(p, 144);
  through<cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE><<<1, 48>>>(p, 143);
  cudaMemcpy(h, p, sizeof h, cudaMemcpyDeviceToHost);
  bool right = h[143] == 1143;
  for (int i = 0; i < 143; ++i) right &= h[i] == i + i / 3 % 2 * 2000;
  printf("%d\\n", right);
  cudaFree(p);
}
"""
HALVES = """#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;
struct half2 { int x, y; };  // names that CUDA has only in headers which are not included
__device__ int half;
__global__ void nv_half(int* x, int late) {
  auto g = cg::this_grid();
  auto b = cg::this_thread_block();
  int t = g.thread_rank(), n = g.size();
  for (int round = 0; round < 2; ++round) {
    if (!late) x[t] = t + round;
    auto token = g.barrier_arrive();
    if (late) x[t] = t + round;
    g.barrier_wait(std::move(token));
    x[n + t] = x[n - 1 - t];  // late
    auto mine = b.barrier_arrive();
    b.barrier_wait(std::move(mine));
    g.sync();
  }
}
__global__ void active(int* x) {
  if (threadIdx.x >= 64) return;
  asm volatile("bar.sync 1, 64;" ::: "memory");
  x[threadIdx.x] = __popc(__activemask());
}
int main(int count, char**) {
  int *x, h[64], late = count > 1;
  cudaMalloc(&x, 2 * 12 * 64 * sizeof(int));
  void* a[] = {&x, &late};
  cudaLaunchCooperativeKernel((void*)nv_half, dim3(12), dim3(64), a, 0, 0);
  cudaMemcpy(h, x + 12 * 64, 4, cudaMemcpyDeviceToHost);
  printf("%d ", h[0]);
  active<<<1, 96>>>(x);
  cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost);
  int least = 32;
  for (int i : h) least = i < least ? i : least;
  half2 both{least, 1};
  printf("%d\\n", both.x);
  cudaFree(x);
}
"""
LANES = """#include <cuda_bf16.h>
#include <cstdio>
__global__ void dropped(int* o) {
  int t = threadIdx.x, v = t + 1;
  if (t >= 20) return;
  for (int d = 16; d; d /= 2) {
    int w = __shfl_down_sync(0xfffff, v, d);  // dropped
    if (t + d < 20) v += w;
  }
  if (!t) *o = v;
}
__global__ void lost(int* o) {
  int t = threadIdx.x, v = t + 1;
  if (t >= 16) return;
  for (int d = 8; d; d /= 2) v += __shfl_down_sync(0xffff, v, d);  // lost
  if (!t) *o = v;
}
__global__ void added(int* o) {
  int t = threadIdx.x, v = t + 1;
  if (t >= 20) return;
  for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xfffff, v, d);  // added
  if (!t) *o = v;
}
__global__ void kept(half* o) {
  if (threadIdx.x < 16) o[threadIdx.x] = __shfl_sync(0xffff, __float2half(threadIdx.x), threadIdx.x + 8);  // kept
}
int main(int count, char**) {
  int *o, h[3];
  half* f;
  nv_bfloat16 unused;
  cudaMalloc(&o, 12);
  cudaMallocManaged(&f, 32);
  dropped<<<1, 32>>>(o);
  lost<<<1, 32>>>(o + 1);
  count > 1 ? added<<<1, 32>>>(o + 2) : lost<<<1, 32>>>(o + 2);
  kept<<<1, 32>>>(f);
  cudaMemcpy(h, o, 12, cudaMemcpyDeviceToHost);
  cudaDeviceSynchronize();
  printf("%d %d", h[0], h[1]);
  volatile float read = __half2float(f[count > 1 ? 9 : 1]);
  cudaFree(o), cudaFree(f);
}
"""


def test_cubs_temporary_memory_needs_a_barrier_before_it_is_used_again(tmp_path):
    marks = ("radix", "striped", "merges", "through")
    assert seen(tmp_path, CUB)[0] == {("race", mark) for mark in marks}
    assert seen(tmp_path, CUB, defines=("BARRIER",))[1:] == (set(), "1\n")


def test_a_barrier_in_two_halves_orders_what_comes_before_the_first(tmp_path):
    """And names of the user's own are those of no header, and who came last to a named barrier is not active alone."""
    assert seen(tmp_path, HALVES, seed=3)[1:] == (set(), "768 32\n")
    assert seen(tmp_path, HALVES, ["late"])[0] == {("race", "late")}


def test_an_undefined_value_is_a_finding_where_the_host_gets_what_depends_on_it(tmp_path):
    found, told, printed = seen(tmp_path, LANES)
    assert (found, printed) == (set(), "210 136")
    assert told == {("undefined-lane", mark, True) for mark in ("dropped", "lost", "kept")}
    assert seen(tmp_path, LANES, ["more"])[0] == {("undefined-lane", "added"), ("undefined-lane", "kept")}


def test_what_one_line_does_to_two_allocations_are_two_findings(tmp_path):
    text = """__global__ void set(int* p) { p[threadIdx.x] = 1; }
int main() {
  int *a, *b;
  cudaMalloc(&a, 128);
  cudaMalloc(&b, 128);
  cudaFree(a), cudaFree(b);
  set<<<1, 32>>>(a);
  cudaDeviceSynchronize();
  set<<<1, 32>>>(b);
  cudaDeviceSynchronize();
}
"""
    found, _ = ran(compiled(tmp_path, text), tmp_path)
    assert [(f.kind, f.memory, f.count) for f in found.findings] == [("use-after-free", n, 32) for n in "ab"]
