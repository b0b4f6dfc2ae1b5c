"""CUDA files compile for GPUs without one, and what their kernels need there is read off."""

from pathlib import Path

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.__main__ import main
from kernel_assay.kernels.backends.cuda_support import device_code
from kernel_assay.kernels.backends.cuda_support.device_code import _needs, _options, compile_for, compilers
from kernel_assay.kernels.backends.cuda_support.front_matter import read_front_matter

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "kernels").glob("*/*.cu"))
"""Seeded bugs are made of these by edits."""
needs_compiler = pytest.mark.skipif(not compilers(), reason="neither nvcc nor NVRTC is installed")

GOOD = """/*
---
op = "silu"
entry = "twice<{T}>"
dtypes = ["float32", "float64"]
args = ["out", "x"]
grid = 1
block = 64
---
*/
template <typename T>
__global__ void twice(T* out, const T* x) {
  __shared__ T tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


def file(folder, text):
    path = folder / "mine.cu"
    path.write_text(text, "utf-8")
    return path


def compiled(path):
    return compile_for(read_front_matter(path), "sm_90", compilers()[0])


PARTS = 4
"""So that several processes that run tests have a share of them each."""


@needs_compiler
@pytest.mark.parametrize("part", range(PARTS))
def test_every_kernel_of_the_house_compiles_for_a_gpu_without_a_warning(part, monkeypatch):
    """Not optimized by nvcc, which takes as long again: what it warns of it has seen before."""
    assert len(FILES) > 60
    if compilers()[0] == "nvcc":
        hasty = ["-Xcicc", "-O0", "-Xptxas", "-O0"]
        monkeypatch.setattr(device_code, "_options", lambda *given: [*_options(*given), *hasty])
    warnings = {path.name: compiled(path).warnings for path in FILES[part::PARTS]}
    assert {name: said for name, said in warnings.items() if said} == {}


@needs_compiler
@pytest.mark.parametrize("compiler", compilers())
def test_what_is_compiled_knows_its_lines(tmp_path, compiler):
    binary = compile_for(read_front_matter(file(tmp_path, GOOD)), "sm_90", compiler).binary
    assert b".debug_line" in binary
    assert b"mine.cu" in binary


@needs_compiler
def test_every_instance_is_compiled_and_what_it_needs_is_told(tmp_path):
    needs = compiled(file(tmp_path, GOOD)).needs
    assert sorted(n.shared for n in needs) == [256, 512]
    assert all(8 <= n.registers <= 64 and n.spilled == 0 for n in needs)


@needs_compiler
def test_a_warning_and_an_error_are_told(tmp_path, capsys):
    path = file(tmp_path, GOOD.replace("  __syncthreads", "  int unused;\n  __syncthreads"))
    assert main(["compile", str(path), "--arch", "sm_90"]) == 1
    said = capsys.readouterr().out
    assert "mine.cu" in said
    assert "warning" in said
    with pytest.raises(UsageError, match=r"mine\.cu does not compile for sm_90: .*nothing"):
        compiled(file(tmp_path, GOOD.replace("63 -", "nothing -")))
    assert main(["compile", str(path), "--arch", "sm_90"]) == 1
    assert "does not compile for sm_90" in capsys.readouterr().out


@needs_compiler
def test_a_good_file_and_keys_beside_it(tmp_path, capsys):
    path = file(tmp_path, GOOD)
    assert main(["compile", str(path), "--arch", "sm_80", "--arch", "sm_90"]) == 0
    assert [line.split()[1:3] for line in capsys.readouterr().out.splitlines()[1:]] == [["sm_80", "2"], ["sm_90", "2"]]
    assert main(["compile", str(path), "--arch", "sm_90", "--launch", 'dtypes = ["float64"]']) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "1"


def test_what_ptxas_says_is_read():
    said = """ptxas info    : Compiling entry function '_Z1kIdEvPT_' for 'sm_90'
ptxas info    : Function properties for _Z1kIdEvPT_
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 512 bytes smem
ptxas info    : Compiling entry function 'e' for 'sm_90'
ptxas info    : Function properties for e
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""
    assert [(n.kernel, n.registers, n.shared, n.spilled) for n in _needs(said)] == [
        ("_Z1kIdEvPT_", 255, 512, 20),
        ("e", 8, 0, 0),
    ]


def test_what_cannot_be_compiled_is_one_sentence(capsys, monkeypatch):
    assert main(["compile", "nothing_like_it"]) == 2
    assert "op 'nothing_like_it' is not known" in capsys.readouterr().err
    monkeypatch.setattr("kernel_assay.fuzz.cli.compile.compilers", lambda: ())
    assert main(["compile", "silu"]) == 2
    assert "neither nvcc nor NVRTC" in capsys.readouterr().err
