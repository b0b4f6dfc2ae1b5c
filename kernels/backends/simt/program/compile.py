"""Compiles the files of a CUDA program in check or fast mode, and links them with the emulator and the runtime API.

An object is kept by what it depends on, and so is the program. Beside it lies a file of what the emulator must know of
it: variables of the device, shared arrays, and subscripts, one a line (program/memory.cpp reads it).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.backends.simt import toolchain
from kernel_assay.kernels.backends.simt.processor import PARALLEL
from kernel_assay.kernels.backends.simt.program.syntax import (
    Known,
    Variable,
    device_functions,
    kernel_parameters,
    known_of,
    rewrite_launches,
    variables,
)
from kernel_assay.kernels.backends.simt.rewriting import placed, rewritten
from kernel_assay.kernels.backends.simt.subscripts import subscripts
from kernel_assay.kernels.backends.simt.toolchain import BuildError, Built, Mode, SharedArray, cache_folder, run_tool
from kernel_assay.kernels.backends.simt.variables import counting

_OWN = ("anchor", "program_anchor")
"""Variables of the emulator's own in each program."""
_GAP = 64
"""Bytes behind a variable of the device that are nobody's (memory.cpp has the same)."""
_KINDS = {"variable": 5, "constant": 6, "managed": 7, "function": 9, "class": 10}
"""Kind in program/watch.h has the same."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_FROM_ROOT = re.compile(r'^([ \t]*#[ \t]*include[ \t]*[<"])/+', re.MULTILINE)
"""An absolute path of a header, whose copy is to be read."""
_RECOVER = "-fsanitize-recover=alignment"
_LINK = (
    *("-pie", "-nodefaultlibs", "-pthread", "-lstdc++", "-lm", "-lc", "-lgcc_s", "-lgcc", "-Wl,-z,defs"),
    "-Wl,--wrap=malloc,--wrap=free",
)
_AS_CALLED = ("-fno-optimize-sibling-calls", "-fno-builtin-malloc", "-fno-builtin-free")
"""By where it returns to it is known whether a kernel allocates, or the host."""
_CHECKED_LINK = "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset"


@dataclass(frozen=True, slots=True)
class Request:
    """A program to compile."""

    sources: tuple[Path, ...]
    defines: tuple[str, ...] = ()
    """`NAME` or `NAME=VALUE`."""
    includes: tuple[Path, ...] = ()
    """Folders with headers of its own."""
    standard: str = "c++17"
    fast: bool = False
    """Whether no access is judged, and blocks run on several processors."""
    seconds: float = 300.0
    """That g++ may take for a file."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that can be started."""

    executable: Path
    symbols: Path
    """The file that the emulator reads."""
    texts: dict[Path, str]
    """Its sources and their own headers."""
    variables: dict[str, tuple[Path, int]]
    """The file and line of each variable of the device."""
    parameters: dict[str, tuple[str, ...]]
    """The names of each kernel's parameters."""
    fast: bool
    """Whether no access is judged."""

    @property
    def name(self) -> str:
        """The name that it is told to have."""
        return next(iter(self.texts)).stem


@dataclass(frozen=True, slots=True)
class _Unit:
    """A source that was compiled."""

    object: Path
    variables: list[Variable]
    enlarged: dict[str, int]
    """Bytes of variables that the linker places, by symbol, without the gap."""


def compile_program(request: Request) -> Program:
    """Compile and link, or take what was made before.

    Raises UsageError, a sentence with the line, for what g++ refuses or the emulator has not.
    """
    texts, declared = dict[Path, str](), dict[Path, list[Variable]]()
    with _one_sentence(texts):
        units = _units(request, texts, declared)
        executable = _linked(units, fast=request.fast)
    symbols = _described(executable, units, texts)
    places = {v.name: (file, v.line) for file, found in declared.items() for v in found}
    return Program(executable, symbols, texts, places, kernel_parameters(texts.values()), request.fast)


def check_sources(request: Request) -> None:
    """Compile files that may lack a main function, and others of their program. Raises as `compile_program`."""
    texts = dict[Path, str]()
    with _one_sentence(texts):
        units = _units(request, texts, {})
        with suppress(_IncompleteError):
            _linked(units, fast=request.fast)


class _IncompleteError(BuildError):
    """The linker misses functions, but none of CUDA's."""


