"""g++ and NVIDIA's headers: a kernel's file becomes a library, in one of three modes, kept by what it depends on.

Fast mode runs a kernel as it stands; check mode has every access of it judged (runtime/shadow.cpp); fused mode is fast
mode with a * b + c rounded once, as nvcc has it. What is built lies in the user's cache folder: the runtime, the
headers in precompiled form for each mode, and a library for each kernel.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache, partial
from pathlib import Path
from threading import Thread

from kernel_assay.kernels.backends.simt.processor import CONTRACTS, PARALLEL
from kernel_assay.kernels.backends.simt.rewriting import placed, rewritten
from kernel_assay.kernels.backends.simt.subscripts import Subscript, subscripts
from kernel_assay.kernels.backends.simt.variables import Variable, constants, counting, variables
from kernel_assay.kernels.backends.support.edits import read_source
from kernel_assay.kernels.backends.support.includes import included

HOME = Path(__file__).resolve().parent
SHADOWED = HOME / "nvidia"
"""Headers of NVIDIA's that need a GPU, written anew."""


class Mode(StrEnum):
    """Modes of compiling a kernel."""

    FAST = "fast"
    CHECK = "check"
    FUSED = "fused"


class BuildError(Exception):
    """g++ refuses a file; what it said is the message."""


_COMMON = (
    *("-std=c++17", "-O2", "-g1", "-fPIC", "-w"),
    # Kernels read float as float4, half2 or int as a matter of course.
    "-fno-strict-aliasing",
    # Libraries of many kernels live in one process, and share no names.
    *("-fvisibility=hidden", "-fno-gnu-unique"),
    # A kernel may divide by zero, shift too far, and walk through all rows of an array by its first one: on a GPU none
    # of it ends the kernel, and no compiler may bend the rest of it.
    *("-fno-delete-null-pointer-checks", "-fno-isolate-erroneous-paths-dereference", "-fwrapv"),
    "-fno-aggressive-loop-optimizations",
    # Large local variables must not reach over the page that guards a thread's stack.
    "-fstack-clash-protection",
    # The first error, at the place in the user's file where a macro was used.
    *("-fmax-errors=1", "-ftrack-macro-expansion=0", "-fdiagnostics-color=never", "-fno-diagnostics-show-caret"),
)
_CHECKED = (
    *("-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0"),
    *("--param", "tsan-distinguish-volatile=1"),
    *("-fsanitize=alignment", "-fno-sanitize-recover=alignment"),
    *("-fsanitize=bounds-strict", "-fsanitize-recover=bounds-strict"),  # what counts of it: subscripts.py
    # Stores that nobody reads, or that another follows, are accesses all the same.
    *("-fno-tree-dse", "-fno-store-merging"),
    # memcpy and its like are calls, which the runtime sees, and a call is made from the line that makes it.
    *("-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset", "-fno-optimize-sibling-calls"),
    # What nobody uses is allocated and freed all the same.
    *("-fno-builtin-malloc", "-fno-builtin-free"),
)
_SEPARATE = "-ffp-contract=off"
"""Every product is rounded, so that a kernel gives the same bits everywhere; which sums a compiler contracts is its own
choice. Some kernels are right only so, and some only otherwise: nvcc contracts, and budgets allow for either."""
_FUSED = ("-ffp-contract=fast", *CONTRACTS)
_FLAGS = {
    Mode.FAST: (*_COMMON, _SEPARATE),
    Mode.CHECK: (*_COMMON, _SEPARATE, *_CHECKED),
    Mode.FUSED: (*_COMMON, *_FUSED),
}
_UNSET = {Mode.FAST: "pattern", Mode.CHECK: "zero", Mode.FUSED: "pattern"}
"""What a local variable holds until it is set; on a GPU it is what a register held before. Never zero in every run: a
sum begins with that, and nobody would notice. Bytes of 0xFE are wrong in a sum, as an index, as a pointer. But in a
maximum they are as good as -Inf, and as a flag they are true: so check mode has zero, and two runs of a case differ.
A kernel that is right lets neither be seen."""
_LINK = (
    *("-shared", "-nodefaultlibs", "-lstdc++", "-lm", "-lc", "-lgcc_s", "-lgcc", "-Wl,-z,defs"),
    "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset",  # __wrap_memcpy is the runtime's
)
_SEPARATION = 256
"""Bytes between shared arrays in check mode, so that what runs over one does not land in the next."""


