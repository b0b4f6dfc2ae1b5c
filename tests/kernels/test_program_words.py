"""What a finding of a program names: which of two files, the parameter, the work in another stream; with a twin."""

from pathlib import Path

import pytest
from _programs import ran

from kernel_assay.kernels.backends.simt.program.compile import Request, compile_program
from kernel_assay.kernels.backends.simt.program.syntax import kernel_parameters
from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

KERNELS = """#include <cub/cub.cuh>
#include "util.h"
template <class T>
__global__ void scaled(T* __restrict__ values, const T factors[], int n = 3) {
  if (threadIdx.x <= n) values[threadIdx.x] *= factors[0];  // scaled
}
__global__ void indexed(int* x, int n) {
  int mine[4] = {n};
  x[threadIdx.x] = mine[n] + first(x, n);  // indexed
}
__global__ void votes(int* out, int bad) {  // two of three warps at barrier 3
  int t = threadIdx.x, r = 1;
  __shared__ int s;
  if (t == 0) s = 5;
  if (t < 64) {
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, 42; bar.red.popc.u32 %0, 3, 64, p; }"
                 : "=r"(r) : "r"(t) : "memory");
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, 42; bar.red.and.pred p, 4, 64, p; @p add.s32 %0, %0, 100; }"
                 : "+r"(r) : "r"(t));
    r += s;  // read in time
  } else if (bad) r = s;  // read too early
  out[t] = r;
}
__global__ void ends(int* x) {
  if (threadIdx.x > 20) return;
  __syncwarp();  // ends
  x[threadIdx.x] = __popc(__ballot_sync(0x1fffff, 1));
}
template <class K, int Items>
__global__ void sorts(const K* in, K* out, int* from, bool bad) {
  using Sort = cub::BlockRadixSort<K, 96, Items, int>;
  using Merge = cub::WarpMergeSort<K, Items, 16, int>;
  __shared__ union {
    typename Sort::TempStorage block;
    typename Merge::TempStorage warps[6];
  } temp;
  K keys[Items];
  int at[Items], t = threadIdx.x;
  for (int i = 0; i < Items; ++i) keys[i] = in[at[i] = t * Items + i];
  Sort(temp.block).SortDescending(keys, at);  // sorted
  for (int i = 0; i < Items; ++i) out[t * Items + i] = keys[i], from[t * Items + i] = at[i];
  if (!bad) __syncthreads();
  Merge(temp.warps[t / 16]).Sort(keys, at, [](K a, K b) { return a < b; });  // merged too early
  for (int i = 0; i < Items; ++i) out[96 * Items + t * Items + i] = keys[i];
}
void all_of(int* x, int* y, float* numbers, bool bad) {
  scaled<int><<<1, 96>>>(x, y, bad ? 64 : 3);
  indexed<<<1, 32>>>(x, bad ? 4 : 3);
  votes<<<1, 96>>>(y, bad);
  if (bad) ends<<<1, 32>>>(x);
  sorts<float, 3><<<1, 96>>>(numbers, numbers + 288, y, bad);
}
"""
MAIN = """#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cstdio>
#include "util.h"
void all_of(int*, int*, float*, bool);
__global__ void plain(int* data, int n) { data[threadIdx.x] = first(data, n + threadIdx.x); }
template <class T> T* made(int n) {
  T* p;
  cudaMalloc(&p, n * sizeof(T));
  cudaMemset(p, 0, n * sizeof(T));
  return p;
}
int main(int argc, char**) {
  bool bad = argc > 1;
  int *d_x, *y = made<int>(288), seen[288], *pinned;
  float *numbers = made<float>(3 * 288), host[3 * 288];
  cudaMalloc(&d_x, 256), cudaMemset(d_x, 0, 256), cudaMallocHost(&pinned, 256);
  for (int i = 0; i < 288; ++i) host[i] = (i * 7919 % 288 - 100) / (i % 5 ? 4.f : 2.f);
  cudaMemcpy(numbers, host, 288 * 4, cudaMemcpyHostToDevice);
  all_of(d_x, y, numbers, bad);
  cudaMemcpy(seen, y, sizeof seen, cudaMemcpyDeviceToHost);
  cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost);
  bool sorted = true;
  for (int i = 1; !bad && i < 288; ++i) {
    sorted &= host[287 + i] > host[288 + i] || (host[287 + i] == host[288 + i] && seen[i - 1] < seen[i]);
    sorted &= host[288 + i] == host[seen[i]] && (i % 48 == 0 || host[575 + i] <= host[576 + i]);
  }
  plain<<<1, 64>>>(d_x, bad ? 1 : 0);
  cudaStream_t a, b;
  cudaStreamCreate(&a), cudaStreamCreate(&b);
  void* temporary = nullptr;
  size_t bytes = 0;
  cub::DeviceRadixSort::SortKeys(temporary, bytes, numbers, numbers + 288, 288, 0, 32, a);
  cudaMalloc(&temporary, bytes);
  cub::DeviceRadixSort::SortKeys(temporary, bytes, numbers, numbers + 288, 288, 0, 32, a);
  if (!bad) cudaStreamSynchronize(a);
  cub::DeviceScan::InclusiveSum(temporary, bytes, y, y, 288, b);  // shares temporary memory
  cudaMemcpyAsync(d_x, pinned, 256, cudaMemcpyHostToDevice, b);
  if (!bad) cudaStreamSynchronize(b);
  *pinned = 1;  // reused
  cudaDeviceSynchronize();
  cudaMemcpy(host, numbers + 288, 288 * 4, cudaMemcpyDeviceToHost);
  for (int i = 1; i < 288; ++i) sorted &= host[i - 1] <= host[i];
  cudaMemcpy(&seen[1], y + 287, 4, cudaMemcpyDeviceToHost);
  printf("%d %d\\n", sorted, seen[1]);
  cudaFree(d_x), cudaFree(y), cudaFree(numbers), cudaFree(temporary), cudaFreeHost(pinned);
}
"""
FILES = {
    "a/k.cu": KERNELS,
    "a/util.h": "__device__ inline int first(int* p, int n) { return n; }\n",
    "b/util.h": "\n__device__ inline int first(int* p, int n) {\n  return p[n];\n}\n",
    "b/k.cu": MAIN,
}


