"""Whole CUDA programs in the emulator: how their text is rewritten, what they print, what is found."""

import subprocess
import time
from pathlib import Path

import pytest
from _programs import ran

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.child import command_of
from kernel_assay.kernels.backends.simt.program.compile import Request, compile_program, sentence_of
from kernel_assay.kernels.backends.simt.program.findings import merged
from kernel_assay.kernels.backends.simt.program.syntax import known_of, rewrite_launches, variables
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.programs.run import Settings, run_program

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def compiled(folder, *texts, **how):
    files = [folder / f"p{number}.cu" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return compile_program(Request(tuple(files), **how))


def run(folder, *texts, **how):
    return ran(compiled(folder, *texts), folder, "p0.cu", **how)


def kinds(found):
    return [(f.kind, f.place.line if f.place else 0) for f in found.findings if not f.harmless]


BODY = "__global__ void k({}) {{{} ::simt_kernel({} -> void {{{} }}{}); }}"
DEFINED = "#define AT_MOST(n) __launch_bounds__(2 * n)\n#define KERNEL __global__ void\n"
MEANT = ("__global__ void", "KERNEL AT_MOST(32)")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("k<<<g, b>>>(x);", "(::simt_launch(SIMT_NAME(k), g, b), k(x), ::simt_run());"),
        (
            "a::k<<<f(g, n >> 2), b>>>\n(x);",
            "(::simt_launch(SIMT_NAME(a::k), f(g, n >> 2), b), a::k\n(x), ::simt_run());",
        ),
        ("if (x) q<<<1,\n2>>>(f(y));", "if (x) (::simt_launch(SIMT_NAME(q), 1,\n2), q(f(y)), ::simt_run());"),
        (
            "t<A<B<int>>, (3 > 2)><<<1, 2>>>();",
            "(::simt_launch(SIMT_NAME(t<A<B<int>>, (3 > 2)>), 1, 2), t<A<B<int>>, (3 > 2)>(), ::simt_run());",
        ),
        ("this->f[2]<<<1, 2>>>();", "(::simt_launch(SIMT_NAME(this->f[2]), 1, 2), this->f[2](), ::simt_run());"),
        ('puts("k<<<1, 2>>>(x)"); // k<<<1, 2>>>(x)', 'puts("k<<<1, 2>>>(x)"); // k<<<1, 2>>>(x)'),
        ("x = a <<< b;", "x = a <<< b;"),
        ("cudaLaunchKernel((const void*)k, g);", "cudaLaunchKernel(k, g);"),
        ("__global__ void k(int);", "__global__ void k(int);"),
        (
            "__global__ void k(const T* x, int (*)[2]) { }",
            BODY.format("const T* x, int (*)[2]", " if (::simt_is_asked()) return;", "[=]() mutable", "", ""),
        ),
        (
            "template <class... A> __global__ void k(const T*\nx, A... a) { x; }",
            "template <class... A> "
            + BODY.format("const T*\nx, A... a", "", "[](const T* x, A... a)", " x;", ", x, a..."),
        ),
        (
            f"{DEFINED}KERNEL AT_MOST(32) k() {{ }}",
            DEFINED + BODY.format("", " ::simt::launch_bounds(2 * 32);", "[]()", "", "").replace(*MEANT),
        ),
    ],
)
def test_launches_become_calls(text, wanted):
    assert rewrite_launches(text, known_of([text])) == wanted


def test_kernels_that_std_may_have_a_function_beside():
    text = """
    __global__ void __launch_bounds__(128) one(int* x, int);
    namespace n { static __global__ void inner() {} }
    """
    known = known_of([text, "using namespace std;"])
    assert known.outer == {"one"}
    assert (
        rewrite_launches("one<<<1, 2>>>(x);", known) == "(::simt_launch(SIMT_NAME(one), 1, 2), ::one(x), ::simt_run());"
    )
    assert not known_of([text]).outer


def test_variables_of_the_device():
    text = """
    #define ON_DEVICE static __device__
    ON_DEVICE int z;
    __device__ int a, b[4] = {1, 2}; __constant__ float c[2][2];
    __device__ __managed__ unsigned long long m;
    static __device__ __constant__ const float3 v = {1, 2, 3};
    __device__ __align__(16) std::pair<int, int> p;
    __device__ int f(int x) { return x; }
    template <class T> __host__ __device__ T operator+(T a, T b);
    """
    found = [(v.name, v.kind) for v in variables(text)]
    names = [
        ("z", "variable"),
        ("a", "variable"),
        ("b", "variable"),
        ("c", "constant"),
        ("m", "managed"),
        ("v", "constant"),
    ]
    assert found == [*names, ("p", "variable")]