def gxx() -> str:
    """The compiler."""
    return shutil.which("g++") or "g++"


@cache
def compiler() -> tuple[str, str]:
    """Version and target of g++."""
    found = subprocess.run([gxx(), "-dumpfullversion", "-dumpmachine"], capture_output=True, text=True, check=False)
    version, _, machine = found.stdout.strip().partition("\n")
    return version, machine


DEBUG = "KERNEL_ASSAY_DEBUG"
"""Environment variable, not empty where a debugger watches: kernels are compiled for it, here and for a GPU."""


def flags_of(mode: Mode) -> tuple[str, ...]:
    """Flags of the compiler, for kernels; one of them is known to g++ since version 12."""
    version = compiler()[0].partition(".")[0]
    unset = [f"-ftrivial-auto-var-init={_UNSET[mode]}"] if version.isdigit() and int(version) >= 12 else []
    # g++ contracts products and sums only where it optimizes.
    debug = ("-g", "-Og" if mode is Mode.FUSED else "-O0") if os.environ.get(DEBUG) else ()
    return (*_FLAGS[mode], *unset, *debug)


@cache
def cuda_headers() -> tuple[Path, ...]:
    """Folders with CUDA's headers: of a toolkit if there is one, else of NVIDIA's Python packages; () if of neither."""
    named = [Path(os.environ[v]) / "include" for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    if nvcc := shutil.which("nvcc"):
        named.append(Path(nvcc).resolve().parents[1] / "include")
    for folder in (*named, Path("/usr/local/cuda/include")):
        if found := _complete([folder]):
            return found
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    return _complete(sorted(f for root in roots for f in root.glob("*/include")))


def _complete(folders: Sequence[Path]) -> tuple[Path, ...]:
    """The folders and their cccl, if together they hold what a kernel needs."""
    all_of_them = [f for folder in folders for f in (folder, folder / "cccl") if f.is_dir()]
    wanted = ("cuda_runtime.h", "cuda_fp16.h", "crt/host_defines.h", "nv/target")
    whole = all(any((f / name).is_file() for f in all_of_them) for name in wanted)
    return tuple(all_of_them) if whole else ()


@cache
def missing() -> str:
    """The reason why nothing can be built here, or an empty string."""
    if not shutil.which("g++"):
        return "g++ is not installed"
    if not cuda_headers():
        return "CUDA's headers are neither in a toolkit nor installed: pip install 'kernel-assay[simt]' has them"
    return ""


def cache_folder() -> Path:
    """The folder of compiled kernels: the one that the XDG base directory specification names.

    Without a home that can be written to it is one of this user's among the temporary files.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / "kernel-assay" / "cuda"
    with suppress(RuntimeError):  # this user has no home at all
        home = Path("~/.cache").expanduser()
        if _can_be_written(home):
            return home / "kernel-assay" / "cuda"
    return _own_temporary() / "kernel-assay" / "cuda"


def _can_be_written(folder: Path) -> bool:
    """Whether it, or what it would be made in, may be written to."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _own_temporary() -> Path:
    """A folder of a fixed name, so that it is found again, unless somebody else has taken it."""
    folder = Path(tempfile.gettempdir()) / f"kernel-assay-cache-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    seen = folder.lstat()
    if stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o022:
        return folder
    raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


@contextmanager
def workplace() -> Iterator[str]:
    """A folder to build in, and away with those of processes that were killed."""
    home = cache_folder()
    home.mkdir(parents=True, exist_ok=True)
    for left in home.glob("build-*"):
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _FORSAKEN:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="build-") as folder:
        yield folder


_FORSAKEN = 3600.0
"""Seconds after which nobody builds there any more."""


