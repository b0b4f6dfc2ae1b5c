"""Import a person's file as Python would import it where it lies: its package, and what lies beside it, are there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.import_limit import import_limit

_OURS = Path(__file__).resolve().parents[2]
"""The folder of the built-in implementations, none of which imports another."""
_ADDED: list[str] = []
"""Folders that files were imported from; at the end of sys.path, so that they hide nothing that is installed."""


def import_file(path: Path) -> ModuleType:
    """Execute a file; with relative imports, as a module of its package. Raises UsageError if that fails.

    What lies in its folder can be imported, and so can the package that it belongs to. Files from several folders may
    each have, say, a `utils` beside them: everybody gets their own, if they import it when they are imported.
    """
    root, name = package_of(path)
    _make_importable(path.parent, root)
    try:
        with import_limit(path):
            return importlib.import_module(name) if _imports_relatively(path) else _executed(path)
    except UsageError:
        raise
    except BaseException as error:  # SystemExit too
        words = f"{type(error).__name__}: {error}".removesuffix(": ")  # many an exception says nothing
        raise UsageError(f"{path} does not import: {words}") from error


def package_of(path: Path) -> tuple[Path, str]:
    """The folder that a file is imported from, and its dotted name there: that of a module, if it is in no package."""
    parts, folder = [] if path.name == "__init__.py" else [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def file_of_module(name: str) -> Path | None:
    """The file of a dotted name, found from the current folder on without importing anything; None: there is none."""
    places: list[str] | None = [str(Path.cwd()), *sys.path]
    origin = None
    for at, part in enumerate(parts := name.split(".")):
        spec = PathFinder.find_spec(".".join(parts[: at + 1]), places) if part and places else None
        if spec is None:
            return None
        origin, places = spec.origin, list(spec.submodule_search_locations or ())
    return Path(origin) if origin and Path(origin).is_file() else None


def stem_of(path: Path) -> str:
    """Name of a file, or of the package that it is."""
    return path.parent.name if path.name == "__init__.py" else path.stem


def _executed(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"subject_{abs(hash(path))}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _imports_relatively(path: Path) -> bool:
    tree = ast.parse(path.read_bytes())
    return any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(tree))


def _make_importable(folder: Path, root: Path) -> None:
    """Put both at the end of sys.path, and forget modules that others had there under the same names."""
    if folder.is_relative_to(_OURS):
        return
    mine = list(dict.fromkeys([str(folder), str(root)]))
    others = [other for other in _ADDED if other not in mine]
    inside, elsewhere = (tuple(f"{place}/" for place in places) for places in (mine, others))
    for name, module in list(sys.modules.items()) if others else ():
        file = str(getattr(module, "__file__", None))
        if file.startswith(elsewhere) and not file.startswith(inside) and _has(mine, name.partition(".")[0]):
            del sys.modules[name]
    sys.path[:] = [place for place in sys.path if place not in _ADDED]
    _ADDED[:] = [*mine, *others]
    sys.path.extend(place for place in _ADDED if place not in sys.path)


def _has(places: list[str], name: str) -> bool:
    return any(Path(place, f"{name}.py").is_file() or Path(place, name).is_dir() for place in places)


def part_of(module: ModuleType, name: str, place: str) -> Any:
    """What a dotted name stands for in a module, None if there is nothing; a method is that of an instance."""
    found: Any = module
    for part in name.split("."):
        owner, found = found, getattr(found, part, None)
        if isinstance(owner, type) and inspect.isfunction(inspect.getattr_static(owner, part, None)):
            found = getattr(_instance(owner, place), part)
    return found


def as_function(found: Any, place: str) -> Callable[..., Any]:
    """A function: of a class its instance, or what torch's autograd applies; with the parameters that `forward` has.

    Raises UsageError for a class that takes arguments, or whose instances cannot be called.
    """
    owner: Any = found if isinstance(found, type) else getattr(found, "__self__", None)
    is_applied = owner is found or getattr(found, "__name__", "") == "apply"
    if is_applied and type(owner).__name__ == "FunctionMeta":
        return _shaped(owner.apply, owner.forward, skipped=int("setup_context" not in vars(owner)))
    made = _instance(found, place) if isinstance(found, type) else found
    if not callable(made):
        made = getattr(made, "forward", None)
    if made is None:
        raise UsageError(f"{place} is a class whose instances cannot be called; name a function, or CLASS.METHOD")
    if inspect.isroutine(made) or not hasattr(made, "forward"):
        return cast("Callable[..., Any]", made)
    return _shaped(made, getattr(made, "_orig_mod", made).forward, skipped=0)  # _orig_mod: torch.compile has it


def _instance(cls: type, place: str) -> Any:
    try:
        return cls()
    except TypeError as error:
        said = f"{cls.__name__} cannot be made without arguments ({error})"
        raise UsageError(f"{place}: {said}; make an instance in the file, and name that") from error


def _shaped(function: Callable[..., Any], like: Callable[..., Any], skipped: int) -> Callable[..., Any]:
    """A function of any arguments, with the parameters of another one, without its first few."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    try:
        parameters = list(inspect.signature(like).parameters.values())[skipped:]
    except (TypeError, ValueError):  # compiled
        return function
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call
