"""What public CUDA files are written with: one program that uses much of it, and sentences for what is not emulated."""

import pytest
from _programs import ran

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.backends.simt.program.compile import Request, check_sources, compile_program, sentence_of
from kernel_assay.kernels.backends.simt.program.syntax import known_of, rewrite_launches
from kernel_assay.kernels.backends.simt.rewriting import rewritten
from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PROGRAM = r"""
#include <cmath>
#include <cstdio>
#include "cuda_runtime.h"
#include "device_launch_parameters.h"
#include "a/one.h"
#include "ABSOLUTE"
#define auto __auto_type
#define UNROLL #pragma unroll
using namespace std;

extern "C" {
__device__ static int calls = 3;
__device__ void swap(int* a, int* b) { int t = *a; *a = *b, *b = t; }
}

__inline__ __device__ float block_sum(float value) {
  static __shared__ float parts[32];
  for (int by = 16; by > 0; by /= 2) value += __shfl_down(value, by);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  return parts[0] + parts[1];
}

template <typename T>
__global__ void sums(T* out) {
  __shared__ static volatile T first;
  float s, c;
  sincos(0.5f, &s, &c);
  if (!threadIdx.x) first = 0;
  __syncthreads();
  float sum = block_sum(threadIdx.x);
  bool odd = __any(threadIdx.x & 1), all = __all(threadIdx.x < 64);
  unsigned lanes = __ballot(threadIdx.x < 34);
  T most = 0;
  UNROLL
  for (int i = 0; i < 4; ++i) most = max(most + first, min(255 * s * i, 3.0));
  if (threadIdx.x == 33) out[0] = sum, out[1] = odd + all, out[2] = lanes, out[3] = most, out[4] = lrintf(1000 * c);
}

__global__ void turned(int* x) {
  if (threadIdx.x < 8) swap(x + threadIdx.x, x + 15 - threadIdx.x);
  if (!threadIdx.x) calls += TWO;
}

int main() {
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  printf("%d %d %d %d\n", p.clockRate > 0, p.computeMode, p.major, clock() < 60 * CLOCKS_PER_SEC);
  double *out, got[5];
  cudaMalloc(&out, sizeof got);
  sums<double> << < dim3(1), 64 >> >(out);
  cudaThreadSynchronize();
  cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
  printf("%g %g %g %g %g\n", got[0], got[1], got[2], got[3], got[4]);

  int host[16], back[16], after;
  for (int i = 0; i < 16; ++i) host[i] = i;
  cudaMemPool_t pool;
  int* x;
  cudaDeviceGetDefaultMemPool(&pool, 0);
  cudaMallocFromPoolAsync(&x, sizeof host, pool, 0);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  launched(turned, x);
  cudaMemcpyFromSymbol(&after, calls, sizeof after);
  cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
  cudaChannelFormatDesc kind = cudaCreateChannelDesc<int>(), same;
  cudaArray_t array;
  cudaMallocArray(&array, &kind, 4, 4);
  cudaMemcpyToArray(array, 0, 0, host, sizeof host, cudaMemcpyHostToDevice);
  cudaMemcpyFromArray(back, array, 8, 1, 24, cudaMemcpyDeviceToHost);
  cudaGetChannelDesc(&same, array);
  printf("%d %d %d %d %d\n", host[0], back[0], back[5], after, same.x);
  cudaFreeArray(array), cudaFree(x), cudaFree(out);
}
"""


def test_a_program_with_what_others_write(tmp_path):
    (tmp_path / "a").mkdir()
    absolute = tmp_path / "a" / "three.cuh"
    absolute.write_text(
        "template <typename Kernel>\nvoid launched(Kernel kernel, int* x) { kernel << <1, 16 >> > (x); }\n"
    )
    (tmp_path / "p.cu").write_text(PROGRAM.replace("ABSOLUTE", str(absolute)))
    # two headers that include one another, by a way that grows with each turn
    (tmp_path / "a" / "one.h").write_text('#pragma once\n#include "../a/two.h"\n#define TWO 2\n')
    (tmp_path / "a" / "two.h").write_text('#pragma once\n#include "../a/one.h"\n')
    found, printed = ran(compile_program(Request((tmp_path / "p.cu",))), tmp_path, "p.cu")
    assert printed == "1 0 9 1\n2016 2 3 3 878\n15 9 4 5 32\n"
    assert (found.findings, found.exit_code, found.launches) == ((), 0, 2)


