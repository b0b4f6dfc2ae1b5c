"""Launches of kernels in the forms that nvcc takes, and macros that are called as anything."""

from string import ascii_letters

import pytest
from _programs import compiled, ran

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

FORMS = r"""#include <algorithm>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <tuple>
using namespace std;
#define GLOBAL __global__ void
#define KERNEL(name) extern "C" __global__ void name
#define DEFINE(name, T, op) __global__ void name(T* o, T v) { o[0] = o[0] op v; }
#define LAUNCH(kern, ...) kern<<<1, 1>>>(__VA_ARGS__)
#define FURTHER , int more
#define CONFIGURED(grid, block) <<<grid, block>>>
#define CONFIGURED_BY(...) <<<__VA_ARGS__, \
                               0>>>
#define ONCE(kind) of_ ## kind<<<1, 1>>>
#define PASTED(T, ...) of_##T<<<1, 1>>>(__VA_ARGS__)
#define PASTED_OF(T, U, ...) n::scaled##U<T><<<1, 1>>>(__VA_ARGS__)
#define NAME(x) name_##x
struct Three { int a, b, c; };
struct Bits { unsigned a : 3, b : 5; };
struct Constant { static const int width = 4; };
enum class E { one = 1, two };
struct alignas(64) Wide { int v[16]; };
struct Meters { float v; operator float() const { return v; } };
template <class T> struct Buffer {
  T* p = nullptr;
  explicit Buffer(size_t n) { cudaMalloc(&p, n * sizeof(T)); }
  ~Buffer() { cudaFree(p); }
  Buffer(const Buffer&) = delete;
  operator T*() { return p; }
};
DEFINE(adds, int, +)
DEFINE(adds, float, +)
GLOBAL plain(int* o, const float* w, float f = 2.5f, long long l = 7) { o[0] = (w ? 1 : 2) + (int)f + (int)l; }
GLOBAL plain(float* o, Three v) { o[0] = v.a + v.b + v.c; }
KERNEL(of_c)(int* o, int) { o[0] = 11; }
GLOBAL NAME(x)(int* o FURTHER) { o[0] = more; }
GLOBAL nothing(void) {}
GLOBAL with_function(int* o, int (*f)(int), int a[], const int n) { o[0] = n + (f != nullptr) + a[0] * 0; }
GLOBAL chosen(int* o
#ifdef NEVER
  , int a
#else
  , float b
#endif
) {
#ifdef NEVER
  if (a) {
#else
  if (b > 0) {
#endif
    o[0] = 3;
  }
}
template <class T, int N = 3> GLOBAL of_type(T* o, T v, int n = 1) { o[0] = v * N + n; }
template <> GLOBAL of_type<double, 3>(double* o, double v, int) { o[0] = -v; }
template <class T> GLOBAL of_type(T* o) { o[0] = 5; }
template <class... A> GLOBAL of_many(int* o, A... a) { o[0] = (0 + ... + static_cast<int>(a)); }
template <class F, class... A> GLOBAL call(F f, A... a) { f(a...); }
template <template <class> class C, class T> GLOBAL of_template(C<T> c, T* o) { o[0] = *c.p + 1; }
template <class T> struct Pointer { T* p; };
namespace n {
namespace { GLOBAL hidden(int* o, Three v) { o[0] = v.c; } }
template <class T> GLOBAL scaled(T* o, T f) { o[0] = 2 * f; }
struct S {
  static GLOBAL member(int* o, E e);
  template <class T> static GLOBAL inside(int* o, T v) { o[0] = sizeof(v); }
  void launch(int* o) { this->inside<double><<<1, 1>>>(o, 4); }
};
GLOBAL S::member(int* o, E e) { o[0] = static_cast<int>(e); }
}
// std has functions that take the same
GLOBAL fill(int* o, int* end, long n) { o[0] = 40 + n; }
template <class T> GLOBAL copy(T* o, T* end, T* to) { o[0] = 60; }
GLOBAL wide(int* o, Wide w) {
  o[threadIdx.x] = w.v[15] + (reinterpret_cast<size_t>(&w) % 64 == 0);
  w.v[15] = 99;  // its own
}
GLOBAL qualified(int* __restrict__ o, volatile int* v, const int* const c) { o[0] = *v + *c; o = nullptr; }
__global__ auto trailing(int* o) -> void { goto end; end: o[0] = 76 + (__func__[0] == 't'); return; }
GLOBAL later(int* o, float v = 1.5f);
GLOBAL later(int* o, float v) { o[0] = 2 * v; }
template <class K, class... A> void launched(K kernel, A... a) { kernel<<<dim3(1), 1, 0, nullptr>>>(a...); }
template <int V> GLOBAL of_value(int* o) { o[0] = V; }
template <int> auto picked() { return later; }
void returned(int* o, bool is) { return (is ? of_value<1> : of_value<2>)<<<1, 1>>>(o); }
template <void (*K)(int*, float)> void by_value(int* o) { K<<<1, 1>>>(o, 4); }
template <class S> void dependent(int* o) { S::template inside<char><<<1, 1>>>(o, 'a'); }

int evaluated;
template <class T> void is(T* out, double wanted, int line) {
  T seen;
  cudaMemcpy(&seen, out, sizeof seen, cudaMemcpyDeviceToHost), cudaMemset(out, 0, sizeof seen);
  if (seen != wanted) printf("line %d: %g\n", line, double(seen));
}
#define IS(wanted, ...) (__VA_ARGS__, is(o, wanted, __LINE__))
int main() {
  int *o, one = 1, two = 2;
  cudaMalloc(&o, 256), cudaMemset(o, 0, 256);
  auto* real = reinterpret_cast<float*>(o);
  Bits bits{5, 6};
  IS(11, plain<<<1, 1>>>(o, NULL));
  IS(12, plain<<<1, 1>>>(o, 0, 3));
  IS(103, plain<<<1, 1>>>(o, nullptr, Meters{4.f}, 'a'));
  plain<<<1, 1>>>(real, {1, two, 3}), is(real, 6, __LINE__);
  adds<<<1, 1>>>(real, 1), is(real, 1, __LINE__);
  IS(2, adds<<<1, 1>>>(o, 2.9));
  IS(6, adds<<<1, 1>>>(o, bits.b));
  IS(4, adds<<<1, 1>>>(o, Constant::width));
  IS(11, of_c<<<1, 1>>>(o, 4));
  IS(5, NAME(x)<<<1, 1>>>(o, 5));
  IS(0, nothing<<<1, 1>>>());
  IS(22, with_function<<<1, 1>>>(o, +[](int x) { return x; }, o + 1, 21));
  IS(3, chosen<<<1, 1>>>(o, 1));
  IS(16, of_type<<<1, 1>>>(o, 5));
  IS(51, (of_type<int, 10><<<1, 1>>>(o, 5.9, true)));
  IS(292, of_type<int><<<1, 1>>>(o, 'a'));
  IS(5, of_type<<<1, 1>>>(o));
  IS(0, of_many<<<1, 1>>>(o));
  IS(107, of_many<<<1, 1>>>(o, 1, 2.5, 'a', E::two, bits.a));
  IS(9, call<<<1, 1>>>([] __device__(int* p, int v) { *p = v; }, o, 9));
  IS(10, call<<<1, 1>>>([=] __device__(auto v) { *o = v; }, 10));
  IS(1, of_template<<<1, 1>>>(Pointer<int>{o}, o));
  IS(9, n::hidden<<<1, 1>>>(o, {7, 8, 9}));
  IS(12, n::scaled<int><<<1, 1>>>(o, 6.6));
  IS(2, n::S::member<<<1, 1>>>(o, E::two));
  IS(8, n::S().launch(o));
  IS(1, dependent<n::S>(o));
  IS(42, fill<<<1, 1>>>(o, o + 1, 2));
  IS(60, copy<<<1, 1>>>(o, o, o));
  Wide w{};
  w.v[15] = 30;
  IS(31, wide<<<1, 2>>>(o, w)), is(o + 1, 31, __LINE__);
  IS(0, qualified<<<1, 1>>>(o, o, o));
  IS(77, trailing<<<1, 1>>>(o));
  IS(3, later<<<1, 1>>>(o));
  IS(8, by_value<later>(o));
  void (*f)(int*, float) = later, (*all[])(int*, float) = {later, chosen};
  IS(6, f<<<1, 1>>>(o, 3));
  IS(3, all[1]<<<1, 1>>>(o, 3));
  IS(12, (evaluated ? f : all[0])<<<1, 1>>>(o, 6));
  IS(10, launched(later, o, 5));
  IS(25, LAUNCH(of_type, o, 8));
  IS(4, of_type<<<1, 1>>>(o, ++evaluated));
  IS(4, of_type<<<{1, 1}, {1}>>>(o, evaluated));
  IS(11, PASTED(c, o, 4));
  IS(12, PASTED_OF(int, , o, 6));
  IS(22, of_type CONFIGURED(1, dim3(1, 1))(o, 7));
  IS(25, of_type CONFIGURED_BY(1, 1)(o, 8));
  IS(28, ONCE(type)(o, 9));
  constexpr int low = 2, high = 3;
  IS(8, of_value<1 << 3><<<1, 1>>>(o));
  IS(1, of_value<2 < 3><<<1, 1>>>(o));
  IS(1, of_value<low < high><<<1, 1>>>(o));
  IS(0, of_value<low >= high><<<1, 1>>>(o));
  IS(1, of_value<sizeof(int) <= 4><<<1, 1>>>(o));
  IS(5, low < high ? of_value<5><<<1, 1>>>(o) : of_value<6><<<1, 1>>>(o));
  IS(8, get<0>(make_tuple(&later))<<<1, 1>>>(o, 4));
  IS(10, picked<0>()<<<1, 1>>>(o, 5));
  IS(3, static_cast<void (*)(int*, float)>(chosen)<<<1, 1>>>(o, 6));
  if (low < high) (low < 2 ? all[1] : f)<<<1, 1>>>(o, 7), is(o, 14, __LINE__);
  IS(1, returned(o, true));
  if (!evaluated) of_type<<<1, 1>>>(o, 70);
  else IS(214, evaluated ? of_type<<<1, 1>>>(o, 71) : of_type<<<1, 1>>>(o, 80));
  int* p;
  cudaMallocManaged(&p, 4);
  IS(13, of_type<<<1, 1>>>(o, (later<<<1, 1>>>(p, 2), cudaDeviceSynchronize(), *p)));
  cudaFree(p);
  try { of_type<<<1, 1>>>(o, [&]() -> int { throw runtime_error(""); }()); } catch (runtime_error&) {}
  Buffer<int> b(1);
  later<<<1, 1>>>(b, 1), is(b.p, 2, __LINE__);
  of_many<<<1, 1>>>(b, 1), is(b.p, 1, __LINE__);
  later<<<1, 1>>>(Buffer<int>(2), 3);
  void* arguments[] = {&o, &one, &two};
  IS(5, cudaLaunchKernel((void*)of_type<int, 3>, 1, 1, arguments));
  cudaFree(o);
}
"""