@contextmanager
def lock_of(made: Path) -> Iterator[None]:
    """Keep other processes from making the same meanwhile: it takes seconds of a processor."""
    with made.with_name(f"{made.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True, slots=True)
class SharedArray:
    """One variable in shared memory: its name, its function, and where it lies in the library's block, in bytes.

    What has no name is the compiler's own: whether a variable of a class was constructed.
    """

    name: str
    owner: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled file."""

    library: Path
    shared: tuple[SharedArray, ...]
    subscripts: tuple[Subscript, ...] = ()
    """In check mode."""
    variables: tuple[Variable, ...] = ()
    """In check mode."""

    @property
    def shared_bytes(self) -> int:
        """Bytes of static shared memory that the greediest function has; kernels are instances of their own."""
        totals: dict[str, int] = {}
        for array in self.shared:
            totals[array.owner] = totals.get(array.owner, 0) + array.size
        return max(totals.values(), default=0)


def build(path: Path, entries: Sequence[str], mode: Mode) -> Built:
    """Compile a file with an entry for each kernel, or take what was compiled before.

    Two processes may build the same at once: what is built appears whole. Raises BuildError, and OSError if the cache
    folder cannot be written to.
    """
    exported = "".join(f"SIMT_ENTRY({n}, {entry})\n" for n, entry in enumerate(entries))
    source = read_source(path)
    words = [exported, source.place.name, source.text, *flags_of(mode), *_counting(path, mode)]  # faults name the file
    words += [str(path.resolve())] if os.environ.get(DEBUG) else []  # a debugger shows the lines that stand there
    digest = digest_of(words, included(path))
    library = cache_folder() / f"{digest}-{mode}.so"
    if not library.exists():
        _compile(path, exported, mode, library)
    said = json.loads(library.with_suffix(".json").read_text("utf-8"))
    shared = tuple(SharedArray(*array) for array in said["shared"])
    known = tuple(Variable(*variable) for variable in said["variables"])
    return Built(library, shared, tuple(Subscript(*place) for place in said["subscripts"]), known)


def _counting(path: Path, mode: Mode) -> tuple[str, ...]:
    """The flag by which every basic block is counted, where somebody may wait in a loop: check mode sees the reads."""
    return () if mode is Mode.CHECK else counting(_texts(path))


def _texts(path: Path) -> list[str]:
    """A file and its own headers, as they are compiled."""
    return [read_source(path).text, *(file.read_text("utf-8-sig") for file in included(path))]


def runtime(*, programs: bool = False, parallel: bool = False) -> Path:
    """The emulator's own library, which every kernel's calls. programs: with the runtime API, for whole programs."""
    name = "parallel" if parallel else "program" if programs else "simt"
    library = cache_folder() / f"{name}-{digest_of([], [])}.so"
    if library.exists():
        return library
    with workplace() as folder, lock_of(library):
        if library.exists():
            return library
        made, own = Path(folder) / library.name, PARALLEL if parallel else ()
        objects = _objects(("ptx", "runtime", "program") if programs else ("ptx", "runtime"), own)
        flags = (*_RUNTIME, *own, "-shared", f"-Wl,-soname,{library.name}")  # kernels find it in a folder that is moved
        run_tool([gxx(), *flags, *objects, "-o", str(made)], folder)
        made.replace(library)
    return library


_OWN = ("-std=c++17", "-fPIC", "-w", "-fvisibility=hidden")
_RUNTIME = (*_OWN, "-O2", "-g", "-flto=1", "-pthread")
"""-g: a debugger asks for the types of threadIdx and blockIdx, which lie there."""
_INTERPRETER = (*_OWN, "-O1", "-fwrapv", _SEPARATE)
"""Of inline PTX."""


def _objects(folders: Sequence[str], own: Sequence[str]) -> list[str]:
    """All sources of these folders, compiled on all processors; the libraries have most of them in common."""
    sources = [source for folder in folders for source in sorted((HOME / folder).glob("*.cpp"))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda source: str(_object(source, own)), sources))


def _object(source: Path, own: Sequence[str]) -> Path:
    flags = (*(_INTERPRETER if source.parent.name == "ptx" else _RUNTIME), *own)
    made = cache_folder() / f"{source.parent.name}-{source.stem}-{digest_of(flags, [])}.o"
    with workplace() as folder, lock_of(made):
        if not made.exists():
            placed = Path(folder) / made.name
            run_tool([gxx(), *flags, *include_flags(), "-c", str(source), "-o", str(placed)], folder)
            placed.replace(made)
    return made


def headers(mode: Mode, name: str = "simt.h", more: Sequence[str] = ()) -> Path:
    """The file to include first: it has a precompiled twin, which g++ takes in its place. more: flags."""
    words = [*flags_of(mode), str(HOME / name), *more]  # what g++ cannot use the twin for includes the file by its path
    folder = cache_folder() / f"headers-{digest_of(words, [])}-{mode}"
    header = folder / "simt.h"
    if header.exists():
        return header
    with workplace() as temporary, lock_of(folder):
        if header.exists():
            return header
        made = Path(temporary) / "made"
        made.mkdir()
        (made / "simt.h").write_text(f'#include "{HOME / name}"\n', "utf-8")
        source = ["-x", "c++-header", str(HOME / name), "-o", str(made / "simt.h.gch")]
        run_tool([gxx(), *flags_of(mode), *more, *include_flags(), *source], temporary)
        made.rename(folder)
    return header


def build_ahead(modes: Iterable[Mode]) -> None:
    """Begin with what every kernel needs, beside whatever else there is to do; who needs it then waits for it.

    Nothing is said of what goes wrong: the first kernel meets it again.
    """
    if missing():
        return

    def quietly(make: Callable[[], Path]) -> None:
        with suppress(BuildError, OSError):
            make()

    for make in (runtime, *(partial(headers, mode) for mode in modes)):
        Thread(target=quietly, args=(make,), daemon=True).start()


def include_flags() -> list[str]:
    """Flags that name the folders of headers."""
    return ["-I", str(SHADOWED), "-I", str(HOME), *(word for f in cuda_headers() for word in ("-isystem", str(f)))]


@cache
def _tools() -> bytes:
    """A digest of what every result depends on: the emulator, the compiler, CUDA's headers."""
    found = hashlib.sha256("\0".join([*compiler(), *_LINK, *map(str, cuda_headers())]).encode())
    for folder in cuda_headers():
        version = folder / "cuda.h"
        found.update(str(version.stat().st_size if version.is_file() else 0).encode())
    files = sorted(f for f in HOME.rglob("*") if f.is_file() and f.suffix not in {".py", ".pyc"})
    own = ("subscripts.py", "variables.py", "processor.py", "assembly.py", "rewriting.py")
    for file in (*files, Path(__file__), *(HOME / name for name in own)):
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.digest()


def digest_of(words: Iterable[str], files: Iterable[Path]) -> str:
    """A digest of everything that a result depends on: the words and files, and the tools."""
    found = hashlib.sha256("\0".join(words).encode() + _tools())
    for file in files:
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:32]