def test_launches_as_editors_write_them():
    for text, wanted in (
        (
            "k << <f(g, n >> 2), A<B<int>>::b >> > (x);",
            "(::simt_launch(SIMT_NAME(k), f(g, n >> 2), A<B<int>>::b ), k  (x), ::simt_run());",
        ),
        ("k<< <1, 2>>>(x);", "(::simt_launch(SIMT_NAME(k), 1, 2), k(x), ::simt_run());"),
        ("cout << x << (a >> b) << y;", "cout << x << (a >> b) << y;"),
        ("#define U #pragma unroll 4\n", '#define U _Pragma("unroll 4")\n'),
    ):
        assert rewrite_launches(text, known_of([text])) == wanted


def test_a_shared_array_that_is_static_by_name():
    assert rewritten("static __shared__ int a;") == " __shared__ int a;"
    assert rewritten("static __device__ __shared__ int a;") == " __device__ __shared__ int a;"
    assert rewritten("__shared__ static int a;") == "__shared__  int a;"
    assert rewritten("static int b; __shared__ int a;") == "static int b; __shared__ int a;"


MISSING = "p.cu:3:10: fatal error: {}: No such file or directory\n"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "p.cu:4:2: error: too few arguments to function 'simt::Launching simt_launch(const char*, dim3, dim3)'\n",
            "a launch takes <<<grid, block, shared memory, stream>>>, the last two if wanted (p.cu, line 4)",
        ),
        (MISSING.format("cudnn.h"), "cuDNN is not emulated (p.cu, line 3, includes cudnn.h)"),
        (
            MISSING.format("torch/extension.h"),
            "PyTorch's C++ API is not emulated (p.cu, line 3, includes torch/extension.h)",
        ),
        (MISSING.format("own.h"), "the header own.h is neither emulated nor found (p.cu, line 3)"),
        ("p.cu:7:3: error: 'cublasSgemm' was not declared in this scope", "cublasSgemm is not emulated (p.cu, line 7)"),
        ("p.cu:7:1: error: 'texture' does not name a type", "texture references are not emulated"),
        ("p.cu:7:1: error: 'custom' was not declared in this scope", "p.cu, line 7: g++ says: 'custom' was"),
        ("p.cu:9: undefined reference to `mine()'\np.cu:8: undefined reference to `cuInit'", "cuInit is not emulated"),
        (
            "p.cu:7:3: error: 'memcpy_async_tx' is not a member of 'cuda::device'",
            "cuda::device::memcpy_async_tx is not emulated (p.cu, line 7)",
        ),
        (
            "p.cu:7:3: error: 'BlockHistogram' in namespace 'cub' does not name a template type",
            "cub::BlockHistogram is not emulated (p.cu, line 7)",
        ),
        (
            "p.cu:7:3: error: 'cub::DeviceHistogram' has not been declared",
            "cub::DeviceHistogram is not emulated (p.cu, line 7)",
        ),
        ("p.cu:7:3: error: 'f' is not a member of 'mine'", "p.cu, line 7: g++ says: 'f' is not a member of 'mine'"),
        (
            "ld: a.o: in function `main':\n/x/q.cu:1: multiple definition of `main'; b.o:/x/p.cu:1: first defined here",
            "main is defined twice (q.cu, line 1)",
        ),
        ("p.cu:9: undefined reference to `cuda_mine()'", "cuda_mine is defined nowhere (p.cu, line 9)"),
    ],
)
def test_what_is_not_emulated_is_named(said, sentence):
    assert sentence_of(said, {"p.cu"}).startswith(sentence)


def test_files_without_a_main_function(tmp_path):
    kernels = tmp_path / "k.cu"
    kernels.write_text("#include <curand.h>\nvoid mine(int);\n__global__ void k() {}\nvoid f() { mine(1); }\n")
    check_sources(Request((kernels,)))
    kernels.write_text("#include <cuda.h>\nvoid mine(int);\nvoid f() {\n  mine(cuInit(0));\n}\n")
    with pytest.raises(UsageError, match=r"^cuInit is not emulated \(k.cu, line 4\)"):
        check_sources(Request((kernels,)))


def test_a_file_that_takes_too_long(tmp_path):
    (tmp_path / "k.cu").write_text("int main() {}\n")
    with pytest.raises(UsageError, match=r"^g\+\+ could not compile k.cu: g\+\+ was given up after 0.001 s$"):
        compile_program(Request((tmp_path / "k.cu",), seconds=0.001))
