"""A user's reference as it stands in a file or a module: its function, what it says of its inputs, and its modules."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.reference_place import Target
from kernel_assay.corpus.process.import_limit import import_limit
from kernel_assay.oracles.references.examples import examples_in

_TELLING = ("Model", "reference", "ref", "forward")
"""Names of a reference, where nobody names one."""
SEED = 0
"""Of whatever a reference draws when its module is made, or its examples."""


class UnfitError(UsageError):
    """What a reference does makes it none, whatever its inputs are."""


@dataclass
class Loaded:
    """A reference: a function, or a class of modules."""

    place: str
    """As it was named."""
    file: Path
    target: Any
    module: ModuleType
    torch: Any = None
    """The library, if the reference is made of it."""
    given: tuple[Any, ...] = ()
    """Examples of its inputs that were given with its name; they stand before what its file says of them."""
    _models: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    @property
    def is_module(self) -> bool:
        """Whether it is a class of modules."""
        return isinstance(self.target, type)

    @property
    def stem(self) -> str:
        """Name of its file, or of the package that it is."""
        return self.file.parent.name if self.file.name == "__init__.py" else self.file.stem

    @property
    def digest(self) -> str:
        """Digest of its file."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()[:16]

    @cached_property
    def parameters(self) -> list[inspect.Parameter]:
        """Parameters of the call, without `self`."""
        called = self.target.forward if self.is_module else self.target
        found = list(inspect.signature(called).parameters.values())
        return found[1:] if self.is_module else found

    def said(self, name: str, usual: Any = None) -> Any:
        """What the file says by a name of its own, as INPUTS or get_inputs."""
        return getattr(self.module, name, usual)

    def examples(self, name: str) -> list[Any]:
        """The inputs that get_inputs or get_init_inputs gives; none, if there is no such function."""
        if self.given and name == "get_inputs":
            return list(self.given)
        make = self.said(name)
        if make is None:
            return []
        self.seed()
        found: Any = None
        try:
            with self.width("float32"):  # what a person writes without a dtype
                found = make()
        except (Exception, SystemExit) as error:
            raise UsageError(f"{self.place}: {name}() raises {said_of(error, self.file)}") from error
        return list(found) if isinstance(found, list | tuple) else [found]

    @contextmanager
    def width(self, dtype: str) -> Iterator[None]:
        """What torch makes of numbers without a dtype, for a while."""
        if self.torch is None:
            yield
            return
        usual = self.torch.get_default_dtype()
        self.torch.set_default_dtype(getattr(self.torch, dtype))
        try:
            yield
        finally:
            self.torch.set_default_dtype(usual)

    @contextmanager
    def formulas(self) -> Iterator[None]:
        """Let torch attend by its formula for a while: its own kernel looks at no extents, and loses a NaN."""
        if self.torch is None:
            yield
            return
        settings = self.torch.backends.cuda  # of processors, too
        usual = settings.flash_sdp_enabled()
        settings.enable_flash_sdp(False)
        try:
            yield
        finally:
            settings.enable_flash_sdp(usual)

    def seed(self) -> None:
        """Set the seeds of everything that may be drawn."""
        import numpy as np  # noqa: PLC0415

        np.random.seed(SEED)  # noqa: NPY002  a user's own code draws from it
        if self.torch is not None:
            self.torch.manual_seed(SEED)

    @property
    def mode(self) -> str:
        """The mode of its modules, as the file says by MODE: eval, or train."""
        return str(self.said("MODE", "eval"))

    def model(self, init: Sequence[Any], width: str = "float64") -> Any:
        """The module for some arguments of its class, its numbers of a dtype; a function itself."""
        if not self.is_module:
            return self.target
        key = (width, *map(repr, init))
        if key not in self._models:
            self.seed()
            try:
                with self.width("float64"):
                    made = self.target(*init)
            except (Exception, SystemExit) as error:
                what = f"{self.target.__name__}({', '.join(map(repr, init))})"
                raise UsageError(f"{self.place}: {what} raises {said_of(error, self.file)}") from error
            self._models[key] = made.to(getattr(self.torch, width)).train(self.mode == "train")
        return self._models[key]

    def weights(self, init: Sequence[Any]) -> dict[str, Any]:
        """Parameters and buffers that a case gives, by name; counters, masks and tables are left as they are."""
        if not self.is_module:
            return {}
        state = self.model(init).state_dict(keep_vars=True)
        tables = self._tables(init)
        return {name: t.detach() for name, t in state.items() if t.is_floating_point() and name not in tables}

    def _tables(self, init: Sequence[Any]) -> set[str]:
        """Names of buffers of a person's own classes in which nothing is drawn: they are what the class makes."""
        model, tables = self.model(init), set[str]()
        for name, buffer in model.named_buffers():
            owner = model.get_submodule(name.rpartition(".")[0])
            if not type(owner).__module__.startswith("torch.") and buffer.is_floating_point():
                tables.add(name)
        if tables:
            self.torch.manual_seed(SEED + 1)
            with self.width("float64"):
                other = dict(self.target(*init).named_buffers())
            same = {name for name, buffer in model.named_buffers() if buffer.equal(other[name].to(buffer.dtype))}
            tables &= same
        return tables

    def call(self, model: Any, inputs: Sequence[Any], weights: Mapping[str, Any], more: Mapping[str, Any]) -> Any:
        """Run it. model: as it was made; weights: by name, of a module."""
        if not self.is_module:
            return model(*inputs, **more)
        return self.torch.func.functional_call(model, dict(weights), tuple(inputs), dict(more))


