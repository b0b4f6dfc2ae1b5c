"""How kernels are built: once, by whoever comes first, from what they depend on; and where that cannot be."""

import json
import os
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from _simt import CHECK, FAST, Kernels, blank

from kernel_assay.kernels.backends.simt import emulator, toolchain
from kernel_assay.kernels.backends.simt.rewriting import rewritten
from kernel_assay.kernels.backends.simt.toolchain import BuildError, Built, Mode, build, cache_folder
from kernel_assay.kernels.backends.support.includes import included

pytestmark = pytest.mark.usefixtures("simt_cache")
ROOT = Path(toolchain.__file__).resolve().parents[2]
ADDS = """#include "part.cuh"
__global__ void k(float* out) { out[threadIdx.x] = threadIdx.x + STEP; }
__global__ void other(float* out) { out[threadIdx.x] = STEP; }
"""


@pytest.fixture
def runs(monkeypatch):
    """Commands that are run."""
    found, run = [], toolchain.run_tool
    monkeypatch.setattr(toolchain, "run_tool", lambda command, *rest: (found.append(command), run(command, *rest))[1])
    return found


def adding(folder, **how):
    kernels = Kernels(folder, ADDS)
    out = blank(4)
    assert kernels.run("k", block=4, **how, out=out).said == ""
    return out.tolist()


def test_what_was_built_is_not_built_again(tmp_path, runs, monkeypatch):
    (tmp_path / "part.cuh").write_text('#include "deeper/inner.cuh"\n')
    (tmp_path / "deeper").mkdir()
    inner = tmp_path / "deeper" / "inner.cuh"
    inner.write_text("#define STEP 1\n")
    assert adding(tmp_path) == [1, 2, 3, 4]
    assert runs
    runs.clear()
    assert adding(tmp_path) == [1, 2, 3, 4]
    assert runs == []
    inner.write_text("#define STEP 5\n")
    assert adding(tmp_path) == [5, 6, 7, 8]
    assert runs
    runs.clear()
    inner.write_text("#define STEP 1\n")
    assert adding(tmp_path) == [1, 2, 3, 4]
    assert runs == [], "the first one is still there"
    path = tmp_path / "kernels.cu"
    before = build(path, ["k", "other"], FAST)
    assert build(path, ["other", "k"], FAST) != before
    assert build(path, ["k", "other"], CHECK) != before
    monkeypatch.setitem(toolchain._FLAGS, FAST, (*toolchain._FLAGS[FAST], "-DMORE"))
    assert build(path, ["k", "other"], FAST) != before


def test_a_fault_names_the_file_even_if_another_one_has_the_same_text(tmp_path):
    """A library is shared by files that are the same, but not by files of another name; however deep they lie."""
    folder = tmp_path.joinpath(*("deep" * 20,) * 4)
    folder.mkdir(parents=True)
    text = "__global__ void k(int* out) {\n  if (threadIdx.x == 1) __trap();\n}\n"
    for name in ("first.cu", "second.cu"):
        kernels = Kernels(folder, text)
        kernels.path = kernels.path.rename(folder / name)
        kernels.program = emulator.Program(kernels.path, ["k"])
        assert kernels.run("k", out=blank(1)).said == f"__trap() by thread 1 of block 0 ({name}, line 2)"


BUILDS = """
import sys
import time
from itertools import pairwise
from pathlib import Path
from kernel_assay.kernels.backends.simt.emulator import Program
sys.stdin.read()
print(Program(Path(sys.argv[1]), ["k"]).fast.takes(0))
"""


def python(code, *words, home):
    env = {**os.environ, "XDG_CACHE_HOME": str(home)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], cwd=ROOT, env=env, **pipes)


