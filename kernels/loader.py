"""The backends there are. One file per backend in kernels/loaders/, found by its name: the folder is the list."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from corpus.errors import InternalError, UsageError
from kernels import loaders as folder
from kernels.backend import Loader


@cache
def loaders() -> dict[str, Loader]:
    """All backends by name. Raises InternalError if a file and its loader have different names."""
    found: dict[str, Loader] = {}
    for module in iter_modules(folder.__path__):
        loader: Loader = import_module(f"kernels.loaders.{module.name}").LOADER
        if loader.name != module.name:
            raise InternalError(f"kernels/loaders/{module.name}.py must define {module.name!r}, not {loader.name!r}")
        found[loader.name] = loader
    return found


def loader_of(backend: str) -> Loader:
    """The loader of a backend. Raises UsageError for an unknown one."""
    known = loaders()
    if backend not in known:
        raise UsageError(f"backend {backend!r} is not known; the known ones are {', '.join(known)}")
    return known[backend]
