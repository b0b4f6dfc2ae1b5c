"""Programs in fast mode: blocks on several processors, as right as on one, and what is told of faults all the same."""

import pytest
from _programs import ran

from kernel_assay.kernels.backends.simt.program.compile import Request, compile_program
from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PROGRAM = r"""
#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cuda/atomic>

// ---- shared memory: by names outside of functions, too ----
extern __shared__ float outer[];
namespace n { extern "C" { extern __shared__ int inner[]; } }
__global__ void dynamic(int* wrong) {
  extern __shared__ float local[];
  __shared__ float fixed[64];
  int t = threadIdx.x;
  outer[t] = t + blockIdx.x, fixed[t] = 2 * (t + blockIdx.x);
  __syncthreads();
  float sum = local[63 - t] + fixed[63 - t] + ((float*)n::inner)[t];
  if (sum != 3 * (63 - t + blockIdx.x) + t + blockIdx.x) atomicAdd(wrong, 1);
}

// ---- blocks that wait for another ----
__device__ int flags[64];
__global__ void waits_for_later() {
  if (threadIdx.x) return;
  if (blockIdx.x + 1 < gridDim.x) while (atomicAdd(&flags[blockIdx.x + 1], 0) == 0) {}
  __threadfence();
  atomicExch(&flags[blockIdx.x], 1);
}
__global__ void waits_by_volatile(volatile int* f) {
  if (threadIdx.x) return;
  if (blockIdx.x + 1 < gridDim.x) while (f[blockIdx.x + 1] == 0) {}
  f[blockIdx.x] = 1;
}
__global__ void waits_for_earlier(cuda::atomic<int, cuda::thread_scope_device>* f) {
  if (threadIdx.x) return;
  if (blockIdx.x) while (f[blockIdx.x - 1].load(cuda::std::memory_order_acquire) == 1) {}
  f[blockIdx.x].store(2, cuda::std::memory_order_release);
}
__device__ int lock, together;
__global__ void locked() {
  if (threadIdx.x) return;
  while (atomicCAS(&lock, 0, 1) != 0) {}
  __threadfence();
  together = together + 1;
  __threadfence();
  atomicExch(&lock, 0);
}

// ---- atomic operations, the last block, the heap, the whole grid ----
__device__ double sum;
__global__ void sums() { atomicAdd(&sum, 0.5); }
__device__ unsigned tickets;
__device__ int parts[256];
__global__ void last_block(int* wrong) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = blockIdx.x;
    __threadfence();
    last = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x) return;
  int whole = 0;
  for (int i = 0; i < gridDim.x; ++i) whole += atomicExch(&parts[i], 0);
  *wrong += whole != gridDim.x * (gridDim.x - 1) / 2;
}
__global__ void allocates(int** out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = (int*)malloc(64);
  out[i][3] = i;
}
__global__ void frees(int** out, int* wrong) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (out[i][3] != i) atomicAdd(wrong, 1);
  free(out[i]);
}
__global__ void meets(int* x, int* wrong) {
  auto grid = cooperative_groups::this_grid();
  x[grid.thread_rank()] = grid.thread_rank();
  grid.sync();
  int other = grid.size() - 1 - grid.thread_rank();
  if (x[other] != other) atomicAdd(wrong, 1);
}
__global__ void says() { if (threadIdx.x == 0) printf("block %d\n", blockIdx.x); }

// ---- faults ----
__global__ void fails(int n) { assert(blockIdx.x != n); }
__global__ void null_waited_for() {
  if (blockIdx.x == 7) *(volatile int*)nullptr = 1;
  else if (threadIdx.x == 0) while (atomicAdd(&flags[9], 0) == 0) {}
}
__device__ __noinline__ int depth(int n) {
  volatile char room[2000];
  room[n] = n;
  return n ? depth(n - 1) + room[n] : 0;
}
__global__ void deep(int n) { flags[8] = depth(n); }
__global__ void apart() {
  if (threadIdx.x < 16) __syncthreads();
  else
    __syncthreads();
}

int* wrong;
int found() {
  int n;
  cudaMemcpy(&n, wrong, 4, cudaMemcpyDeviceToHost), cudaMemset(wrong, 0, 4);
  return n;
}
int main(int, char** arguments) {
  int which = atoi(arguments[1]), n, *f, *x, **all;
  double whole;
  cudaMalloc(&wrong, 4), cudaMemset(wrong, 0, 4);
  cudaMalloc(&f, 64 * 4), cudaMalloc(&x, 256 * 4), cudaMalloc(&all, 6400 * 8);
  FAULTS
  if (which < 0) {
    for (int i = 0; i < 20; ++i) dynamic<<<200, 64, 256>>>(wrong);
    printf("dynamic %d\n", found());
    waits_for_later<<<64, 32>>>();
    cudaMemset(f, 0, 256);
    waits_by_volatile<<<64, 32>>>(f);
    waits_for_earlier<<<64, 32>>>((cuda::atomic<int, cuda::thread_scope_device>*)f);
    cudaMemcpyFromSymbol(&n, flags, 4), printf("chain %d\n", n);
    for (int i = 0; i < 10; ++i) locked<<<500, 32>>>();
    cudaMemcpyFromSymbol(&n, together, 4), printf("locked %d\n", n);
    sums<<<300, 64>>>();
    cudaMemcpyFromSymbol(&whole, sum, 8), printf("sum %.1f\n", whole);
    for (int i = 0; i < 20; ++i) last_block<<<256, 32>>>(wrong);
    printf("last %d\n", found());
    allocates<<<100, 64>>>(all), frees<<<100, 64>>>(all, wrong);
    printf("heap %d\n", found());
    void* given[] = {&x, &wrong};
    cudaLaunchCooperativeKernel(meets, 8, 32, given, 0, 0);
    printf("grid %d\n", found());
    says<<<3, 32>>>();
    puts(cudaGetErrorString(cudaDeviceSynchronize()));
  }
  cudaFree(wrong), cudaFree(f), cudaFree(x), cudaFree(all);
}
"""
FAULTS = [
    ("fails<<<900, 32>>>(77)", "trap", "block 77"),
    ("null_waited_for<<<200, 32>>>()", "illegal-address", "block 7"),
    ("deep<<<9, 32>>>(200)", "stack-overflow", "64 KB"),
    ("apart<<<9, 32>>>()", "divergent-barrier", "16 others wait"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    file = tmp_path_factory.mktemp("fast") / "p.cu"
    file.write_text(PROGRAM.replace("FAULTS", "".join(f"if (which == {n}) {f[0]};" for n, f in enumerate(FAULTS))))
    return compile_program(Request((file,), fast=True))


def run(program, folder, *arguments, **how):
    return ran(program, folder, "p.cu", arguments, **how)


@pytest.mark.parametrize(("jobs", "seed"), [(1, 0), (3, 0), (7, 2)])
def test_what_blocks_share_is_right_on_any_number_of_processors(program, tmp_path, jobs, seed):
    found, out = run(program, tmp_path, "-1", jobs=jobs, seed=seed)
    assert (found.exit_code, found.findings) == (0, ())
    words = ["locked 5000", "sum 9600.0", "chain 1", "last 0", "dynamic 0", "heap 0", "grid 0", "no error"]
    assert sorted(out.split("\n")[:-1]) == sorted([*(f"block {i}" for i in range(3)), *words])


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_a_fault_of_any_block_ends_the_launch_and_is_told(program, tmp_path, number):
    _, kind, words = FAULTS[number]
    found, _ = run(program, tmp_path, str(number), jobs=3)
    assert [f.kind for f in found.findings] == [kind]
    assert words in found.findings[0].message
