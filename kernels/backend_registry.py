"""The backends there are. One file per backend in kernels/loaders/, found by its name: the folder is the list."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.kernels import backends as folder
from kernel_assay.kernels.backends.support.base import Loader
from kernel_assay.kernels.gpu_backends import ON_GPU


@cache
def loaders() -> dict[str, Loader]:
    """All backends by name. Raises InternalError if a file and its loader have different names."""
    found: dict[str, Loader] = {}
    for module in iter_modules(folder.__path__):
        if module.ispkg:
            continue  # what backends stand on
        loader: Loader = import_module(f"kernel_assay.kernels.backends.{module.name}").LOADER
        if loader.name != module.name:
            raise InternalError(f"kernels/backends/{module.name}.py must define {module.name!r}, not {loader.name!r}")
        found[loader.name] = loader
    return found


def loader_of(name: str) -> Loader:
    """The loader of a backend, or of `backend@cuda` the one that runs its subjects on a GPU.

    Raises UsageError for an unknown backend, and for one that has nothing to do with a GPU.
    """
    backend, _, device = name.partition("@")
    known = loaders()
    if backend not in known:
        raise UsageError(f"backend {backend!r} is not known; the known ones are {', '.join(known)}")
    if not device:
        return known[backend]
    found = ON_GPU.get(backend)
    if device != "cuda" or found is None:
        raise UsageError(f"backend {backend!r} does not run on device {device!r}")
    return found
