"""The interface of a backend, and the ground of those that run Python files.

A file kernels/backends/<name>.py has a Loader of its name as LOADER and, if its subjects run on a GPU, too, another as
ON_GPU. Which Python file is of which backend says kernels/catalog.py; which a reproducer can call on its own,
reports/reproducer/run.py.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import FORMATS, Array
from kernel_assay.kernels.backends.support.free_memory import filled
from kernel_assay.kernels.backends.support.importing import as_function, import_file, part_of
from kernel_assay.kernels.backends.support.rearranged import rearranged


@dataclass(frozen=True, slots=True)
class Returned:
    """A subject's own result, seen from numpy; where it stays on a device, from torch."""

    array: Any
    """C-contiguous values in a known dtype (or the foreign dtype, whose name then differs)."""
    dtype: str
    contiguous: bool
    address: int
    """Of the first element, to see whether it is an input handed back."""
    place: range = range(0)
    """Addresses of the memory it came in, wherever that is, to see whether the next result lies there too."""
    sealed: Any = None
    """Of a large case, what holds the values where no later run can reach them (boundary/output_transfer.py)."""


class Loader(ABC):
    """An interface to load, feed and read subjects of one backend. Only `unavailable` runs outside the worker."""

    name: str
    streamed = False
    """Whether the last call was to work on a stream of its own, on which its inputs arrived late."""
    keeps_views = False
    """Whether no subject can touch the views that it is called with: the same then serve for all calls of a case."""
    walled = False
    """Whether its subjects read their inputs where they lie on the host, so that walls show who leaves them."""
    interprets = False
    """Whether its kernels take ten times as long as those of others, and a search of many had better spare them."""
    judges = False
    """Whether it has a check mode, in which it judges every access to memory of a run."""
    gpu_only = False
    """Whether its subjects run on a GPU and nowhere else."""
    packages: tuple[str, ...] = ()
    """Distributions it needs; their versions go into the environment record."""

    def unavailable(self) -> str:
        """The reason why it cannot run here, or an empty string. Imports nothing heavy."""
        missing = [p for p in self.packages if importlib.util.find_spec(p) is None]
        return f"{', '.join(missing)} is not installed" if missing else ""

    def versions(self) -> dict[str, str]:
        """Version of every package that is installed."""
        found = {}
        for package in self.packages:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        return found

    def preload(self) -> None:
        """Import what is slow to import; called once in the zygote, before any subject."""
        for package in self.packages:
            import_module(package)

    @abstractmethod
    def load(self, path: Path, function: str) -> Callable[..., Any]:
        """The callable in a file. Raises UsageError if the file does not import or has no such function."""

    def load_with(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """The same with keys that say how it is launched, as TOML; only CUDA files have such."""
        del launch
        return self.load(path, function)

    @abstractmethod
    def wrap(self, view: Array) -> Any:
        """The backend's own tensor over the same memory as a numpy view."""

    def form(self, given: Any) -> Any:
        """What a subject must leave as it is of what `wrap` has made, besides its values."""
        if isinstance(given, np.ndarray):
            return type(given), given.shape, given.strides, given.dtype, given.__array_interface__["data"]
        return None

    @abstractmethod
    def unwrap(self, result: Any) -> Returned:
        """The tensor that a return-style subject gave back. Raises TypeError if it is none."""

    def load_there(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """The callable, for tensors that are on a GPU already: those of large cases, and of proofs over all inputs."""
        del launch
        raise UsageError(f"{path}:{function} cannot be run there: subjects of {self.name} take no tensors of a GPU")

    def wrap_there(self, tensor: Any) -> Any:  # noqa: ARG002  the interface asks for it
        """The backend's own tensor over a tensor of torch's on a GPU."""
        raise InternalError(f"{self.name} subjects cannot be fed there")

    def unwrap_there(self, result: Any) -> Any:  # noqa: ARG002  the interface asks for it
        """The tensor of torch's over what a return-style subject gave back there. Raises TypeError if it is none."""
        raise InternalError(f"{self.name} subjects cannot be read there")

    def stage(self, slab: Array, outputs: Collection[Array]) -> None:
        """Told before each call: the memory in which all buffers of the case lie, with red zones; and its outputs."""
        del slab, outputs

    def prepare(self, seed: int, run: int, *, contracted: bool = False) -> None:
        """Told before each call: a number that the case's seeds give, and which of its two runs this is.

        A backend that may choose in which order threads run chooses it from these. contracted: whether a * b + c is
        rounded once, where that can be chosen.
        """
        del seed, run, contracted

    def free_memory(self, sizes: Collection[int], run: int) -> AbstractContextManager[None]:
        """Let what a subject allocates in a run, of `sizes` bytes above all, be full of that run's byte."""
        return filled(sizes, run)

    def warnings(self) -> list[str]:
        """Doubtful things that the last call did, and that are no fault."""
        return []

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an exception means that memory ran out."""
        return isinstance(error, MemoryError)

    def is_launch_failure(self, error: BaseException) -> bool:
        """Whether an exception means that a kernel could not be launched."""
        del error
        return False

    def noted_launches(self) -> list[str] | None:
        """A list to which each kernel that is launched from now on adds its name; None where launches are not seen."""
        return None

    def wait_for_launches(self, *, wait: bool) -> None:
        """Told whether a call ends when its kernels do, where subjects of the backend are launched by the loader."""
        del wait

    def warm(self) -> None:  # noqa: B027  most have nothing to do
        """Do beforehand what makes a first call slow; called in a worker that waits."""


_OURS = frozenset(f.dtype for f in FORMATS.values())


def _instead(path: Path, module: ModuleType) -> str:
    """Names that a person may use instead, as far as the file defines them."""
    own = [name for name, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__]
    names = [name for name in own if callable(vars(module)[name]) and name[0] != "_"]
    return f"; it has {', '.join(names)}: name one, as in {path.name}:{names[0]}" if names else "; it defines none"


class PythonLoader(Loader):
    """Loads a function from a Python file, anywhere."""

    def load(self, path: Path, function: str) -> Callable[..., Any]:
        """Import the file and pick the function."""
        module = import_file(path)
        found = part_of(module, function, str(path))
        if not callable(found):
            raise UsageError(f"{path} has no function {function!r}{_instead(path, module)}")
        return found  # type: ignore[no-any-return]

    def load_with(self, path: Path, function: str, launch: str) -> Callable[..., Any]:
        """The same, taking what its reference says of arguments; an instance stands for a class."""
        return rearranged(as_function(self.load(path, function), f"{path}:{function}"), launch, lambda found: found)

    def wrap(self, view: Array) -> Any:
        """Numpy subjects get the view itself."""
        return view

    def unwrap(self, result: Any) -> Returned:
        """Accepts arrays and numpy scalars."""
        if not isinstance(result, np.ndarray | np.generic):
            raise TypeError(f"it returned {type(result).__name__}, not an array")
        array = np.asarray(result)
        address = int(array.__array_interface__["data"][0])
        dense = array.flags.c_contiguous
        place = place_of(address, array.nbytes if dense else 1) if isinstance(result, np.ndarray) else range(0)
        if array.dtype not in _OURS:
            # only its form will be looked at
            return Returned(np.broadcast_to(np.uint8(0), array.shape), array.dtype.name, dense, address, place)
        # tobytes keeps 0-d arrays 0-d, which ascontiguousarray does not
        copy = np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
        return Returned(copy, array.dtype.name, dense, address, place)


def place_of(address: int, size: int) -> range:
    """The memory of a result; of one with gaps its first byte stands for all."""
    return range(address, address + size)


class Reserved(Loader):
    """A backend whose name is kept for a loader that this version does not have."""

    def unavailable(self) -> str:
        """Says what is missing: the package, or the loader."""
        return super().unavailable() or f"this version has no loader for {self.name} subjects"

    def preload(self) -> None:
        """Import nothing."""

    def load(self, path: Path, function: str) -> Callable[..., Any]:
        """Refuse."""
        raise UsageError(f"{path}:{function} needs {self.name}, not available here, because {self.unavailable()}")

    def wrap(self, view: Array) -> Any:  # noqa: ARG002  the interface asks for it
        """Never reached: nothing was loaded."""
        raise InternalError(f"{self.name} subjects cannot be fed")

    def unwrap(self, result: Any) -> Returned:  # noqa: ARG002  the interface asks for it
        """Never reached: nothing was loaded."""
        raise InternalError(f"{self.name} subjects cannot be read")