def _beside(path: Path, folder: Path) -> Path:
    """The folder of a file's own headers: beside it, or copies, lying as they do, if one must be rewritten."""
    texts = {header: header.read_text("utf-8-sig") for header in included(path)}
    home = read_source(path).home
    if all(rewritten(text) == text for text in texts.values()):
        return home
    root = Path(os.path.commonpath([home, *(header.parent for header in texts)]))
    for header, text in texts.items():
        copy = folder / "beside" / header.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(placed(text, header), "utf-8")
    return folder / "beside" / home.relative_to(root)


def _compile(path: Path, exported: str, mode: Mode, library: Path) -> None:
    kernel = read_source(path)
    source = f'{placed(kernel.text, kernel.place)}\n#line 1 "entries"\n{exported}'
    with workplace() as folder:
        made = Path(folder) / library.name
        assembly = Path(folder) / "kernel.s"
        beside = str(_beside(path, Path(folder)))
        counting = _counting(path, mode)
        header = str(headers(mode, more=counting))
        flags = [*flags_of(mode), *counting, "-iquote", beside, *include_flags(), "-include", header]
        if mode is Mode.CHECK:
            run_tool([gxx(), *flags, "-x", "c++", "-", "-S", "-o", str(assembly)], folder, source)
            assembly.write_text(separated(assembly.read_text("utf-8")), "utf-8")
            run_tool([gxx(), str(assembly), "-o", str(made), str(runtime()), *_LINK], folder)
        else:
            run_tool(
                [gxx(), *flags, "-x", "c++", "-", "-x", "none", "-o", str(made), str(runtime()), *_LINK], folder, source
            )
        symbols = run_tool(["readelf", "--demangle", "-SsW", str(made)], folder)
        arrays, told = shared_arrays(symbols), made.with_suffix(".json")
        places = _subscripts(path, {name for name, *_ in arrays}) if mode is Mode.CHECK else []
        known = variables(symbols, constants(_texts(path))) if mode is Mode.CHECK else []
        told.write_text(json.dumps({"shared": arrays, "subscripts": places, "variables": known}), "utf-8")
        told.replace(library.with_suffix(".json"))
        made.replace(library)


