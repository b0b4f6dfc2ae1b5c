"""Parameters of a kernel are copied by the host, and threads have their bytes; undefined results and copies."""

import pytest
from _programs import seen

from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
PROGRAM = """#include <cstdio>
#include <cstdlib>
#include <memory>
#include <cub/cub.cuh>

int copies, deaths;
struct Counted {
  int value;
  explicit Counted(int v) : value(v) {}
  Counted(const Counted& other) : value(other.value) { ++copies; }
  ~Counted() { ++deaths; }
};
struct Held { std::shared_ptr<int> kept; int* at; };
struct alignas(32) Wide { int n; };

__global__ void counted(Counted c, int* out) { out[threadIdx.x] = c.value++; }
__global__ void unnamed(Counted c, int* out, int) { out[threadIdx.x] += c.value; }
__global__ void held(Held h) { if (!threadIdx.x) *h.at = 99; }
__global__ void wide(Wide* w) { w[threadIdx.x].n = 1; }
__global__ void partly(float* f) { if (threadIdx.x < 30) f[threadIdx.x] = 1; }
__global__ void highest(const int* in, int* out) {
  using Reduce = cub::BlockReduce<int, 64>;
  __shared__ typename Reduce::TempStorage room;
  int m = Reduce(room).Reduce(in[threadIdx.x], [](int a, int b) { return a > b ? a : b; });  // undefined
  out[threadIdx.x] = in[threadIdx.x] == m;
}

int main() {
  int *out, *in, host[64];
  cudaMalloc(&out, sizeof host);
  cudaMalloc(&in, sizeof host);
  Counted c(7);
  counted<<<1, 32>>>(c, out);
  printf("%d %d", copies, deaths);
  unnamed<<<1, 32>>>(c, out, 1);
  cudaMemcpy(host, out, 32 * sizeof(int), cudaMemcpyDeviceToHost);
  printf(" %d", host[31]);
  Held h{std::make_shared<int>(3), out};
  held<<<1, 32>>>(h);
  cudaMemcpy(host, out, 4, cudaMemcpyDeviceToHost);
  printf(" %d %ld\\n", host[0], h.kept.use_count());
  Wide* w;
  Wide wides[8];
  cudaMalloc(&w, sizeof wides);
  wide<<<1, 8>>>(w);
  cudaMemcpy(wides, w, sizeof wides, cudaMemcpyDeviceToHost);  // gaps
  float *f, floats[32];
  cudaMalloc(&f, sizeof floats);
  partly<<<1, 32>>>(f);
  cudaMemcpy(floats, f, sizeof floats, cudaMemcpyDeviceToHost);  // undefined floats
  for (int i = 0; i < 64; ++i) host[i] = i == 40 ? 9 : i % 7;
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  highest<<<1, 64>>>(in, out);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
  for (void* p : {(void*)out, (void*)in, (void*)w, (void*)f}) cudaFree(p);
}
"""


def test_parameters_are_bytes_and_undefined_results_and_copies_are_told(tmp_path):
    folder = tmp_path / "with a space"
    folder.mkdir()
    found, told, printed = seen(folder, PROGRAM)
    assert printed == "1 1 14 99 1\n"
    assert found == {("undefined-result", "undefined"), ("copied-undefined", "undefined floats")}
    assert ("copied-undefined", "gaps", True) in told