@contextmanager
def _one_sentence(texts: dict[Path, str]) -> Iterator[None]:
    if why := toolchain.missing():
        raise UsageError(f"no CUDA program can be compiled here, because {why}")
    try:
        yield
    except BuildError as error:
        raise UsageError(sentence_of(str(error), {file.name for file in texts})) from error


def _units(request: Request, texts: dict[Path, str], declared: dict[Path, list[Variable]]) -> list[_Unit]:
    """Compile the sources; their texts, and those of their own headers, with the variables in them, are noted."""
    if wrong := next((d for d in request.defines if not _MACRO.match(d)), None):
        raise UsageError(f"-D{wrong} names no macro; -DNAME and -DNAME=VALUE do")
    texts |= {file: _read(file) for file in request.sources}
    cudas = [folder.resolve() for folder in toolchain.cuda_headers()]  # of which some are replaced
    request = replace(request, includes=tuple(f for f in request.includes if f.resolve() not in cudas))
    parts = [[file, *_headers(file, texts, request.includes)] for file in request.sources]
    declared |= {file: variables(text) for file, text in texts.items()}
    known = known_of(texts.values())
    return [
        _compiled(request, {file: texts[file] for file in own}, [v for file in own for v in declared[file]], known)
        for own in parts
    ]


def _read(file: Path) -> str:
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise UsageError(f"{file} cannot be read (it is a pipe or a device, and no file)")
    try:
        text = file.read_text("utf-8-sig", "replace")
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror})") from error
    if "\0" in text:
        raise UsageError(f"{file} is no text: it has bytes of value 0")
    return text


def _headers(file: Path, texts: dict[Path, str], folders: Sequence[Path]) -> list[Path]:
    """Headers of the program's own that a file includes, at any depth; their texts are added to those known."""
    found: list[Path] = []
    waiting = [file]
    while waiting:
        one = waiting.pop()
        for name in _INCLUDE.findall(texts[one]):
            # two headers may include one another by ways that grow: ../a/../a
            places = (Path(os.path.normpath((folder / name).absolute())) for folder in (one.parent, *folders))
            header = next((p for p in places if p.is_file()), None)
            if header and header not in found:
                if header not in texts:
                    texts[header] = _read(header)
                found.append(header)
                waiting.append(header)
    return found


def _compiled(request: Request, own: dict[Path, str], declared: list[Variable], known: Known) -> _Unit:
    """Compile the first of these files, which includes the others."""
    mode = Mode.FAST if request.fast else Mode.CHECK
    more = (*_modal(request, own.values()), f"-std={request.standard}")
    flags = [*toolchain.flags_of(mode), *more, *(f"-D{name}" for name in request.defines if _EARLY.match(name))]
    words = [*flags, *map(str, [*own, *request.includes]), *own.values(), *request.defines]
    words += [repr(sorted(part)) for part in known]
    digest = toolchain.digest_of(words, [Path(__file__), Path(__file__).with_name("syntax.py")])
    made = cache_folder() / f"{digest}-program.o"
    told = made.with_suffix(".json")
    if not made.exists():
        header = toolchain.headers(mode, "program/program.h", more)
        with toolchain.workplace() as folder:
            places = _places(Path(folder), own, request, known)
            command = [toolchain.gxx(), *flags, *places, *toolchain.include_flags(), "-include", str(header)]
            command += ["-include", str(_macros(Path(folder), request.defines))]
            assembly, placed = Path(folder) / "unit.s", Path(folder) / "unit.o"
            source = str(_copy_of(next(iter(own)), Path(folder)))
            run_tool([*command, "-x", "c++", source, "-S", "-o", str(assembly)], folder, seconds=request.seconds)
            text = assembly.read_text("utf-8")
            text, enlarged = _with_gaps(text if request.fast else toolchain.separated(text), declared)
            assembly.write_text(text, "utf-8")
            run_tool([toolchain.gxx(), "-c", str(assembly), "-o", str(placed)], folder)
            described = Path(folder) / told.name
            described.write_text(json.dumps(enlarged), "utf-8")
            described.replace(told)
            placed.replace(made)
    return _Unit(made, declared, json.loads(told.read_text("utf-8")))


