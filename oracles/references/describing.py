"""What a reference takes and gives: from a table, from annotations, or from examples whose equal extents are probed.

A description is JSON: axes, dtypes and ranges of inputs and weights, the range of each dimension, dtypes of outputs,
and which arguments of a module's class are dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.process.channel import Message
from kernel_assay.oracles.references.loading import Loaded, UnfitError, said_of
from kernel_assay.oracles.spec.axes import dims_in, shape_of, solve

FLOATS = ("float32", "float16", "bfloat16", "float64")
_TEXT = re.compile(
    r"(?P<dtype>\w+)\s*\[(?P<axes>[^\]]*)\]\s*(?:(?P<low>-?[\d.e+-]+)\s*\.\.\s*(?P<high>-?[\d.e+-]+)|<\s*(?P<below>\w+))?\s*"
)
_AXIS = re.compile(r"([A-Za-z_]\w*|\d+)(\*([A-Za-z_]\w*|\d+))*")
ADVICE = 'give the file get_inputs(), or a table such as INPUTS = {"x": "float32[rows, cols]"}'
MOST = {0: 4096, 1: 4096, 2: 4096, 3: 256}
"""Largest extent of dimensions that nobody gives a range, by how many there are; of more of them 48."""
_SMALL = (5, 7, 6, 9, 11, 13, 10, 15, 17, 19, 21, 23)
"""Extents that stand for large ones while axes are probed."""
_LARGE = 24
"""Extents above this are replaced by small ones."""


@dataclass
class Tensor:
    """One input, or a weight."""

    name: str
    axes: list[str]
    dtype: str
    low: float | None = None
    high: float | None = None
    below: str = ""
    weight: str = ""
    """Its name in the module's state; empty: an input of the call."""
    shape: tuple[int, ...] = ()
    """Of the example."""


@dataclass
class Described:
    """A reference as the oracle knows it."""

    tensors: list[Tensor]
    attrs: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, tuple[int, int]] = field(default_factory=dict)
    init: list[Any] = field(default_factory=list)
    init_dims: dict[int, str] = field(default_factory=dict)
    """Which arguments of the class are dimensions."""
    example: dict[str, int] = field(default_factory=dict)
    """Extents with which the reference runs."""
    shapes: list[dict[str, int]] = field(default_factory=list)
    """Extents that its author names."""

    def init_of(self, dims: Mapping[str, int]) -> list[Any]:
        """Arguments of the class for some extents."""
        return [dims[self.init_dims[i]] if i in self.init_dims else value for i, value in enumerate(self.init)]

    def message(self) -> Message:
        """As JSON."""
        return {
            "tensors": [{k: v for k, v in vars(t).items() if k != "shape"} for t in self.tensors],
            "attrs": self.attrs,
            "dims": self.dims,
            "init": self.init,
            "init_dims": {str(i): dim for i, dim in self.init_dims.items()},
            "shapes": self.shapes,
        }


def describe(loaded: Loaded, run: Callable[[Described, Mapping[str, int]], Any]) -> Described:
    """Describe a reference. run: runs it on small random inputs of some extents; raises what it raises.

    Raises UsageError for a reference whose inputs nobody describes, and for what cannot be expressed.
    """
    init = [
        _plain(value, f"argument {n} of {loaded.target.__name__}")
        for n, value in enumerate(loaded.examples("get_init_inputs"))
    ]
    table = {} if loaded.given else dict(loaded.said("INPUTS") or _annotated(loaded))
    if loaded.is_module and not init and any(p.default is p.empty for p in _init_parameters(loaded)):
        raise UsageError(f"{loaded.place}: {loaded.target.__name__} takes arguments; give the file get_init_inputs()")
    found = _from_table(loaded, table, init) if table else _from_examples(loaded, init, run)
    for name, ends in dict(loaded.said("DIMS") or {}).items():
        low, high = (ends, ends) if isinstance(ends, int) else ends
        if not 0 <= low <= high:
            raise UsageError(
                f"{loaded.place}: DIMS[{name!r}] = {ends!r} must be an extent, or the least and the largest"
            )
        if name not in found.dims:
            raise UsageError(f"{loaded.place}: DIMS names {name!r}, which is none of {', '.join(found.dims)}")
        found.dims[name] = (int(low), int(high))
        found.example[name] = min(max(found.example.get(name, low), low), high)
    found.shapes += _named_shapes(loaded, found)
    return found


