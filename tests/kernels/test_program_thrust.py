"""Thrust's algorithms are work of the device, whatever memory they are given; the host's own accesses are not."""

import pytest
from _programs import compiled, ran

from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PROGRAM = """#include <cstdio>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/system/cuda/execution_policy.h>
struct Doubles { int* at; __device__ void operator()(int i) const { at[i] *= 2; } };
__global__ void adds(int* x) { x[threadIdx.x] += threadIdx.x; }
int main(int count, char**) {
  int *x, *y, *seen;
  cudaStream_t mine, other;
  cudaStreamCreate(&mine), cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaMalloc(&x, 256), cudaMalloc(&y, 256), cudaMallocManaged(&seen, 256);
  thrust::device_ptr<int> p(x);
  thrust::fill(p, p + 64, 1);
  adds<<<1, 64>>>(x);
  thrust::for_each(thrust::device, thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(64), Doubles{x});
  thrust::sort(thrust::device, x, x + 64, thrust::greater<int>());
  thrust::device_vector<int> vector(p, p + 64);
  thrust::copy(vector.begin(), vector.end(), p);
  p[1] = vector[0] + p[2];
  int sum = thrust::reduce(thrust::cuda::par.on(mine), x, x + 64), first = p[1];
  thrust::fill(thrust::cuda::par.on(mine), seen, seen + 64, 5);
  printf("%d %d %d", sum, first, seen[0]);
  if (count > 1) {
    thrust::fill(p, p + 65, 1);  // beyond
    thrust::reduce(thrust::device, y, y + 64);  // undefined
    thrust::sort(x, x + 64);  // the host's algorithm
    printf(" %d", *thrust::raw_pointer_cast(p));  // the host itself
    adds<<<1, 64, 0, other>>>(x);
    thrust::reduce(thrust::cuda::par.on(mine), x, x + 64);  // another stream
    thrust::fill(thrust::cuda::par_nosync.on(mine), seen, seen + 64, 1);
    seen[0] = 2;  // too early
    cudaDeviceSynchronize();
  }
  cudaFree(x), cudaFree(y), cudaFree(seen), cudaStreamDestroy(mine), cudaStreamDestroy(other);
}
"""


def line_of(mark):
    return next(n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f"// {mark}"))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("thrust"), PROGRAM)


def test_algorithms_over_plain_pointers_are_no_accesses_of_the_host(program, tmp_path):
    found, printed = ran(program, tmp_path)
    assert not found.findings
    assert printed == "4286 252 5"


def test_algorithms_are_judged_as_kernels_are_and_the_host_as_before(program, tmp_path):
    found, _ = ran(program, tmp_path, arguments=("wrong",))
    seen = {(f.kind, f.place.line) for f in found.findings}
    assert seen == {
        ("out-of-bounds", line_of("beyond")),
        ("uninitialized", line_of("undefined")),
        ("host-access", line_of("the host's algorithm")),
        ("host-access", line_of("the host itself")),
        ("stream-race", line_of("another stream")),
        ("unsynchronized", line_of("too early")),
    }
    said = {f.kind: f.message for f in found.findings}
    assert said["out-of-bounds"].startswith("thrust::fill writes x[64] (p.cu, line")
    assert said["stream-race"].startswith("thrust::reduce reads x[0] (p.cu, line")
