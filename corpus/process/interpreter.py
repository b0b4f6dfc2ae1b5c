"""Another Python, in whose environment subjects run: what it has, what it is lent of ours, and what it lacks.

A worker needs numpy, and a few packages that a person has no reason to install. Modules of ours stand in for pydantic,
of which a kernel may need any version. Compiled packages that an interpreter has not are lent to it if it is of our own
version of Python; any other one does without.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from kernel_assay.corpus.errors import UsageError

COMPILED = ("llvmlite", "ml_dtypes")
"""What a worker imports besides numpy, pydantic and its own code."""
STAND_INS = Path(__file__).with_name("stand_ins")
"""The folder of the modules that stand in for pydantic, ..."""
STOOD_IN = ("pydantic", "pydantic_core")
"""... and their names."""
LIBRARIES = {"torch": ("torch",), "triton": ("torch", "triton"), "triton_as_is": ("torch", "triton"), "cupy": ("cupy",)}
"""What kernels of a backend import, by its name."""
_OLDEST = (3, 11)
_WITHOUT = {
    "ml_dtypes": "cases of bfloat16 and float8 are declined",
    "llvmlite": "reads outside a tensor that end the process are not told from other crashes",
}
_ASK = """
import json, sys
from importlib.util import find_spec
names = sys.argv[1:]
print(json.dumps([sys.implementation.cache_tag, sys.version_info[:3], [n for n in names if find_spec(n) is not None]]))
"""
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python, as it has answered."""

    path: str
    tag: str
    """Of the files that it compiles, such as cpython-311: compiled packages are made for one."""
    version: tuple[int, ...]
    has: frozenset[str]
    """Which of the packages that were asked for."""

    @property
    def lent(self) -> dict[str, str]:
        """What it is lent: by name, the folder it is imported from."""
        return {name: _folder_of(name) for name in COMPILED if name not in self.has} if self.is_like_ours else {}

    @property
    def is_like_ours(self) -> bool:
        """Whether it can import what was compiled for this process."""
        return self.tag == sys.implementation.cache_tag

    @property
    def goes_without(self) -> dict[str, str]:
        """What it neither has nor is lent, and what cannot be done for that reason."""
        return {name: why for name, why in _WITHOUT.items() if name not in self.has and name not in self.lent}

    def lacks(self, backends: Sequence[str] = ()) -> list[str]:
        """What must be installed in it before subjects of these backends run."""
        needed = ["numpy", *(name for backend in backends for name in LIBRARIES.get(backend, ()))]
        return [name for name in dict.fromkeys(needed) if name not in self.has]

    def refusal(self, backends: Sequence[str] = ()) -> str:
        """Why subjects of these backends cannot run in it, in one sentence; empty: they can."""
        said = f"{self.path} is Python {'.'.join(map(str, self.version))}"
        if self.version < _OLDEST:
            return f"{said}; the sandbox needs {'.'.join(map(str, _OLDEST))} or newer"
        names = self.lacks(backends)
        return f"{said} and lacks {', '.join(names)}: run {self.path} -m pip install {' '.join(names)}" if names else ""


def _folder_of(name: str) -> str:
    spec = find_spec(name)
    assert spec is not None, "this process has imported it"
    assert spec.origin is not None
    file = Path(spec.origin)
    return str(file.parent.parent if spec.submodule_search_locations else file.parent)


def interpreter(path: str) -> Interpreter:
    """Ask a Python what it is. Raises UsageError if it is gone, or is none."""
    if not os.access(path, os.X_OK):
        raise UsageError(f"the interpreter {path} does not exist, or is no program")
    return _asked(path)


@cache
def _asked(path: str) -> Interpreter:
    names = ["numpy", *COMPILED, *dict.fromkeys(name for names in LIBRARIES.values() for name in names)]
    try:
        asked = subprocess.run([path, "-c", _ASK, *names], capture_output=True, text=True, timeout=_SECONDS, check=True)
        tag, version, has = json.loads(asked.stdout)
        return Interpreter(path, tag, tuple(version), frozenset(has))
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{path} does not say within {_SECONDS:g} s which Python it is") from error
    except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
        raise UsageError(f"{path} is no interpreter of Python: it does not answer as one does") from error


def hand_back() -> None:
    """Let subjects find the pydantic that is installed for them, now that our own modules have what stands in for it.

    Where none is installed it stays, for those of ours that are imported later.
    """
    fronts = [finder for finder in sys.meta_path if getattr(finder, "stands_in", False)]
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in fronts] + fronts
    for name in STOOD_IN:
        if fronts and PathFinder.find_spec(name) is not None:
            sys.modules.pop(name, None)


def path_of(place: str) -> str:
    """The program that a path names: itself, or that of a virtual environment. Links lead elsewhere and stay."""
    path = Path(place).absolute()
    return str(path / "bin" / "python" if path.is_dir() else path)


def name_of(path: str) -> str:
    """A short name for an interpreter: that of its environment, or its own."""
    file = Path(path)
    return file.parent.parent.name if (file.parent.parent / "pyvenv.cfg").is_file() else file.name
