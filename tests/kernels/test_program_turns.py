"""Blocks that share work, barriers by number, streams that nobody waited for: each with a right twin in one file."""

import pytest
from _programs import ran

from kernel_assay.kernels.backends.simt.program.compile import Request, compile_program
from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PROGRAM = """#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
#include <cstdio>
namespace cg = cooperative_groups;
template <class T> T* dev(int n) {
  T* p;
  cudaMalloc(&p, n * sizeof(T));
  cudaMemset(p, 0, n * sizeof(T));
  return p;
}
__global__ void apart(int* out) {  // 64 threads, and barriers 1 and 2 of 64
  __shared__ int x;
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) x = 7;
    asm volatile("bar.arrive 1, 64;" ::: "memory");
    asm volatile("bar.sync 2, 64;" ::: "memory");
    if (threadIdx.x == 0) x = 8;
  } else {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    out[threadIdx.x - 32] = x;
    asm volatile("bar.arrive 2, 64;" ::: "memory");
  }
  if (threadIdx.x == 3) return;
  asm volatile("bar.sync 3;" ::: "memory");
  if (threadIdx.x == 5) out[5] += x;
}
template <bool right>
__global__ void takes(int* next, int* items, int* ready, int* who, int n) {
  __shared__ int mine;
  for (;;) {
    if (threadIdx.x == 0) mine = atomicAdd(next, 1);
    __syncthreads();
    int i = mine;
    __syncthreads();
    if (i >= n) return;
    if (threadIdx.x == 0) {
      who[i] = blockIdx.x;
      if (i) {
        while (atomicAdd(&ready[i - 1], 0) == 0) {}
        __threadfence();
      }
      items[i] = (i ? items[i - 1] : 0) + 1;  // queue
      if (right) __threadfence();
      atomicExch(&ready[i], 1);
    }
  }
}
__global__ void swaps(int* at) {
  for (int i = 0; i < 8; ++i) {
    int old = *at, seen;
    do {
      seen = old;
      old = atomicCAS(at, seen, seen + 1);
    } while (old != seen);
  }
}
__global__ void scans(int* out) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  out[threadIdx.x] = cg::exclusive_scan(tile, 1, cg::plus<int>()) + cg::inclusive_scan(tile, 1, cg::plus<int>());
}
__global__ void fills(int* p, int v) { p[threadIdx.x] = v; }  // fills
__global__ void meets(int* valid) {
  auto g = cg::this_grid();
  *valid = g.is_valid();
  g.sync();  // grid
}
int main(int argc, char**) {
  int *next = dev<int>(1), *ready = dev<int>(40), *who = dev<int>(40), *out = dev<int>(64);
  int* items = dev<int>(40);  // helper
  int *pinned, *managed, seen[64];
  cudaStream_t a, b, other;
  cudaEvent_t done;
  cudaMallocHost(&pinned, 256), cudaMallocManaged(&managed, 256);
  cudaMemPrefetchAsync(managed, 256, 0), cudaMemAdvise(managed, 256, cudaMemAdviseSetReadMostly, 0);
  cudaStreamCreate(&a), cudaStreamCreate(&b), cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaEventCreate(&done);
  apart<<<1, 64>>>(out);
  cudaMemcpy(seen, out, 256, cudaMemcpyDeviceToHost);
  printf("%d %d ", seen[0], seen[5]);
  scans<<<1, 32>>>(out);
  cudaMemcpy(seen, out, 128, cudaMemcpyDeviceToHost);
  printf("%d %d ", seen[0], seen[7]);
  swaps<<<4, 1>>>(next);
  cudaMemset(next, 0, 4);
  takes<true><<<4, 32>>>(next, items, ready, who, 40);
  cudaMemcpy(seen, who, 160, cudaMemcpyDeviceToHost);
  int blocks = 0;
  for (int i = 0; i < 40; ++i) blocks |= 1 << seen[i];
  printf("%d", blocks);
  // Two streams, each its half; who waits for one may read it, and what an event or the default stream has waited for.
  fills<<<1, 16, 0, a>>>(pinned, 1), fills<<<1, 16, 0, b>>>(pinned + 16, 2);
  cudaStreamSynchronize(a);
  int sum = pinned[3];
  cudaEventRecord(done, b), cudaStreamWaitEvent(other, done, 0);
  fills<<<1, 16, 0, other>>>(pinned, 3);
  cudaStreamSynchronize(other);
  sum += pinned[3] + pinned[20];
  fills<<<1, 16, 0, a>>>(pinned, 4);
  cudaMemcpy(seen, out, 4, cudaMemcpyDeviceToHost);
  sum += pinned[3];
  for (int i = 0; i < 600; ++i) {
    fills<<<1, 1, 0, other>>>(managed, i);
    cudaStreamSynchronize(other);
    sum += managed[0];
  }
  if (argc > 1) {
    fills<<<1, 16, 0, a>>>(pinned, 5), fills<<<1, 16, 0, b>>>(pinned + 16, 5);
    cudaStreamSynchronize(b), cudaStreamSynchronize(a);
    sum += pinned[1] + pinned[17];
    cudaFree(out), cudaFree(items), cudaFreeHost(pinned), cudaFree(managed);
    cudaFree(next), cudaFree(ready), cudaFree(who);
    return sum > 0 ? 7 : 0;
  }
  int* gone;
  cudaMallocAsync((void**)&gone, 4, other);
  fills<<<1, 16, 0, other>>>(pinned, 5);
  cudaFreeAsync(gone, other);
  sum += pinned[1];  // freed
  fills<<<1, 16, 0, a>>>(pinned, 5), fills<<<1, 16, 0, other>>>(pinned + 16, 5);
  cudaStreamSynchronize(a);
  sum += pinned[1];
  sum += pinned[17];  // stream
  cudaDeviceSynchronize();
  cudaMemset(next, 0, 4), cudaMemset(ready, 0, 160);
  takes<false><<<4, 32>>>(next, items, ready, who, 40);
  cudaDeviceSynchronize();
  meets<<<2, 32>>>(managed);
  return sum < 0;
}
"""