def _named_shapes(loaded: Loaded, found: Described) -> list[dict[str, int]]:
    """Extents that the file lists itself. Raises UsageError."""
    fixed = {name: low for name, (low, high) in found.dims.items() if low == high}
    shapes = [{**fixed, **one} for one in loaded.said("SHAPES") or []]
    for one in shapes:
        if set(one) != set(found.dims) or any(type(n) is not int or n < 0 for n in one.values()):
            raise UsageError(
                f"{loaded.place}: SHAPES has {one}, which must give {', '.join(found.dims)} an extent each"
            )
    return shapes


def _init_parameters(loaded: Loaded) -> list[Any]:
    import inspect  # noqa: PLC0415

    if "__init__" not in vars(loaded.target):
        return []
    rest = list(inspect.signature(loaded.target.__init__).parameters.values())[1:]
    return [p for p in rest if p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]


def _plain(value: Any, what: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(x, bool | int | float | str) for x in value):
        return list(value)
    raise UsageError(f"{what} is a {type(value).__name__}; it must be a number, a string or a list of them")


def _annotated(loaded: Loaded) -> dict[str, str]:
    found = {p.name: p.annotation for p in loaded.parameters if isinstance(p.annotation, str) and "[" in p.annotation}
    return {name: text.strip("'\"") for name, text in found.items() if _TEXT.fullmatch(text.strip("'\""))}


def _from_table(loaded: Loaded, table: Mapping[str, Any], init: list[Any]) -> Described:
    """Axes, dtypes and ranges in words: `float32[rows, cols] 0..1`, `int64[n] < vocab`."""
    names = [p.name for p in loaded.parameters if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL}]
    needed = [p.name for p in loaded.parameters if p.default is p.empty and p.name in names]
    weights = loaded.weights(init)
    if lost := [name for name in needed if name not in table]:
        raise UsageError(f"{loaded.place}: nothing says what its input {lost[0]!r} is; {ADVICE}")
    if lost := [name for name in table if name not in names and _safe(name) not in map(_safe, weights)]:
        raise UsageError(f"{loaded.place}: INPUTS names {lost[0]!r}, which the reference does not take")
    found = Described([], init=init)
    for name in [*(n for n in names if n in table)]:
        if isinstance(table[name], str):
            found.tensors.append(_read(loaded.place, name, table[name]))
        else:
            found.attrs[name] = _plain(table[name], f"{loaded.place}: INPUTS[{name!r}]")
    for name, value in weights.items():
        axes = [str(n) for n in value.shape]
        found.tensors.append(Tensor(_safe(name), axes, _main(found), weight=name, shape=tuple(value.shape)))
    known = [d for t in found.tensors for axis in t.axes for d in dims_in(axis)]
    if odd := [t for t in found.tensors if t.below and t.below not in known]:
        raise UsageError(f"{loaded.place}: {odd[0].name} < {odd[0].below}, which is no axis of any input")
    if not found.tensors:
        raise UsageError(f"{loaded.place}: no input is a tensor; {ADVICE}")
    _ranges(found, dict.fromkeys(known))
    return found


def _main(found: Described) -> str:
    return next((t.dtype for t in found.tensors if format_of(t.dtype).is_float), "float32")


def _read(place: str, name: str, text: str) -> Tensor:
    match = _TEXT.fullmatch(text.strip())
    if match is None or match["dtype"] not in {*FORMATS, "float"}:
        raise UsageError(
            f"{place}: {name} = {text!r} is not understood; write a dtype and axes, as 'float32[rows, cols]', and a "
            "range if there is one, as 'float32[n] 0..1' or 'int64[n] < rows'"
        )
    axes = [re.sub(r"\s*\*\s*", "*", axis.strip()) for axis in match["axes"].split(",") if axis.strip()]
    if odd := [axis for axis in axes if not _AXIS.fullmatch(axis)]:
        raise UsageError(f"{place}: the axis {odd[0]!r} of {name} must be a name, a number, or a product, as half*2")
    dtype = "float32" if match["dtype"] == "float" else match["dtype"]
    ends = [None if match[end] is None else float(match[end]) for end in ("low", "high")]
    return Tensor(name, axes, dtype, ends[0], ends[1], match["below"] or "")


def _ranges(found: Described, names: Mapping[str, Any]) -> None:
    most = MOST.get(len(names), 48)
    found.dims = dict.fromkeys(names, (1, most))
    found.example = {name: _SMALL[i % len(_SMALL)] for i, name in enumerate(names)}