def test_a_launch_is_a_call_with_the_kernels_parameters(tmp_path):
    found, printed = ran(compiled(tmp_path, FORMS), tmp_path)
    assert printed == ""
    assert ([f.message for f in found.findings], found.exit_code, found.launches) == ([], 0, 64)


def test_a_kernel_is_not_called_as_a_function(tmp_path):
    text = "__global__ void k(int* x) { *x = 1; }\nint main() { int x; k(&x); }"
    with pytest.raises(UsageError, match=r"^a kernel is called as a function, without <<< >>> \(p.cu, line 2\)$"):
        ran(compiled(tmp_path, text), tmp_path)


MACROS = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <curand_kernel.h>
#include <mma.h>
__global__ void kernel(float* data, int count) {
  __shared__ float held[64];
  extern __shared__ float dynamic[];
  int at = threadIdx.x;
  held[at] = dynamic[at] = __shfl_down_sync(~0u, 1.f, 1) + atomicAdd(data + count, 1.f);
  __syncthreads();
  assert(count > 0);
  data[at] = held[at ^ 1] + dynamic[at ^ 1] + fmaxf(count, __half2float(__float2half(2.f)));
  cooperative_groups::this_thread_block().sync();
}
int main() {
  float* data;
  cudaMalloc(&data, 4096), cudaMemset(data, 0, 4096);
  kernel<<<1, 64, 256>>>(data, 64);
  cudaFree(data);
  return M + N - 8;
}
"""
NAMES = """tid bid idx lane warp rows cols width height NUM THREADS BLOCKS WARP MAX MIN SIZE DIM LEN WIDTH HEIGHT ROWS
COLS TILE TILE_SIZE BLOCK_SIZE WARP_SIZE"""


def test_macros_of_the_command_line_are_the_programs_own(tmp_path):
    letters = [f"{name}=4" for name in ascii_letters if name != "x"]  # threadIdx.x
    defines = (*letters, *(f"{name}=4" for name in NAMES.split()), "LAUNCH(k)=k")
    found, _ = ran(compiled(tmp_path, MACROS, defines), tmp_path)
    assert (found.findings, found.exit_code) == ((), 0)
