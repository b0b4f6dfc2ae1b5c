"""The backends there are. One file per backend in kernels/backends/, found by its name: the folder is the list."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.kernels import backends as folder
from kernel_assay.kernels.backends.support.base import Loader


@cache
def _files() -> dict[str, ModuleType]:
    """The files of backends by name. Raises InternalError if a file and its loader have different names."""
    found: dict[str, ModuleType] = {}
    for module in iter_modules(folder.__path__):
        if module.ispkg:
            continue  # what backends stand on
        found[module.name] = import_module(f"kernel_assay.kernels.backends.{module.name}")
        if (name := found[module.name].LOADER.name) != module.name:
            raise InternalError(f"kernels/backends/{module.name}.py must define {module.name!r}, not {name!r}")
    return found


@cache
def loaders() -> dict[str, Loader]:
    """All backends by name, as they run where nothing else is said."""
    return {name: file.LOADER for name, file in _files().items()}


@cache
def on_gpu() -> dict[str, Loader]:
    """Those whose subjects run on a GPU, too, as they run there, by name."""
    return {name: file.ON_GPU for name, file in _files().items() if hasattr(file, "ON_GPU")}


def is_on_gpu(subject: Subject) -> bool:
    """Whether a subject runs on a GPU where it is placed."""
    return subject.device == "cuda" or loader_of(subject.backend).gpu_only


def loader_of(name: str) -> Loader:
    """The loader of a backend, or of `backend@cuda` the one that runs its subjects on a GPU.

    Raises UsageError for an unknown backend, and for one that has nothing to do with a GPU.
    """
    backend, _, device = name.partition("@")
    if backend not in loaders():
        raise UsageError(f"backend {backend!r} is not known; the known ones are {', '.join(loaders())}")
    if not device:
        return loaders()[backend]
    found = on_gpu().get(backend)
    if device != "cuda" or found is None:
        raise UsageError(f"backend {backend!r} does not run on device {device!r}")
    return found