def line_of(text, mark):
    return next(n for n, line in enumerate(text.splitlines(), 1) if line.endswith(f"// {mark}"))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield compile_program(Request((Path("a/k.cu"), Path("b/k.cu"))))


def test_what_is_right_is_silent(program, tmp_path):
    found, printed = ran(program, tmp_path, orders=2)
    assert [f.message for f in found.findings] == []
    assert printed == f"1 {sum(range(288))}\n"


def test_what_is_wrong_is_named(program, tmp_path):
    found, _ = ran(program, tmp_path, orders=2, arguments=("bad",))
    told = {(f.kind, f.place.file, f.place.line): f for f in found.findings}
    kernels = {mark: ("a/k.cu", line_of(KERNELS, mark)) for mark in ("scaled", "indexed", "ends", "read too early")}
    calls = {mark: ("b/k.cu", line_of(MAIN, mark)) for mark in ("reused", "shares temporary memory")}
    header = ("out-of-bounds", "b/util.h", 3)
    wanted = {
        ("out-of-bounds", *kernels["scaled"]),
        ("out-of-bounds", *kernels["indexed"]),
        ("ended-lane", *kernels["ends"]),
        ("race", *kernels["read too early"]),
        ("stream-race", *calls["shares temporary memory"]),
        ("unsynchronized", *calls["reused"]),
        header,
    }
    assert wanted <= set(told)
    sorts = {line_of(KERNELS, mark) for mark in ("sorted", "merged too early")}
    assert any({f.place.line, f.other.line} == sorts for f in found.findings if f.kind == "race")
    assert {kind for kind, *_ in set(told) - wanted} <= {"race", "uninitialized"}
    assert not any(kind == "uninitialized" and line == line_of(KERNELS, "read in time") for kind, _, line in told)
    by_parameter = told["out-of-bounds", *kernels["scaled"]]
    assert (by_parameter.memory, by_parameter.parameter) == ("d_x", "values")
    assert by_parameter.message.endswith("; passed as values")
    assert "(b/util.h, line 3)" in told[header].message
    assert told["ended-lane", *kernels["ends"]].harmless
    shared = told["stream-race", *calls["shares temporary memory"]].message
    assert "while kernel cub::DeviceRadixSort::SortKeys (b/k.cu, line " in shared
    assert "cudaMemcpyAsync (b/k.cu, line " in told["unsynchronized", *calls["reused"]].message


def test_names_of_parameters():
    text = """
    __global__ void k(const std::pair<int, float*>*, int (*f)(int), float b[], T* const, int);
    __global__ void k(const std::pair<int, float*>* __restrict__ a, int (*f)(int), float b[], T* const c = 0, int) {}
    __global__ void twice(int* x) {} __global__ void twice(float* y) {}
    """
    assert kernel_parameters([text]) == {"k": ("a", "", "b", "c", "")}
