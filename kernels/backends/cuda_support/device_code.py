"""Compile CUDA files for a GPU, whether there is one or not: by NVRTC where its packages are, else by nvcc.

NVRTC is what kernels are launched from (kernels/backends/cuda_support/driver.py); both serve as a gate: does a file
compile for an architecture without a warning, and what does each kernel need there?
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.backends.cuda_support.front_matter import FrontMatter
from kernel_assay.kernels.backends.simt.toolchain import DEBUG, cache_folder, cuda_headers, digest_of, workplace
from kernel_assay.kernels.backends.support.includes import included

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
"""Of A100, H100 and H200, B200."""
STANDARD_HEADERS = Path(__file__).resolve().parents[1] / "simt" / "nvrtc"
"""Of C++, which NVRTC has not: each includes its twin of libcu++."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of one kernel by ptxas: registers a thread, bytes of shared memory a block, bytes spilled a thread."""

    kernel: str
    registers: int
    shared: int
    spilled: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A file for one architecture."""

    binary: bytes
    names: tuple[str, ...]
    """Of the kernels in the binary, one for each instance of the front matter."""
    needs: tuple[Needs, ...]
    warnings: tuple[str, ...]


def compilers() -> tuple[str, ...]:
    """Names of the compilers, nvrtc and nvcc, that can be used."""
    return (*(["nvrtc"] if _nvrtc() is not None else []), *(["nvcc"] if shutil.which("nvcc") else []))


def compile_for(front: FrontMatter, architecture: str, compiler: str) -> Compiled:
    """Compile every instance of a file. Raises UsageError, one sentence, if it does not compile."""
    entries = [instance.entry for instance in front.instances]
    how = _with_nvrtc if compiler == "nvrtc" else _with_nvcc
    return how(front, entries, architecture)


def kept_for(front: FrontMatter, architecture: str) -> Compiled:
    """The same by NVRTC, or what was compiled before: every worker needs it. Raises UsageError as compile_for does."""
    version = _nvrtc().nvrtcVersion() if _nvrtc() is not None else ()
    words = [*map(str, version), *(i.entry for i in front.instances), *_options(front, architecture)]
    words += [str(front.source.place), front.source.text]
    headers = sorted(file for file in STANDARD_HEADERS.rglob("*") if file.is_file())
    kept = cache_folder() / f"{digest_of(words, [*included(front.path), *headers])}-{architecture}.json"
    if kept.exists():
        said = json.loads(kept.read_text("utf-8"))
        needs = tuple(Needs(**one) for one in said["needs"])
        return Compiled(b64decode(said["binary"]), tuple(said["names"]), needs, tuple(said["warnings"]))
    made = compile_for(front, architecture, "nvrtc")
    with workplace() as folder:
        fresh = Path(folder) / kept.name
        fresh.write_text(json.dumps({**asdict(made), "binary": b64encode(made.binary).decode()}), "utf-8")
        fresh.replace(kept)
    return made


def _options(front: FrontMatter, architecture: str) -> list[str]:
    fast = ["--use_fast_math"] if front.numerics.get("fast_math") else []
    # Lines are for compute-sanitizer and profilers, and change no instruction; all the rest is for cuda-gdb.
    lines = "--device-debug" if os.environ.get(DEBUG) else "--generate-line-info"
    return [f"--gpu-architecture={architecture}", "--std=c++17", lines, *fast]


# ---- nvcc ------------------------------------------------------------------------------------------------------------


def _with_nvcc(front: FrontMatter, entries: Sequence[str], architecture: str) -> Compiled:
    """Templates are made by taking their addresses."""
    addresses = ", ".join(f"(const void*)&{entry}" for entry in entries)
    table = f"const void* all[] = {{{addresses}}}; return all[i];"
    keep = f'#line 1 "entries"\nconst void* kernel_assay_entries(int i) {{ {table} }}'
    with TemporaryDirectory(prefix="nvcc-") as folder:
        source, binary = Path(folder) / "kernel.cu", Path(folder) / "kernel.cubin"
        source.write_text(f'#line 1 "{front.source.place}"\n{front.source.text}\n{keep}\n', "utf-8")
        options = [*_options(front, architecture), "-cubin", "-Xptxas", "-v", "-I", str(front.source.home)]
        command = ["nvcc", *options, "-o", str(binary), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        if done.returncode:
            raise UsageError(f"{front.path} does not compile for {architecture}: {_first_error(said)}")
        needs = _needs(said)
        return Compiled(binary.read_bytes(), tuple(n.kernel for n in needs), needs, _warnings(said))


# ---- NVRTC -----------------------------------------------------------------------------------------------------------


@cache
def _nvrtc() -> Any:
    """The bindings of NVRTC, or None."""
    try:
        from cuda.bindings import nvrtc  # noqa: PLC0415  may be missing

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError):
        return None
    return nvrtc


def _with_nvrtc(front: FrontMatter, entries: Sequence[str], architecture: str) -> Compiled:
    nvrtc: Any = _nvrtc()

    def call(function: str, *arguments: Any) -> Any:
        error, *rest = getattr(nvrtc, function)(*arguments)
        if int(error):
            raise _NvrtcError(nvrtc.nvrtcGetErrorString(error)[1].decode())
        return rest[0] if rest else None

    program = call("nvrtcCreateProgram", front.source.text.encode(), str(front.source.place).encode(), 0, [], [])
    try:
        for entry in entries:
            call("nvrtcAddNameExpression", program, entry.encode())
        folders = (STANDARD_HEADERS, front.source.home, *cuda_headers())
        options = [*_options(front, architecture), *(f"--include-path={f}" for f in folders)]
        options += ["--ptxas-options=-v", "--device-int128", "--pre-include=prelude.h"]
        try:
            call("nvrtcCompileProgram", program, len(options), [o.encode() for o in options])
        except _NvrtcError:
            said = _text(call, program, "nvrtcGetProgramLog")
            raise UsageError(f"{front.path} does not compile for {architecture}: {_first_error(said)}") from None
        said = _text(call, program, "nvrtcGetProgramLog")
        binary = bytes(call("nvrtcGetCUBINSize", program))
        call("nvrtcGetCUBIN", program, binary)
        names = tuple(call("nvrtcGetLoweredName", program, entry.encode()).decode() for entry in entries)
        return Compiled(binary, names, _needs(said), _warnings(said))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


class _NvrtcError(Exception):
    """An error of NVRTC."""


def _text(call: Any, program: Any, function: str) -> str:
    text = b" " * int(call(f"{function}Size", program))
    call(function, program, text)
    return text.rstrip(b"\0").decode("utf-8", "replace")


# ---- what they say ---------------------------------------------------------------------------------------------------

_KERNEL = re.compile(
    r"Compiling entry function '(?P<kernel>[^']+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def _needs(said: str) -> tuple[Needs, ...]:
    found = []
    for match in _KERNEL.finditer(said):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        spilled = int(match["stores"]) + int(match["loads"])
        found.append(Needs(match["kernel"], int(match["registers"]), int(shared[1]) if shared else 0, spilled))
    return tuple(found)


def _warnings(said: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in said.splitlines() if re.search(r"\bwarning\b", line))


def _first_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if "error" in line]
    return lines[0] if lines else said.strip().rpartition("\n")[2] or "the compiler said nothing"