def line_of(mark):
    return next(n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f"// {mark}"))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    source = tmp_path_factory.mktemp("turns") / "p.cu"
    source.write_text(PROGRAM)
    return compile_program(Request((source,)))


def test_what_is_wrong_between_blocks_and_streams_is_found(program, tmp_path):
    found, _ = ran(program, tmp_path, seed=1)
    told = {(f.kind, f.place.line): f for f in found.findings if not f.harmless}
    wanted = {("unsynchronized", line_of("freed")), ("unsynchronized", line_of("stream"))}
    wanted.add(("stream-race", line_of("fills")))
    assert set(told) == wanted | {("race", line_of("queue")), ("trap", line_of("grid"))}
    race = told["stream-race", line_of("fills")]
    (other,) = [n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("other>>>(pinned, 5);")]
    assert (
        f"] (p.cu, line {race.place.line}), while kernel fills (p.cu, line {other}), in another stream" in race.message
    )
    race = told["race", line_of("queue")].message
    assert f"p: allocated in p.cu, line 7, for p.cu, line {line_of('helper')}" in race
    assert told["race", line_of("queue")].seed == 1


def test_what_is_right_is_silent_and_the_blocks_share_it_but_for_the_first_order(program, tmp_path):
    for seed, runs in ((0, 1), (1, 3)):
        found, printed = ran(program, tmp_path, seed=seed, orders=runs, arguments=("right",))
        (told,) = [f for f in found.findings if not f.harmless]
        assert (told.kind, told.message, told.count) == ("exit-code", "the program ended with 7", runs)
        assert PROGRAM.splitlines()[told.place.line - 1].startswith("int main(")
        values, shared = printed.rsplit(" ", 1)
        assert values == "7 15 1 15"
        assert (int(shared).bit_count() > 1) == (seed > 0)
