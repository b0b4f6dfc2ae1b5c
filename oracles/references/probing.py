"""Dimensions found by asking a reference: which axes of its examples belong together, and what extents are made of."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.oracles.references.description import LARGE, SMALL, Described, Tensor, safe_name, usual_range
from kernel_assay.oracles.references.loading import Loaded, UnfitError, said_of
from kernel_assay.oracles.spec.axes import shape_of, solve
from kernel_assay.oracles.spec.contract import Dim

SPAN = 24
"""Up to twice this, extents are tried to see what all that are taken are multiples of."""


class Probe:
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
        dims = solve(tuple(pair for name, shape in shapes.items() for pair in zip(axes[name], shape, strict=True)))
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
        large = sorted({n for n in sizes if n > LARGE})
        small = (n for n in SMALL if n not in sizes)
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
        trial = Described([], self.found.attrs, arguments=self.found.arguments, init=init)
        for t in self.found.tensors:
            axes = [] if t.weight else [str(swap.get(n, n)) for n in t.shape]
            trial.tensors.append(replace(t, axes=axes))
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
        names = [p.name for p in init_parameters(self.loaded)] if self.loaded.is_module else []
        before = {name: tuple(t.shape) for name, t in self._weights(self.found.init)}
        for i, value in enumerate(self.found.init):
            if type(value) is not int or value < 1:
                continue
            for other in (value + 1, 2 * value):
                after = dict(self._weights([*self.found.init[:i], other, *self.found.init[i + 1 :]]))
                if set(after) == set(before) and any(tuple(after[n].shape) != before[n] for n in before):
                    self.found.init_dims[i] = safe_name(names[i]) if i < len(names) else f"n{i}"
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
        extents = {f"{t.name}{i}": t.shape[i] for t, i in self.ends}
        for t in self.found.tensors:
            if t.structure:  # square in every case
                *_, rows, columns = (f"{t.name}{i}" for i in range(len(t.shape)))
                self._merge(rows, [columns], [])
                del extents[columns]
        free = {dim for dim, extent in extents.items() if self._changes((dim,), extent)}
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
        self.found.dims = dict.fromkeys(example, usual_range(len(example)))
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


def learn_multiples(found: Described, takes: Callable[[Mapping[str, int]], bool]) -> None:
    """Find dimensions of which the reference takes multiples of a number only, as of a number of groups."""
    for name, ends in found.dims.items():
        low, high = max(1, ends[0]), min(Dim(*ends).most, 2 * max(found.example[name], SPAN))
        if len(ends) == 3 or low >= high or takes({**found.example, name: found.example[name] + 1}):
            continue
        taken = [n for n in range(low, high + 1) if takes({**found.example, name: n})]
        step = math.gcd(*taken)
        if len(taken) > 1 and step > 1 and taken == [n for n in range(low, high + 1) if n % step == 0]:
            found.dims[name] = (*ends[:2], step, *ends[3:])


def init_parameters(loaded: Loaded) -> list[Any]:
    """Parameters of a class of modules, without `self`."""
    if "__init__" not in vars(loaded.target):
        return []
    rest = list(inspect.signature(loaded.target.__init__).parameters.values())[1:]
    return [p for p in rest if p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]