def test_two_processes_may_build_at_once_and_the_folder_may_be_moved(tmp_path):
    (tmp_path / "kernel.cu").write_text("__global__ void k(float* out, int n) {}\n")
    both = [python(BUILDS, tmp_path / "kernel.cu", home=tmp_path / "home") for _ in range(2)]
    for process in both:
        process.stdin.close()
        process.stdin = None
    assert [process.communicate()[0] for process in both] == ["['pf4', 'vi4']\n"] * 2
    kept = [p for p in (tmp_path / "home" / "kernel-assay" / "cuda").iterdir() if p.suffix != ".lock"]
    left = [p.name.partition("-")[0] + p.suffix for p in kept]
    ours = {"headers", "simt.so", "ptx.o", "runtime.o"}
    assert ours <= set(left)
    assert left.count("headers") == left.count("simt.so") == 1
    assert sorted(Path(name).suffix for name in left if name not in ours) == [".json", ".so"]
    (tmp_path / "home").rename(tmp_path / "moved")
    moved = python(BUILDS, tmp_path / "kernel.cu", home=tmp_path / "moved")
    assert moved.communicate("")[0] == "['pf4', 'vi4']\n"


def test_many_libraries_in_one_process_share_their_stacks(tmp_path, monkeypatch):
    kernels = Kernels(
        tmp_path,
        "__global__ void k(float* out) {\n  __shared__ float s[1024];\n  s[threadIdx.x] = threadIdx.x;\n"
        "  __syncthreads();\n  out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];\n}\n",
    )
    once = build(kernels.path, kernels.entries, FAST)
    maps, programs = [], []
    for n in range(100):
        copy = shutil.copy(once.library, tmp_path / f"{n}.so")
        monkeypatch.setattr(emulator, "build", lambda *_, copy=copy: Built(Path(copy), once.shared))
        kernels.program = emulator.Program(kernels.path, kernels.entries)
        programs.append(kernels.program)
        out = blank(1024)
        assert kernels.run("k", block=1024, out=out).said == ""
        assert out.tolist() == [*range(1023, -1, -1)]
        maps.append(len(Path("/proc/self/maps").read_text().splitlines()))
    assert maps[-1] - maps[0] < 8 * 100, "of its own a library needs few; stacks with guards would be two thousand"


# ---- the text --------------------------------------------------------------------------------------------------------

DYNAMIC = (
    "extern __shared__ float s[];",
    "extern __shared__ float s [ ] ;",
    "extern __shared__ float s[0];",
    "extern __shared__ volatile float s[];",
    "extern volatile __shared__ float s[];",
    "extern __shared__ __align__(16) float s[];",
    "extern __align__(alignof(double)) __shared__ float s[];",
    "extern __shared__ float __align__(16) s[];",
    "extern __shared__ __attribute__((aligned(16))) float s[];",
    "__shared__ extern float\n    s[];",
    "extern __shared__ unsigned long long words[]; float* s = (float*)words;",
    "extern __shared__ std::pair<int, float> pairs[]; float* s = (float*)pairs;",
    "extern __shared__ const float* pointers[]; float* s = (float*)pointers;",
    "extern __shared__ struct Three threes[]; float* s = (float*)threes;",
    "extern __shared__ T s[];",
    "extern __shared__ float s[]; extern __shared__ int same[]; same[threadIdx.x] = 0;",
)


def test_dynamic_shared_memory_is_declared_in_many_ways(tmp_path):
    """Each line of the file stays where it was."""
    kernel = "template <class T>\n__global__ void k{}(float* out) {{\n  {}\n  {}\n}}\n"
    body = "s[threadIdx.x] = threadIdx.x; __syncthreads(); out[threadIdx.x] = s[3 - threadIdx.x];"
    text = "#include <utility>\nstruct Three { float v[3]; };\n" + "".join(
        kernel.format(n, line, body) for n, line in enumerate(DYNAMIC)
    )
    assert rewritten(text).count("\n") == text.count("\n")
    kernels = Kernels(tmp_path, text, *(f"k{n}<float>" for n in range(len(DYNAMIC))))
    for entry in kernels.entries:
        found = kernels.right(entry, block=4, shared=48, out=blank(4))
        assert found.tolist() == [3, 2, 1, 0], DYNAMIC[kernels.entries.index(entry)]