PROGRAM = """#include <cstdio>
__device__ int counter;
template <class T>
__global__ void fill(T* x, int n) {
  if (threadIdx.x <= n) x[threadIdx.x] = T(threadIdx.x);
}
__global__ void count(int* x) { counter += x[threadIdx.x]; }
int main(int argc, char** argv) {
  int *x, seen;
  cudaMalloc(&x, 40 * sizeof(int));
  fill<<<1,
         64>>>(x, 40);
  count<<<1, 32>>>(x);
  cudaMemcpyFromSymbol(&seen, counter, sizeof seen);
  printf("%d %s\\n", seen, argc > 1 ? argv[1] : "");
  return 7;
}
"""


def test_it_goes_on_and_tells_of_all(tmp_path):
    found, out = run(tmp_path, PROGRAM, arguments=("more",))
    assert kinds(found) == [("out-of-bounds", 5), ("race", 7), ("leak", 10)]
    assert found.findings[0].message == ("thread 40 of block 0 writes x[40] (p0.cu, line 5), but it has 40 elements")
    assert found.findings[1].memory == "counter"
    assert (found.findings[0].kernel, found.findings[0].launch.line) == ("fill", 11)
    assert (found.exit_code, out.split()[1]) == (7, "more")


def test_orders_are_counted_together_and_name_a_seed(tmp_path):
    found, _ = run(tmp_path, PROGRAM, orders=3, seed=4)
    assert {(f.order, f.seed) for f in found.findings if not f.harmless} == {("rotate", 4)}
    assert next(f.count for f in found.findings if f.kind == "leak") == 3
    assert merged(found.findings) == found.findings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "int main() {\n cudaGraph_t g;\n cudaGraphCreate(&g, 0);\n}",
            "cudaGraphCreate is not emulated (p0.cu, line 3)",
        ),
        (
            "#include <cudnn.h>\nint main() {}",
            "cuDNN is not emulated (p0.cu, line 1, includes cudnn.h)",
        ),
        (
            "__global__ void __cluster_dims__(2, 1, 1) k() {}\nint main() {}",
            "__cluster_dims__ is not emulated (p0.cu, line 1)",
        ),
        (
            "__global__ void k() {}\nint main() {\n cudaLaunchConfig_t c = {};\n cudaLaunchKernelEx(&c, k);\n}",
            "cudaLaunchKernelEx is not emulated (p0.cu, line 4)",
        ),
        ("__global__ void k() {}", "no file has a main function"),
        ("int main() { return x; }", "p0.cu, line 1: g++ says: 'x' was not declared in this scope"),
    ],
)
def test_what_cannot_be_compiled_is_a_sentence(tmp_path, text, said):
    with pytest.raises(UsageError) as error:
        compiled(tmp_path, text)
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("'surf2Dwrite' was not declared in this scope", "surf2Dwrite"),
        ("'tex2DLayered' was not declared in this scope", "tex2DLayered"),
        ("'curand_poisson' was not declared in this scope; did you mean 'curand_normal'?", "curand_poisson"),
        ("'cluster_group' is not a member of 'cg'; did you mean 'coalesced_group'?", "cg::cluster_group"),
        ("'this_cluster' was not declared in this scope", "this_cluster"),
        ("'__isConstant' was not declared in this scope", "__isConstant"),
    ],
)
def test_what_kernels_have_elsewhere_is_named(words, name):
    assert sentence_of(f"/x/p.cu:3:5: error: {words}\n", {"p.cu"}) == f"{name} is not emulated (p.cu, line 3)"


def test_a_kernel_that_launches_another_is_refused(tmp_path):
    text = "__global__ void a() {}\n__global__ void b() { a<<<1, 1>>>(); }\nint main() { b<<<1, 1>>>(); }"
    with pytest.raises(UsageError, match=r"dynamic parallelism.*\(p0.cu, line 2\)"):
        run(tmp_path, text)


def test_ptx_runs_in_programs_and_what_is_not_emulated_of_it_is_a_sentence(tmp_path):
    text = """__global__ void k(int* x) {
  asm volatile("st.global.u32 [%0], %1;" :: "l"(x + threadIdx.x), "r"(1));
  if (blockIdx.x) asm volatile("tcgen05.wait::ld.sync.aligned;");
}
int main() { int* x; cudaMalloc(&x, 4); k<<<1, 2>>>(x); cudaDeviceSynchronize(); cudaFree(x); }
"""
    assert kinds(run(tmp_path, text)[0]) == [("out-of-bounds", 2)]
    wanted = r"^the PTX instruction tcgen05\.wait::ld\.sync\.aligned is not emulated \(p0\.cu, line 3\)$"
    with pytest.raises(UsageError, match=wanted):
        run(tmp_path, text.replace("<<<1,", "<<<2,"))