_SECTION = re.compile(
    r"^\t\.(?:section\t\.tbss[^\n]*|bss)\n(?:(?!\t\.section|\t\.text|\t\.data|\t\.bss)[^\n]*\n)*", re.MULTILINE
)
_ZEROS = re.compile(r"^(\t\.zero\t\d+)$", re.MULTILINE)


def separated(assembly: str) -> str:
    """The same with a gap behind each variable in shared memory (thread-local storage), or without an initial value."""
    return _SECTION.sub(lambda m: _ZEROS.sub(rf"\1\n\t.zero\t{_SEPARATION}", m[0]), assembly)


_SYMBOL = re.compile(r"^\s*\d+: ([0-9a-f]+)\s+(\d+|0x[0-9a-f]+) TLS\s+\w+\s+\w+\s+\d+ (.*)$", re.MULTILINE)


def shared_arrays(said: str) -> list[tuple[str, str, int, int]]:
    """Name, owner, offset and size of each variable in shared memory, from what readelf says of a library's symbols."""
    found = set()
    for match in _SYMBOL.finditer(said):
        symbol = "" if match[3].startswith(("guard variable for ", "__tls_guard")) else match[3]
        owner, _, name = symbol.rpartition("::")
        found.add((name, owner, int(match[1], 16), int(match[2], 0)))
    return sorted(array for array in found if array[0] != "anchor")


def _subscripts(path: Path, shared: set[str]) -> list[Subscript]:
    """Subscripts in a file and its own headers, as they are compiled; of two files of one name nobody knows which."""
    kernel = read_source(path)
    texts = [(kernel.place.name, kernel.text), *((f.name, f.read_text("utf-8-sig")) for f in included(path))]
    names = [name for name, _ in texts]
    return subscripts({name: rewritten(text) for name, text in texts if names.count(name) == 1}, shared)


def run_tool(command: list[str], folder: str, source: str = "", seconds: float | None = None) -> str:
    """Run a compiler or the like; what it prints. seconds: that it may take. Raises BuildError."""
    env = {**os.environ, "LC_ALL": "C", "TMPDIR": folder}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, text=True, process_group=0
    ) as running:
        try:
            printed, said = running.communicate(source, timeout=seconds)
        except BaseException as error:
            os.killpg(running.pid, signal.SIGKILL)  # g++ has processes of its own, which write into the folder
            running.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise BuildError(f"g++ was given up after {seconds:g} s") from error
            raise
    if running.returncode:
        raise BuildError(said or f"{command[0]} failed and said nothing")
    return printed


@lru_cache(maxsize=256)
def frames_of(library: Path, addresses: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    """Files and lines of the calls that return to some addresses, in their order; what is inlined, too."""
    command = ["addr2line", "-i", "-e", str(library), *(hex(address - 1) for address in addresses)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout if addresses else ""
    found = [line.partition(" (discriminator ")[0].rpartition(":") for line in said.splitlines()]
    return tuple((file, int(number)) for file, _, number in found if number.isdigit() and int(number))


@lru_cache(maxsize=4096)
def place_of(library: Path, address: int, source: Path) -> tuple[str, int] | None:
    """File and line of an instruction, where inlined the innermost in the user's own files; None if unknown.

    address: from the start of the library, just behind the instruction.
    """
    places = [
        (str(source.absolute()) if file.endswith("<stdin>") else file, line)  # g++ reads sources from its stdin
        for file, line in frames_of(library, (address,))
    ]
    foreign, ours = tuple(map(str, (*cuda_headers(), "/usr/"))), "/".join(("", *HOME.parts[-2:], ""))  # of any clone
    own = [p for p in places if p[0] == str(source.absolute()) or not (ours in p[0] or p[0].startswith(foreign))]
    return next(iter([*own, *places]), None)