@pytest.mark.parametrize(
    "text",
    [
        "extern int s[4];",
        "__shared__ float s[32];",
        "extern __shared__ float s[], other[];",
        'extern "C" __global__ void k(float* s[]) { __shared__ int x; }',
        "static float s[] = {1, 2};",
    ],
)
def test_what_is_no_dynamic_shared_memory_stays_as_it_is(text):
    assert rewritten(text) == text


OUTER = """#pragma once
#include "inner/turn.cuh"
__device__ inline void put(float* out, int n) { out[threadIdx.x] = room()[n - 1 - threadIdx.x]; }
"""
INNER = """#pragma once
__device__ inline float* room() {
  extern __shared__ float tile[];
  return tile;
}
__device__ inline void take(const float* x) { room()[threadIdx.x] = x[threadIdx.x]; }
__device__ inline void spoil() { room()[threadIdx.x + 100] = 1.0f; }
"""


def test_dynamic_shared_memory_in_a_header_of_ones_own(tmp_path):
    (tmp_path / "kernel" / "inner").mkdir(parents=True)
    (tmp_path / "kernel" / "outer.cuh").write_text(OUTER)
    (tmp_path / "kernel" / "inner" / "turn.cuh").write_text(INNER)
    source = """#include "outer.cuh"
__global__ void turned(float* out, const float* x, int n) {
  take(x);
  __syncthreads();
  put(out, n);
}
__global__ void spoilt(float* out) { spoil(); }
"""
    kernels, x = Kernels(tmp_path / "kernel", source), np.arange(32, dtype=np.float32)
    found = kernels.right("turned", out=blank(32), x=x, n=32, shared=128)
    assert found.tolist() == x[::-1].tolist()
    assert "turn.cuh, line 7" in kernels.run("spoilt", out=blank(32), shared=128, mode=CHECK).said