def load(place: str, folder: Path) -> Loaded:
    """The reference that `FILE[:NAME]` or `module:NAME` names; folder: where modules are looked for.

    Raises UsageError if there is none, or if its file does not run.
    """
    where, name, examples, _ = target_named = Target.read(place)
    is_package = not target_named.is_file and (folder / where / "__init__.py").is_file()
    if not where or ((folder / where).is_dir() and not is_package):
        what = f"{where} is a folder" if where else f"{place!r} names no file"
        raise UsageError(f"the reference {what}; name a file and what is the reference there, as ref.py:fn")
    given = examples_in(place, examples)
    place = str(target_named._replace(examples="", grad=False))
    if target_named.is_file:
        module, file = _executed(Path(os.path.realpath(folder / where)))
    else:
        module, file = _imported(where, folder)
    name = name or next((one for one in _TELLING if hasattr(module, one)), "") or _only(module)
    target = getattr(module, name, None)
    if target is None or not callable(target):
        raise UsageError(f"{where} has no function or class {name!r}{_instead(module)}")
    torch = sys.modules.get("torch") if _uses_torch(module, target) else None
    if isinstance(target, type) and not (torch is not None and issubclass(target, torch.nn.Module)):
        raise UsageError(f"{place}: the class {name} is no nn.Module of torch; a reference is one, or a function")
    if torch is not None:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        torch.backends.mha.set_fastpath_enabled(False)  # it is one operator that nobody can look into
    loaded = Loaded(place, file, target, module, torch, given)
    if loaded.mode not in {"eval", "train"}:
        raise UsageError(f"{place}: MODE = {loaded.mode!r} must be 'eval' or 'train'")
    return loaded


def _uses_torch(module: ModuleType, target: Any) -> bool:
    """Whether a function speaks of torch; where it names no library itself, or is a class, whether its file does."""
    if "torch" not in sys.modules:
        return False
    reached = _libraries(_named_in(target, set()))
    if reached & {"torch", "numpy"}:
        return "torch" in reached
    return "torch" in _libraries([*vars(module).values(), *getattr(target, "__globals__", {}).values()])


def _libraries(values: Iterable[Any]) -> set[str]:
    """Names of the libraries that some values are, or come from."""
    modules = [one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None) for one in values]
    return {str(name).partition(".")[0] for name in modules}


def _named_in(function: Any, met: set[str]) -> list[Any]:
    """The values of names that a function mentions, and those of its own module that it calls."""
    code, known = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    names = [] if code is None else [name for name in code.co_names if name in known and name not in met]
    met.update(names)
    found = [known[name] for name in names]
    return found + [more for one in found if getattr(one, "__globals__", None) is known for more in _named_in(one, met)]


def _executed(file: Path) -> tuple[ModuleType, Path]:
    if not file.is_file():
        raise UsageError(f"the reference {file} does not exist")
    sys.path.insert(0, str(file.parent))
    spec = spec_from_file_location(f"reference_{file.stem}", file)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module
    _run(lambda: spec.loader.exec_module(module), file)  # type: ignore[union-attr]
    return module, file


def _imported(name: str, folder: Path) -> tuple[ModuleType, Path]:
    sys.path.insert(0, str(folder))
    found: list[ModuleType] = []
    _run(lambda: found.append(importlib.import_module(name)), Path(name))
    file = inspect.getsourcefile(found[0])
    if file is None:
        raise UsageError(f"the module {name} has no file of its own; name a file, as ref.py:fn")
    return found[0], Path(file)


def _run(work: Callable[[], Any], file: Path) -> None:
    with import_limit(file):
        try:
            work()
        except (Exception, SystemExit) as error:
            raise UsageError(f"{file} does not import: {said_of(error, file)}") from error


def said_of(error: BaseException, file: Path) -> str:
    """One line about an exception: its type, its words, and where in the file it came up."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)]
    words = " ".join(str(error).split())
    short = words if len(words) <= 200 else words[:200] + "..."
    return type(error).__name__ + (f": {short}" if short else "") + (f" (line {lines[-1]})" if lines else "")


def _own(module: ModuleType) -> list[str]:
    made = [n for n, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__ and callable(one)]
    return [name for name in made if name[0] != "_" and name not in {"get_inputs", "get_init_inputs"}]


def _only(module: ModuleType) -> str:
    own = _own(module)
    if not own:
        raise UsageError(f"{module.__file__} defines no function and no class, so there is no reference in it")
    if len(own) != 1:
        raise UsageError(f"{module.__file__} has {', '.join(own)}: name the reference, as FILE:NAME")
    return own[0]


def _instead(module: ModuleType) -> str:
    own = _own(module)
    return f"; it has {', '.join(own)}" if own else ""
