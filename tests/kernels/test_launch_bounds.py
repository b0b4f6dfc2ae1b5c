"""A launch with more threads in a block than a kernel's `__launch_bounds__` allow fails, and nothing else does."""

import pytest
from _programs import compiled, ran

from kernel_assay.kernels.backends.simt.bounds import with_bounds
from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PROGRAM = """#include <cstdio>
#define MOST 64
constexpr int half_of(int n) { return n / 2; }
const int n = 32;
struct Small { static constexpr int threads = 64; };
__global__ void __launch_bounds__(MOST) of_macro(int* x) { x[threadIdx.x + 8 * threadIdx.y + 32 * threadIdx.z] = 1; }
__global__ __launch_bounds__(half_of(128), 2) void of_function(int* x) { x[threadIdx.x] = 1; }
__launch_bounds__(/* no more */ MOST) __global__ void before_it(int* x)
{ x[threadIdx.x] = 1; }
template <class P, int N>
__global__ void __launch_bounds__(N < 64 ? N : P::threads, (N > 2), 1) of_template(int* x) { x[threadIdx.x] = 1; }
// what cannot be understood is ignored
__global__ void __launch_bounds__(n) shadowed(int* x, int n) { x[threadIdx.x] = n; }
__global__ void
#ifdef NEVER
__launch_bounds__(32)
#endif
chosen(int* x) { x[threadIdx.x] = 1; }
#define BOUNDS(n) __launch_bounds__(n)
#define KERNEL __global__ void BOUNDS(32)

KERNEL by_macro(int* x, int = 0) { x[threadIdx.x] = 1; }
__global__ void __maxnreg__(32) of_registers(int* x) { x[threadIdx.x] = 1; }
int main(int count, char**) {
  int *x, threads = count > 1 ? 65 : 64;
  cudaMalloc(&x, 4096);
  void* arguments[] = {&x};
  shadowed<<<1, threads>>>(x, 4);
  chosen<<<1, threads>>>(x), by_macro<<<1, 32>>>(x), of_registers<<<1, threads>>>(x);
  of_template<Small, 32><<<1, 32>>>(x);
  of_macro<<<1, dim3(8, 4, 2)>>>(x);
  of_macro<<<1, threads>>>(x);  // WRONG
  of_function<<<1, threads>>>(x);  // WRONG
  before_it<<<1, threads>>>(x);  // WRONG
  of_template<Small, 96><<<1, threads>>>(x);  // WRONG
  by_macro<<<1, threads - 32>>>(x);  // WRONG
  cudaLaunchKernel(of_macro, 1, threads, arguments);  // WRONG
  cudaError_t last = cudaGetLastError(), given = cudaLaunchCooperativeKernel(of_macro, 1, threads, arguments);  // WRONG
  printf("%s %s %s", cudaGetErrorName(last), cudaGetErrorName(given), cudaGetErrorName(cudaDeviceSynchronize()));
  cudaFuncAttributes said;
  int blocks, fit, none;
  cudaFuncGetAttributes(&said, of_template<Small, 96>);
  cudaOccupancyMaxPotentialBlockSize(&blocks, &fit, by_macro), by_macro<<<1, fit>>>(x);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&none, of_function, fit * 2 + 1, 0);
  printf(" %d %d %d", said.maxThreadsPerBlock, fit, none);
  cudaFuncGetAttributes(&said, chosen);
  printf(" %d", said.maxThreadsPerBlock);
  cudaFree(x);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("bounds"), PROGRAM)


def test_launches_within_the_bounds_are_fine(program, tmp_path):
    found, printed = ran(program, tmp_path)
    assert not found.findings
    assert printed == "cudaSuccess cudaSuccess cudaSuccess 64 32 0 1024"


def test_each_launch_beyond_its_bounds_fails_by_itself(program, tmp_path):
    found, printed = ran(program, tmp_path, arguments=("more",))
    wrong = [n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("// WRONG")]
    assert [(f.kind, f.place.line) for f in found.findings] == [("api-error", n) for n in wrong]
    assert found.findings[3].message == (
        "the launch of of_template<Small, 96>: cudaErrorInvalidValue, "
        f"a block of 65 threads, but its __launch_bounds__ allow 64 (p.cu, line {wrong[3]})"
    )
    assert printed == "cudaErrorInvalidValue cudaErrorInvalidValue cudaSuccess 64 32 0 1024"


@pytest.mark.parametrize(
    "text",
    [
        "#undef __launch_bounds__\nint f(int x) { return x; }",
        "void __launch_bounds__(64) f(int x) { }",
        "__global__ void __launch_bounds__(64) f(int x);\nvoid g() { }",
        "__global__ void __launch_bounds__() f(int x) { }",
        "__global__ void __launch_bounds__(64",
        "// __global__ void __launch_bounds__(64) f(int x) { }",
    ],
)
def test_what_is_no_definition_of_a_kernel_with_bounds_stays_as_it_is(text):
    assert with_bounds(text) == text