def _safe(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _dtype_of(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _from_examples(loaded: Loaded, init: list[Any], run: Callable[[Described, Mapping[str, int]], Any]) -> Described:
    examples = loaded.examples("get_inputs")
    if not examples:
        raise UsageError(f"{loaded.place}: nothing says what its inputs are; {ADVICE}")
    names = _names_for(loaded, examples)
    found = Described([], init=init)
    for name, value in zip(names, examples, strict=True):
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            found.tensors.append(_from_example(loaded, name, value))
        elif isinstance(value, list | tuple | dict) and not all(isinstance(x, int | float | str) for x in value):
            raise UsageError(
                f"{loaded.place}: its input {name!r} is a {type(value).__name__}; only tensors and numbers can be"
            )
        elif value is None:
            raise UsageError(f"{loaded.place}: its input {name!r} is None; leave it out of get_inputs()")
        else:
            found.attrs[name] = _plain(value, f"{loaded.place}: its input {name!r}")
    for name, value in loaded.weights(init).items():
        safe = _safe(name) + ("_" if any(t.name == _safe(name) for t in found.tensors) else "")
        found.tensors.append(Tensor(safe, [], _main(found), weight=name, shape=tuple(value.shape)))
    if not found.tensors:
        raise UsageError(f"{loaded.place}: get_inputs() gives no tensor; {ADVICE}")
    return _Probe(loaded, found, run).named()


def _names_for(loaded: Loaded, examples: Sequence[Any]) -> list[str]:
    names = [p.name for p in loaded.parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    if any(p.kind is p.VAR_POSITIONAL for p in loaded.parameters):
        names += [f"x{i}" for i in range(len(examples))]
    if len(names) < len(examples):
        raise UsageError(
            f"{loaded.place}: get_inputs() gives {len(examples)} inputs, but the reference takes {len(names)}"
        )
    return names[: len(examples)]


def _from_example(loaded: Loaded, name: str, value: Any) -> Tensor:
    dtype = _dtype_of(value)
    if dtype not in FORMATS:
        raise UsageError(f"{loaded.place}: its input {name!r} is {dtype}, which is none of {', '.join(FORMATS)}")
    tensor = Tensor(name, [], dtype, shape=tuple(value.shape))
    if not format_of(dtype).is_float and 0 not in tensor.shape:
        tensor.low, tensor.high = float(value.min()), float(value.max())
    return tensor


class _Probe:
    """Finds which axes of the examples belong together, by asking the reference."""

    def __init__(self, loaded: Loaded, found: Described, run: Callable[[Described, Mapping[str, int]], Any]) -> None:
        self.loaded, self.found, self._run = loaded, found, run
        self.ends = [(t, i) for t in found.tensors if not t.weight for i in range(len(t.shape))]
        self.tied: dict[tuple[str, int], str] = {}
        self._given = {t.name: t.shape for t in found.tensors if not t.weight}, list(found.init)

    def named(self) -> Described:
        """The description, with a name for every dimension."""
        self._reduce()
        base = {f"{t.name}{i}": t.shape[i] for t, i in self.ends}
        for t, i in self.ends:
            t.axes.append(f"{t.name}{i}")
        self._name_init()
        self.found.example = {**base, **{dim: self.found.init[i] for i, dim in self.found.init_dims.items()}}
        self._name_weights(self.found.init_dims)
        if why := self._refuses({}):
            raise UsageError(f"{self.loaded.place}: it does not run on its own examples: {why}")
        self._tie()
        self._settle()
        known = [dims for one in self._examples() if (dims := self._dims_of(*one)) is not None]
        self.found.shapes = [dims for i, dims in enumerate(known) if dims not in known[:i]]
        return self.found

    def _examples(self) -> list[tuple[Mapping[str, Sequence[int]], Sequence[Any]]]:
        """Shapes of the examples, and of those that the file names besides."""
        shapes, init = self._given
        more = self.loaded.examples("get_shapes") if self.loaded.said("get_shapes") else []
        return [self._given, *((dict(zip(shapes, one, strict=True)), init) for one in more if len(one) == len(shapes))]

    def _dims_of(self, shapes: Mapping[str, Sequence[int]], init: Sequence[Any]) -> dict[str, int] | None:
        """The extents of dimensions in some shapes; None: they do not fit what was found."""
        axes = {t.name: t.axes for t in self.found.tensors if not t.weight}
        if any(len(axes[name]) != len(shape) for name, shape in shapes.items()):
            return None
        dims = solve([pair for name, shape in shapes.items() for pair in zip(axes[name], shape, strict=True)])
        said = {dim: init[i] for i, dim in self.found.init_dims.items()}
        same = all(i in self.found.init_dims or value == init[i] for i, value in enumerate(self.found.init))
        if dims is None or not same or any(dims.get(dim, n) != n for dim, n in said.items()):
            return None
        dims = {**said, **dims}
        fits = set(dims) >= set(self.found.dims) and all(
            shape_of(axes[name], dims, {}) == tuple(shape) for name, shape in shapes.items()
        )
        return dims if fits else None

    def _reduce(self) -> None:
        """Small extents in the places of large ones, equal ones for equal ones, if the reference runs with them."""
        sizes = [n for t in self.found.tensors for n in t.shape if not t.weight]
        sizes += [n for n in self.found.init if type(n) is int]
        large = sorted({n for n in sizes if n > _LARGE})
        small = (n for n in _SMALL if n not in sizes)
        swap = {n: next(small, n) for n in large}
        if not swap or not self._works(swap):
            swap = {n: -(-n // (1 << max(0, n.bit_length() - 5))) for n in large}  # as even as it was
            if len(set(swap.values())) < len(swap) or not self._works(swap):
                return
        for t in self.found.tensors:
            t.shape = tuple(swap.get(n, n) for n in t.shape)
        self.found.init = [swap.get(n, n) if type(n) is int else n for n in self.found.init]

    def _works(self, swap: Mapping[int, int]) -> bool:
        init = [swap.get(n, n) if type(n) is int else n for n in self.found.init]
        trial = Described([], self.found.attrs, init=init)
        for t in self.found.tensors:
            axes = [] if t.weight else [str(swap.get(n, n)) for n in t.shape]
            trial.tensors.append(Tensor(t.name, axes, t.dtype, t.low, t.high, t.below, t.weight))
        try:
            self._fill_weights(trial, init)
            self._run(trial, {})
        except Exception:  # noqa: BLE001  whatever it says, it does not work
            return False
        return True

    def _fill_weights(self, trial: Described, init: Sequence[Any]) -> None:
        shapes = {name: t.shape for name, t in self.loaded.weights(init).items()}
        for t in trial.tensors:
            if t.weight:
                t.axes = [str(n) for n in shapes[t.weight]]

    def _refuses(self, changes: Mapping[str, int]) -> str:
        try:
            self._run(self.found, {**self.found.example, **changes})
        except UnfitError:
            raise
        except Exception as error:  # noqa: BLE001  a user's own code
            return said_of(error, self.loaded.file)
        return ""

    def _name_init(self) -> None:
        """Arguments of the class on which extents of weights depend are dimensions."""
        names = [p.name for p in _init_parameters(self.loaded)] if self.loaded.is_module else []
        before = {name: tuple(t.shape) for name, t in self._weights(self.found.init)}
        for i, value in enumerate(self.found.init):
            if type(value) is not int or value < 1:
                continue
            for other in (value + 1, 2 * value):
                after = dict(self._weights([*self.found.init[:i], other, *self.found.init[i + 1 :]]))
                if set(after) == set(before) and any(tuple(after[n].shape) != before[n] for n in before):
                    self.found.init_dims[i] = _safe(names[i]) if i < len(names) else f"n{i}"
                    break

    def _weights(self, init: Sequence[Any]) -> list[tuple[str, Any]]:
        try:
            return list(self.loaded.weights(init).items())
        except Exception:  # noqa: BLE001  a user's own code
            return []

    def _name_weights(self, dims: Mapping[int, str]) -> None:
        """Each axis of a weight: a dimension, a multiple of one, or a number. What is neither keeps its argument."""
        init = self.found.init
        base = {name: tuple(t.shape) for name, t in self._weights(init)}
        axes = {name: [str(n) for n in shape] for name, shape in base.items()}
        for i, dim in list(dims.items()):
            for other in (init[i] + 1, 2 * init[i]):
                after = {n: tuple(t.shape) for n, t in self._weights([*init[:i], other, *init[i + 1 :]])}
                if after:
                    break
            named, whole = _multiples(base, after, init[i], other, dim)
            if whole:
                for (name, axis), text in named.items():
                    axes[name][axis] = text
            else:
                del self.found.init_dims[i]
                self.found.example.pop(dim, None)
        for t in self.found.tensors:
            if t.weight:
                t.axes = axes[t.weight]

    def _tie(self) -> None:
        """Axes that can have an extent of their own keep their names; others take that of the ones they go with."""
        free = set()
        for t, i in self.ends:
            dim = f"{t.name}{i}"
            if self._changes((dim,), t.shape[i]):
                free.add(dim)
        extents = {f"{t.name}{i}": t.shape[i] for t, i in self.ends}
        rest = [dim for dim in extents if dim not in free]
        for dim in self.found.init_dims.values():
            rest.insert(0, dim)
            extents[dim] = self.found.example[dim]
        while rest:
            first = rest.pop(0)
            others = [dim for dim in rest if extents[dim] == extents[first]]
            inits = set(self.found.init_dims.values())
            for group in ([], *([o] for o in others), others):
                if self._changes((first, *group), extents[first]):
                    rest = [dim for dim in rest if dim not in group]
                    self._merge(first, [dim for dim in group if dim not in inits], group)
                    break
            else:
                self._fix(first, extents[first])

    def _changes(self, dims: Sequence[str], extent: int) -> bool:
        """Whether these can have another extent together; of a 1 it may be that it only stands for any."""
        return extent > 1 and any(not self._refuses(dict.fromkeys(dims, n)) for n in (extent + 1, 2 * extent))

    def _merge(self, kept: str, gone: Sequence[str], group: Sequence[str]) -> None:
        swap = dict.fromkeys([*gone, *group], kept)
        for t in self.found.tensors:
            t.axes = ["*".join(swap.get(part, part) for part in axis.split("*")) for axis in t.axes]
        self.found.init_dims = {i: swap.get(dim, dim) for i, dim in self.found.init_dims.items()}
        for dim in swap:
            self.found.example.pop(dim, None)

    def _fix(self, dim: str, extent: int) -> None:
        """A number, where the reference takes no other."""
        for t in self.found.tensors:
            t.axes = [
                str(shape_of([axis], {**self.found.example, dim: extent}, {})[0]) if axis.split("*")[0] == dim else axis
                for axis in t.axes
            ]
        self.found.init_dims = {i: one for i, one in self.found.init_dims.items() if one != dim}
        self.found.example.pop(dim, None)

    def _settle(self) -> None:
        """Ranges of dimensions, of indices, and of inputs that must not be negative."""
        example = self.found.example
        self.found.dims = dict.fromkeys(example, (1, MOST.get(len(example), 48)))
        for t in self.found.tensors:
            if not format_of(t.dtype).is_float and not t.below:
                self._index(t)
        for t in self.found.tensors:
            if t.weight.endswith("running_var"):
                t.low, t.high = 0.0, 16.0

    def _index(self, t: Tensor) -> None:
        """An integer input is an index if the reference takes no number beyond some dimension."""
        old = t.low, t.high
        for dim, extent in self.found.example.items():
            t.low = t.high = float(extent - 1)
            inside = not self._refuses({})
            t.low = t.high = float(extent)
            if inside and self._refuses({}):
                t.low, t.high, t.below = None, None, dim
                return
        t.low, t.high = old


def _multiples(
    base: Mapping[str, tuple[int, ...]], after: Mapping[str, tuple[int, ...]], value: int, other: int, dim: str
) -> tuple[dict[tuple[str, int], str], bool]:
    """Axes that have changed, as multiples of a dimension; whether all of them are."""
    found: dict[tuple[str, int], str] = {}
    for name, shape in base.items():
        if len(after.get(name, ())) != len(shape):
            return {}, False
        for axis, (old, new) in enumerate(zip(shape, after[name], strict=True)):
            if old == new:
                continue
            if old * other != new * value or old % value:
                return {}, False
            found[name, axis] = dim if old == value else f"{dim}*{old // value}"
    return found, True


def random_tensor(t: Tensor, shape: Sequence[int], dims: Mapping[str, int], seed: int) -> Any:
    """Small numbers of an input's kind, as a numpy array: floats as float64."""
    draw = np.random.default_rng(seed)
    fmt = format_of(t.dtype)
    if fmt.is_float:
        low, high = -2.0 if t.low is None else t.low, 2.0 if t.high is None else t.high
        return draw.uniform(low, high, shape)
    low, high = (0, dims[t.below] - 1) if t.below else (int(t.low or 0), int(t.high or 0))
    return draw.integers(low, high + 1, shape).astype(fmt.dtype)