def test_what_killed_processes_left_is_swept_up_in_time(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old, young = (cache_folder() / f"build-{age}" for age in ("old", "young"))
    for folder in (old, young):
        (folder / "made").mkdir(parents=True)
    os.utime(old, (0, 0))
    with toolchain.workplace() as place:
        assert sorted(p.name for p in cache_folder().iterdir()) == sorted(["build-young", Path(place).name])


def test_what_a_file_includes(tmp_path):
    (tmp_path / "a.cu").write_text('#include "b.cuh"\n#  include "sub/c.cuh"\n// #include "d.cuh"\n#include <e.cuh>\n')
    (tmp_path / "b.cuh").write_text('#include "sub/c.cuh"\n#include "a.cu"\n#include "absent.cuh"\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.cuh").write_text('#include "../d.cuh"\n')
    for name in ("d.cuh", "e.cuh"):
        (tmp_path / name).touch()
    found = {str(p.relative_to(tmp_path.resolve())) for p in included(tmp_path / "a.cu")}
    assert found == {"b.cuh", "sub/c.cuh", "d.cuh"}


SHARED = """__shared__ double common[2];
namespace mine {
__shared__ __half narrow[4];
}
template <class T>
__global__ void k(T* out) {
  __shared__ T s[8];
  common[1] = 2, mine::narrow[1] = T(1);
  s[0] = T(common[0]), s[1] = T(float(mine::narrow[0]));
  *out = s[threadIdx.x];
}
"""


def test_shared_arrays_have_their_names_and_functions(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_text(SHARED)
    built = build(path, ["k<float>", "k<__half>"], CHECK)
    named = {(a.owner, a.name, a.size) for a in built.shared if a.name}
    functions = {("k<float>(float*)", "s", 32), ("k<__half>(__half*)", "s", 16)}
    assert {(owner.removeprefix("void "), *rest) for owner, *rest in named} == {
        *functions,
        ("", "common", 16),
        ("mine", "narrow", 8),
    }
    ends = sorted((a.offset, a.offset + a.size) for a in built.shared if a.name)
    assert all(begin - end >= 128 for (_, end), (begin, _) in pairwise(ends))
    assert json.loads(built.library.with_suffix(".json").read_text())
    assert built.shared_bytes == 32, "of one kernel, and not of both"


def test_a_line_in_a_header_of_another_clone_is_none_of_the_users(monkeypatch, tmp_path):
    """What is built lies in one place for all clones, and names the files of the one that built it."""
    said = "/elsewhere/kernels/backends/simt/memory.h:8\n/home/you/mine.cu:13\n"
    monkeypatch.setattr(toolchain.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 0, said))
    assert toolchain.place_of(tmp_path / "a.so", 9, Path("/home/you/mine.cu")) == ("/home/you/mine.cu", 13)


# ---- where nothing can be built --------------------------------------------------------------------------------------


@pytest.fixture
def forgetful():
    """What was found out about the machine is found out anew, now and after the test."""
    remembered = (toolchain.missing, toolchain.cuda_headers, toolchain.compiler, toolchain._tools)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


def test_a_compiler_that_is_missing(forgetful, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert toolchain.missing() == "g++ is not installed"


def test_headers_that_are_missing(forgetful, monkeypatch):
    monkeypatch.setattr(toolchain, "_complete", lambda _: ())
    assert (
        toolchain.missing()
        == "CUDA's headers are neither in a toolkit nor installed: pip install 'kernel-assay[simt]' has them"
    )


def toolkit(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


HEADERS = ("cuda_runtime.h", "cuda_fp16.h", "crt/host_defines.h")


def test_headers_are_those_of_a_toolkit_or_of_packages(forgetful, monkeypatch, tmp_path):
    whole = toolkit(tmp_path / "toolkit" / "include", *HEADERS, "cccl/nv/target")
    assert toolchain._complete([whole]) == (whole, whole / "cccl")
    monkeypatch.setenv("CUDA_HOME", str(whole.parent))
    assert toolchain.cuda_headers() == (whole, whole / "cccl")
    (whole / "cuda_fp16.h").unlink()
    assert toolchain._complete([whole]) == ()
    packages = [
        toolkit(tmp_path / "nvidia" / name / "include", *files)
        for name, files in (("cccl", ["nv/target"]), ("crt", HEADERS[2:]), ("runtime", HEADERS[:2]))
    ]
    assert toolchain._complete(packages) == tuple(packages)
    assert toolchain._complete(packages[1:]) == ()


def test_a_file_that_does_not_compile_leaves_nothing_behind(tmp_path, monkeypatch, simt_cache):
    for mode in (FAST, CHECK):
        toolchain.headers(mode)
    toolchain.runtime()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir(parents=True)
    for made in [*simt_cache.glob("headers-*"), *simt_cache.glob("simt-*")]:
        (cache_folder() / made.name).symlink_to(made)
    before, path = sorted(cache_folder().iterdir()), tmp_path / "kernel.cu"
    path.write_text("__global__ void k(float* out) {\n  out[0] = nothing;\n}\n")
    for mode in (FAST, CHECK):
        with pytest.raises(BuildError, match=r"kernel\.cu:2:12: error: 'nothing' was not declared in this scope"):
            build(path, ["k"], mode)
    assert sorted(cache_folder().iterdir()) == before


def test_what_is_begun_ahead_is_waited_for_and_built_once(tmp_path, monkeypatch):
    """The second asks while the first builds: one call of g++ for each, though all are wanted twice."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def slow(command, folder, text=""):
        calls.append(command)
        time.sleep(0.2)
        Path(command[command.index("-o") + 1]).touch()

    monkeypatch.setattr(toolchain, "run_tool", slow)
    toolchain.build_ahead(Mode)
    time.sleep(0.1)
    made = [toolchain.runtime(), *(toolchain.headers(mode) for mode in Mode)]
    assert all(path.exists() for path in made)
    sources = [file for folder in ("ptx", "runtime") for file in (toolchain.HOME / folder).glob("*.cpp")]
    assert len(calls) == len(sources) + 1 + len(Mode), "the runtime is linked of its objects"


def test_what_cannot_be_built_ahead_is_told_by_who_needs_it(tmp_path, monkeypatch, capfd):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    toolchain.build_ahead(Mode)
    with pytest.raises(OSError, match="file"):
        toolchain.runtime()
    assert capfd.readouterr() == ("", "")