LOOP = """__global__ void k(volatile int* x) { while (!*x); }
int main() {
  int* x; cudaMalloc(&x, 4); cudaMemset(x, 0, 4);
  k<<<1, 1>>>(x);
  return cudaDeviceSynchronize();
}
"""


def test_a_kernel_that_never_ends(tmp_path):
    found, _ = run(tmp_path, LOOP, timeout=1.0)
    assert found.exit_code is None
    assert found.findings[0].message == "it did not end in 1 s and was in kernel k (p0.cu, line 4)"
    assert kinds(found) == [("timeout", 4)]


def test_a_program_ends_with_the_process_that_started_it(tmp_path):
    compiled(tmp_path, LOOP)
    parent = subprocess.Popen(
        [*command_of("fuzz.__main__"), "emulate", str(tmp_path / "p0.cu")], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 30
    while not (mine := _running("p0", str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    while (left := [pid for pid in mine if Path(f"/proc/{pid}/cmdline").exists()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (bool(mine), left) == (True, [])


def _running(name, folder):
    """Processes that are called like a program, and run where this test does."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[0] == name.encode() and (entry / "cwd").readlink() == Path.cwd():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_numbers_of_curand(tmp_path):
    text = """#include <cstdio>
    #include <curand_kernel.h>
    __global__ void k() {
      uint4 a = curand_Philox4x32_10(make_uint4(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
                                     make_uint2(0xa4093822, 0x299f31d0));
      printf("%08x %08x %08x %08x\\n", a.x, a.y, a.z, a.w);
      curandStatePhilox4_32_10_t p, q;
      curandState x, y, z;
      curand_init(9, 1, 6, &p), curand_init(9, 1, 0, &q);
      for (int i = 0; i < 6; ++i) curand(&q);
      curand_init(9, 2, 1000, &x), curand_init(9, 2, 0, &y), curand_init(9, 3, 0, &z);
      for (int i = 0; i < 1000; ++i) curand(&y);
      unsigned of_p = curand(&p), of_x = curand(&x);
      printf("%d %d %d\\n", of_p == curand(&q), of_x == curand(&y), of_x == curand(&z));
      printf("%.14f %.14f %.12f %.14f\\n", normcdfinv(0.975), erfinv(-0.5), erfcinv(1e-10), erfinv(1e-6) * 1e6);
    }
    int main() { k<<<1, 1>>>(); return cudaDeviceSynchronize(); }
    """
    found, out = run(tmp_path, text)
    # The first line is the third vector of Philox's authors (Random123, kat_vectors).
    # Those of normcdfinv and erfinv are Python's NormalDist().inv_cdf.
    inverse = "1.95996398454005 -0.47693627620447 4.572824967389 0.88622692545299\n"
    assert (out, kinds(found)) == (f"d16cfe09 94fdcceb 5001e420 24126ea1\n1 1 0\n{inverse}", [])


COOPERATIVE = r"""#include <cooperative_groups.h>
#include <cstdio>
__global__ void k(int* all, int* seen) {
  atomicAdd(all, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) seen[blockIdx.x] = *all;
}
int main() {
  int processors, each, *all, *seen, last;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, k, 256, 0);
  int blocks = processors * each;
  cudaMalloc(&all, 4), cudaMemset(all, 0, 4), cudaMalloc(&seen, 4 * blocks);
  void* with[] = {&all, &seen};
  cudaLaunchCooperativeKernel(k, blocks, 256, with);
  cudaMemcpy(&last, seen + blocks - 1, 4, cudaMemcpyDeviceToHost);
  printf("%d %d\n", last == 256 * blocks, cudaLaunchCooperativeKernel(k, blocks + 1, 256, with) != cudaSuccess);
  cudaFree(all), cudaFree(seen);
}
"""


def test_as_many_blocks_as_the_device_says_meet(tmp_path):
    found, out = run(tmp_path, COOPERATIVE)
    assert (out, kinds(found)) == ("1 1\n", [("api-error", 17)])


def test_a_source_with_a_long_name(tmp_path):
    file = tmp_path / f"{'é' * 64}.cu"
    file.write_text(
        "__global__ void k(int* a) { a[9] = 1; }\nint main() { int* a; cudaMalloc(&a, 4);\nk<<<1, 1>>>(a); }"
    )
    found = run_program(compile_program(Request((file,))), Settings(), [str(file)])
    first = found.findings[0]
    assert [(p.file, p.line) for p in (first.place, first.launch)] == [(str(file), 1), (str(file), 3)]


def test_what_lies_beside_a_program_is_written_once(tmp_path):
    text = "__device__ int n;\n__global__ void k() { n = 1; }\nint main() { k<<<1, 1>>>(); return 0; }\n"
    first = compiled(tmp_path, text)
    before = first.symbols.stat()
    assert " n\n" in first.symbols.read_text()
    again = compiled(tmp_path, text)
    after = again.symbols.stat()
    assert again.symbols == first.symbols
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_files_are_linked_and_headers_rewritten(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "part.cuh").write_text(
        "#pragma once\n__global__ static void k(int* x, int v) { *x = v; }\n"
        "inline void start(int* x, int v) { k<<<1, 1>>>(x, v); }\nint other(int* x);\n"
    )
    main = "#include <part.cuh>\n#include <cstdio>\nint main() { int* x; cudaMalloc(&x, 4); start(x, VALUE);\n"
    main += 'printf("%d\\n", other(x)); cudaFree(x); }'
    other = (
        '#include "own/part.cuh"\nint other(int* x) { int v; cudaMemcpy(&v, x, 4, cudaMemcpyDeviceToHost); return v; }'
    )
    program = compiled(tmp_path, main, other, includes=(tmp_path / "own",), defines=("VALUE=5",))
    found, printed = ran(program, tmp_path, "p0.cu")
    assert (printed, kinds(found)) == ("5\n", [])


NAMES = """#define CHECK(x) if (x) return 1
__global__ void heap(int* x, int n) {
  int* mine = (int*)malloc(12); int* other = new int[4]{};
  mine[n] = 0;
  x[3 * n] = other[n + 1];
  free(mine);
  delete[] other;
}
__global__ void bytes(int* x) { x[2] = 1; }
int main() {
  int *d, *r, *odd, n = 3;
  CHECK(cudaMalloc(&d, 40)); CHECK(cudaMalloc(&r, 36));
  cudaMalloc(&odd, 10);
  heap<<<1, 1>>>(r, n);
  void* arguments[] = {&odd};
  cudaLaunchKernel((void*)bytes, 1, 1, arguments, 0, 0);
  cudaFree(odd);
}
"""


def test_names_of_several_allocations_in_a_line_and_of_the_heap(tmp_path):
    found, _ = run(tmp_path, NAMES)
    assert [(f.kind, f.memory, f.message.partition(" of block 0 ")[2].partition(" (")[0]) for f in found.findings] == [
        ("out-of-bounds", "mine", "writes mine[3]"),
        ("out-of-bounds", "other", "reads other[4]"),
        ("out-of-bounds", "r", "writes r[9]"),
        ("out-of-bounds", "odd", "writes 4 bytes at byte 8 of odd"),
        ("leak", "d", ""),
        ("leak", "r", ""),
    ]
    assert [f.kernel for f in found.findings[2:4]] == ["heap", "bytes"]


ENDINGS = {
    "assert": ("#include <cassert>\nint main(int n, char**) {\n  assert(n == 5);\n}", -6, 3),
    "throw": ("int main() { throw 1; }", -6, None),
    "overflow": (
        "int f(int n) { volatile int x = n; return n ? f(n + 1) + x : 0; }\nint main() { return f(1); }",
        -11,
        None,
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_that_a_signal_ends_is_a_finding(tmp_path, ending):
    text, code, line = ENDINGS[ending]
    found, _ = run(tmp_path, text)
    assert [f.kind for f in found.findings] == ["host-crash"]
    assert found.exit_code == code
    assert (found.findings[0].place and found.findings[0].place.line) == line


def test_work_for_a_stream_that_was_destroyed_is_refused(tmp_path):
    text = """__global__ void k() {}
int main() { int* x; cudaStream_t s; cudaMalloc(&x, 4), cudaStreamCreate(&s), cudaStreamDestroy(s);
  cudaMemsetAsync(x, 0, 4, s);
  k<<<1, 1, 0, s>>>();
  cudaFree(x); }
"""
    assert kinds(run(tmp_path, text)[0]) == [("api-error", 3), ("api-error", 4)]