def _modal(request: Request, texts: Iterable[str]) -> tuple[str, ...]:
    """Flags of the mode. In fast mode basic blocks are counted where somebody may wait in a loop."""
    if not request.fast:
        return (_RECOVER,)
    return (*PARALLEL, *_AS_CALLED, *counting(texts))


def _macros(folder: Path, defines: Iterable[str]) -> Path:
    """A file with macros of the program's own, read behind the emulator's headers, which know no such names."""
    made = folder / "macros.h"
    late = [name.partition("=") for name in defines if not _EARLY.match(name)]
    made.write_text("".join(f"#define {name} {value if given else 1}\n" for name, given, value in late), "utf-8")
    return made


def _places(folder: Path, own: dict[Path, str], request: Request, known: Known) -> list[str]:
    """Folders of headers: copies of the program's own files, rewritten, lie as they do, and come first."""
    for one, text in own.items():
        copy = _copy_of(one, folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(placed(_FROM_ROOT.sub(r"\1", rewrite_launches(text, known)), one.absolute()), "utf-8")
    words = ["-iquote", str(next(iter(own)).absolute().parent), "-I", str(_copy_of(Path("/"), folder))]
    for one in request.includes:
        words += ["-I", str(_copy_of(one, folder)), "-I", str(one)]
    return words


def _copy_of(path: Path, folder: Path) -> Path:
    return folder / "beside" / path.absolute().relative_to("/")


_DIRECTIVE = r"\t\.(?:zero|long|quad|byte|value|string|ascii|float|double|octa|2byte|4byte|8byte)\b[^\n]*\n"


def _with_gaps(assembly: str, declared: Sequence[Variable]) -> tuple[str, dict[str, int]]:
    """The same with a gap behind each variable of the device, and the true sizes of those that the linker places."""
    if not declared:
        return assembly, {}
    name = _symbol_of(declared)
    enlarged: dict[str, int] = {}

    def common(match: re.Match[str]) -> str:
        enlarged[match[2]] = int(match[3])
        return f"{match[1]}{match[2]},{int(match[3]) + _GAP},"

    text = re.sub(rf"^(\t\.comm\t)({name}),(\d+),", common, assembly, flags=re.MULTILINE)
    return re.sub(rf"^({name}:\n(?:{_DIRECTIVE})+)", rf"\1\t.zero\t{_GAP}\n", text, flags=re.MULTILINE), enlarged


def _symbol_of(declared: Sequence[Variable]) -> str:
    names = "|".join(sorted({re.escape(v.name) for v in declared}))
    return rf"(?:{names}|_Z\w*?\d(?:{names})(?:I\w+)?E?)"


def _linked(units: Sequence[_Unit], *, fast: bool) -> Path:
    objects = [str(u.object) for u in units]
    made = cache_folder() / f"{toolchain.digest_of(objects, [])}-program"
    if not made.exists():
        with toolchain.workplace() as folder:
            placed, library = Path(folder) / "program", toolchain.runtime(programs=True, parallel=fast)
            flags = [f"-Wl,-rpath,{library.parent}", *_LINK, *([] if fast else [_CHECKED_LINK])]
            try:
                run_tool([toolchain.gxx(), *objects, "-o", str(placed), str(library), *flags], folder)
            except BuildError as error:
                raise _IncompleteError(str(error)) if _lacks_only_own(str(error)) else error from error
            placed.replace(made)
    return made


def _lacks_only_own(said: str) -> bool:
    names = [m[3] for m in _NO_FUNCTION.finditer(said)]
    return bool(names) and not any(map(_CUDAS.match, names))


_SECTION = re.compile(r"\]\s+(\.data|\.bss)\s+\S+\s+([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)")
_SYMBOL = re.compile(r"^([0-9a-f]+) ([0-9a-f]+) [bBdDrRuVvGg] (\S+)$", re.MULTILINE)


def _described(executable: Path, units: Sequence[_Unit], texts: dict[Path, str]) -> Path:
    """The file of what the emulator must know of a program; others that run it may be reading the file meanwhile."""
    made = executable.with_name(f"{executable.name}.symbols")
    if not made.exists():
        with toolchain.workplace() as folder:
            placed = Path(folder) / made.name
            placed.write_text("".join(f"{line}\n" for line in _lines(executable, units, texts)), "utf-8")
            placed.replace(made)
    return made


def _lines(executable: Path, units: Sequence[_Unit], texts: dict[Path, str]) -> list[str]:
    folder = str(executable.parent)
    said = run_tool(["readelf", "--demangle", "-SsW", str(executable)], folder)
    arrays = [SharedArray(*a) for a in toolchain.shared_arrays(said) if a[0] not in _OWN]
    spans = [(int(m[2], 16), int(m[3], 16)) for m in _SECTION.finditer(said)]
    lines = [f"data {min(a for a, _ in spans):x} {max(a + size for a, size in spans):x}"] if spans else []
    lines.append(f"greatest {Built(executable, tuple(arrays)).shared_bytes}")
    lines += _variable_lines(units, run_tool(["nm", "-S", "--defined-only", str(executable)], folder))
    lines += _function_lines(device_functions(texts.values()), executable)
    lines += [f"shared {a.offset} {a.size} {_word(a.name)}" for a in arrays]
    names = [file.name for file in texts]
    called = {file: file.name if names.count(file.name) == 1 else str(file.absolute()) for file in texts}
    known = known_of(texts.values())
    sources = {called[file]: rewritten(rewrite_launches(text, known)) for file, text in texts.items()}
    places = subscripts(sources, {a.name for a in arrays})
    lines += [
        f"subscript {s.line} {s.column} {s.closing_line} {s.closing_column} {s.further} {s.name} {s.file}"
        for s in places
        if " " not in s.file
    ]
    return lines


def _variable_lines(units: Sequence[_Unit], table: str) -> list[str]:
    sizes = {name: size for unit in units for name, size in unit.enlarged.items()}
    declared = {v.name: v for unit in units for v in unit.variables}
    if not declared:
        return []
    symbol = re.compile(_symbol_of(list(declared.values())))
    inner = re.compile(rf"({'|'.join(sorted(map(re.escape, declared), key=len, reverse=True))})(?:I\w+)?E?$")
    lines = []
    for match in _SYMBOL.finditer(table):
        name = inner.search(match[3])
        if symbol.fullmatch(match[3]) and name:
            size = sizes.get(match[3], int(match[2], 16))
            lines.append(f"variable {_KINDS[declared[name[1]].kind]} {match[1]} {size} {name[1]}")
    return lines


def _function_lines(names: set[str], executable: Path) -> list[str]:
    """Functions of the device, and where classes have their virtual functions: the host has addresses of its own."""
    if not names:
        return []
    named = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    kinds = rf"[tTwWui] (?:[^(\n]*\b)?({named})(?:<[^\n]*>)?\(|[VvdDrR] vtable for (.+)$"
    symbol = re.compile(rf"^([0-9a-f]+) ([0-9a-f]+) (?:{kinds})", re.MULTILINE)
    table = run_tool(["nm", "-SC", "--defined-only", str(executable)], str(executable.parent))
    return [
        f"variable {_KINDS['function' if m[3] else 'class']} {m[1]} {int(m[2], 16)} {_word(m[3] or m[4])}"
        for m in symbol.finditer(table)
    ]


def _word(name: str) -> str:
    return re.sub(r"\s+", "_", name) or "-"


_LIBRARIES = {
    "PyTorch's C++ API": r"torch/|ATen/|c10/",
    "cuBLAS": "cublas",
    "cuRAND's host API": r"curand\.h",
    "cuFFT": "cufft",
    "cuSPARSE": "cusparse",
    "cuSOLVER": "cusolver",
    "cuDNN": "cudnn",
    "NCCL": "nccl",
    "NPP": "npp",
    "NVML": "nvml",
    "CUTLASS": "cutlass/|cute/",
}
"""Headers of what is not emulated."""
_FEATURES = {
    "texture references are not emulated, nor known to CUDA since version 12": r"^'texture' (?:does not name|was not)",
    "the driver API is not emulated": r".*'CUresult cu[A-Z]",
    "launches by kernels are not emulated": "cudaGetParameterBuffer|cudaLaunchDevice",
    "a launch takes <<<grid, block, shared memory, stream>>>, the last two if wanted": r"\bsimt_launch\(",
}
"""What an error of g++ is about."""
_NO_ASSEMBLY = "SIMT_UNSUPPORTED_asm"
"""What an asm statement is that nobody has rewritten."""
_CUDAS = re.compile(r"cu(?:da|blas(?:Lt)?|rand|fft|sparse|solver\w\w|dnn)?[A-Z]|(?:nccl|npp|nvml|nvrtc)[A-Z]?")
"""Functions of CUDA's libraries."""
_SPACES = "(?:cuda|cub|cg|cooperative_groups|nvcuda)"
_DEVICES = (
    r"(?:surf|tex)(?:[123]D|Cubemap)\w*|curand_(?:poisson|discrete|mtgp32|log_normal|normal4_d|uniform[24]_d)\w*"
    r"|__(?:is[A-Z]|cluster)\w+|(?:this_)?(?:cluster|multi_grid)(?:_group)?"
)
"""What kernels have, and is not emulated."""
_MEMBER = re.compile(rf"'([\w:]+)' (?:is not a member of|in (?:namespace|class|struct)) '({_SPACES}\b[^']*)'")
"""What a namespace of CUDA's has not here."""
_UNKNOWN = re.compile(
    rf"'((?:{_CUDAS.pattern})\w*|{_SPACES}::[\w:]+|{_DEVICES})'"
    " (?:was not declared|does not name a type|has not been declared)"
)
_ERROR = re.compile(r"^(.*?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", re.MULTILINE)
_FROM = re.compile(r"^(?:In file included)?\s*from ([^:\n]+):(\d+)", re.MULTILINE)
_NO_FUNCTION = re.compile(r"(?:([^\s:]+):(\d+):)? ?undefined reference to `([^']+)'")
_TWICE = re.compile(r"(?:([^\s:]+):(\d+):)? ?multiple definition of `([^']+)'")
_EARLY = re.compile(r"_|THRUST_|CUB_|CCCL_|CUDA|NDEBUG")
"""Macros that headers of CUDA and of the C library ask for."""
_MACRO = re.compile(r"[^\W\d]\w*(?:\([^()]*\))?(?:=|$)")
_NO_HEADER = re.compile(r"(\S+): No such file or directory")


def sentence_of(said: str, own: set[str]) -> str:
    """The first error of g++ or the linker as one sentence with its line."""
    if missing := [*_NO_FUNCTION.finditer(said)]:
        return _undefined(next((m for m in missing if _CUDAS.match(m[3])), missing[0]))
    if twice := _TWICE.search(said):
        at = f" ({Path(twice[1]).name}, line {twice[2]})" if twice[1] else ""
        return f"{twice[3]} is defined twice{at}"
    match = _ERROR.search(said)
    if not match:
        return f"g++ could not compile {' or '.join(sorted(own))}: {said.strip().splitlines()[0]}"
    file, line, what = Path(match[1]).name, match[2], match[3]
    including = [m for m in _FROM.finditer(said) if Path(m[1]).name in own]
    if file not in own and including:
        first = including[-1]
        what = "inline PTX" if _NO_ASSEMBLY in what else what
        return f"a header that {Path(first[1]).name} includes in line {first[2]} is not emulated ({file}: {what})"
    return _of_line(what, f"{file}, line {line}")


def _of_line(what: str, at: str) -> str:
    if _NO_ASSEMBLY in what or what.endswith("is not emulated"):  # which are a macro's words
        return f"{'inline PTX is not emulated' if _NO_ASSEMBLY in what else what} ({at})"
    if header := _NO_HEADER.search(what):
        library = next((name for name, its in _LIBRARIES.items() if re.match(its, header[1])), "")
        missing = f"the header {header[1]} is neither emulated nor found ({at})"
        return f"{library} is not emulated ({at}, includes {header[1]})" if library else missing
    if member := _MEMBER.match(what):
        return f"{member[2]}::{member[1]} is not emulated ({at})"
    unknown = _UNKNOWN.match(what)
    known = (name for name, its in _FEATURES.items() if re.search(its, what))
    feature = f"{unknown[1]} is not emulated" if unknown else next(known, "")
    return f"{feature} ({at})" if feature else f"{at}: g++ says: {what}"


def _undefined(match: re.Match[str]) -> str:
    name = match[3].split("(")[0]
    at = f" ({Path(match[1]).name}, line {match[2]})" if match[1] else ""
    if name == "main":
        return "no file has a main function"
    return f"{name} is not emulated{at}" if _CUDAS.match(name) else f"{name} is defined nowhere{at}"
