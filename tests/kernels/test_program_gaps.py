"""What programs may do that was missed once, each with a right twin in the same run; and what is only a note."""

import pytest
from _programs import ran

from kernel_assay.kernels.backends.simt.program.compile import Request, compile_program
from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PROGRAM = """#include <cstdio>
struct Point { float x, y, z; };
__device__ int* kept;
__device__ int table[4];
__global__ void takes() { kept = (int*)malloc(16); int* lost = (int*)malloc(20); lost[0] = 1; }  // leak
__global__ void drops() { free(kept); int* p = (int*)malloc(24); free(p); free(p); }  // double-free
__global__ void barriers(int* x, int n) {
  int t = threadIdx.x;
  if (t < n) { x[t] = 1; __syncthreads(); } else { x[t] = 2; __syncthreads(); }  // divergent
  for (int i = 0; i < 2; ++i) { __syncthreads(); }
}
__global__ void beyond(int* x, int n) {
  int mine[4] = {n};
  mine[threadIdx.x % 4] = n;
  table[threadIdx.x % n] = 1;  // variable
  x[threadIdx.x] = mine[(threadIdx.x + n) % n];  // local
}
__global__ void fields(Point* p, int n) { p[n].y = 1; }  // field
__global__ void swaps(double* sum) {
  auto* bits = (unsigned long long*)sum;
  unsigned long long old = *bits, seen;  // note
  do {
    seen = old;
    old = atomicCAS(bits, seen, __double_as_longlong(__longlong_as_double(seen) + 1));
  } while (old != seen);
}
__global__ void checks(int* top) { if (*top < 900 + (int)threadIdx.x) atomicExch(top, (int)threadIdx.x); }  // race
__global__ void produces(volatile int* flag, int* data) { *data = 7; __threadfence_system(); *flag = 1; }
__global__ void odd(char* x, int by) { atomicAdd((int*)(x + by), 1); }  // misaligned
int main() {
  int *x, *flag, *data;
  Point* p;
  double* sum;
  cudaMalloc(&x, 256);
  cudaMalloc(&p, 10 * sizeof(Point));
  cudaMalloc(&sum, 8);
  cudaHostAlloc((void**)&flag, 4, cudaHostAllocMapped);
  cudaHostAlloc((void**)&data, 4, cudaHostAllocMapped);
  cudaMemset(x, 0, 256);
  cudaMemset(sum, 0, 8);
  *flag = 0;
  takes<<<1, 1>>>();
  drops<<<1, 1>>>();
  barriers<<<1, 64>>>(x, 64);
  barriers<<<1, 64>>>(x, 32);
  beyond<<<1, 8>>>(x, 4);
  beyond<<<1, 8>>>(x, 5);
  fields<<<1, 1>>>(p, 10);
  swaps<<<2, 64>>>(sum);
  checks<<<1, 64>>>(x);
  produces<<<1, 1>>>(flag, data);
  while (*(volatile int*)flag == 0) {
  }
  printf("%d\\n", *data);
  cudaMemcpy(data, sum, 4, cudaMemcpyDeviceToHost);
  cudaFree(p), cudaFree(sum), cudaFreeHost(flag), cudaFreeHost(data);
  odd<<<1, 1>>>((char*)x, 4);
  cudaFree(x);
  if (SECOND) {
    cudaMalloc(&x, 64);
    cudaMemset(x, 0, 64);
    odd<<<1, 1>>>((char*)x, 2);
    cudaDeviceSynchronize();
  }
}
"""


def line_of(mark):
    return next(n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f"// {mark}"))


def run(folder, second):
    (folder / "p.cu").write_text(PROGRAM)
    return ran(compile_program(Request((folder / "p.cu",), (f"SECOND={second}",))), folder)


def test_each_is_found_and_its_twin_is_not(tmp_path):
    found, printed = run(tmp_path, 0)
    told = {(f.kind, f.place.line): f.count for f in found.findings if not f.harmless}
    assert told.pop(("race", line_of("race"))) > 1
    assert told == {
        ("leak", line_of("leak")): 1,
        ("double-free", line_of("double-free")): 1,
        ("divergent-barrier", line_of("divergent")): 32,
        ("out-of-bounds", line_of("local")): 1,
        ("out-of-bounds", line_of("variable")): 1,
        ("out-of-bounds", line_of("field")): 1,
    }
    messages = [f.message for f in found.findings]
    assert any("4 bytes at byte 124 of p" in said and "it has 120 bytes" in said for said in messages), "no element"
    notes = [f for f in found.findings if f.harmless]
    assert [(f.kind, f.place.line) for f in notes if "compare-and-swap" in f.message] == [("race", line_of("note"))]
    assert printed == "7\n"
    assert found.exit_code == 0


def test_a_misaligned_atomic_operation_ends_the_launch(tmp_path):
    found, _ = run(tmp_path, 1)
    (told,) = [f for f in found.findings if f.kind == "misaligned"]
    assert told.place.line == line_of("misaligned")
    assert told.count == 1
