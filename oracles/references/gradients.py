"""The gradient of a reference as a reference itself: its inputs and a cotangent of each output, and where it jumps.

An element of a gradient is not judged where the reference has none, as at 1 / 0, or where it jumps: next to a kink, as
that of relu at 0, or of a maximum that two numbers share, right kernels differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.gradients import Gradient
from kernel_assay.oracles.numerics.following.intervals import Span
from kernel_assay.oracles.references.description import Described, Tensor, random_tensor
from kernel_assay.oracles.references.loading import Loaded
from kernel_assay.oracles.spec.axes import shape_of

Evaluate = Callable[[Described, Mapping[str, int], Mapping[str, Any], Mapping[str, Any], str], dict[str, Any]]
Dims = Mapping[str, int]
MOST = 64
"""Largest extent of an axis of a cotangent that no formula gives."""
UNITS, LEAST = 4.0, 2.0**-42
"""Distance that inputs are moved to see whether a gradient jumps: in roundings of the working type, and at least."""
FINER = 256.0
"""Times that they are moved less beside that; what is smooth changes so many times less, too."""
SMALL, SMALL_WIDE = 2.0**-100, 2.0**-996
"""Differences from a gradient that do not count, the latter in float64: factors are multiplied in any order, and the
smallest numbers that there are may be lost between them."""
DRAWS = 2
"""Directions in which they are moved, each of them forwards and backwards."""


class Derived:
    """A reference that was derived from another one, whose gradient it is."""

    def __init__(
        self,
        loaded: Loaded,
        described: Described,
        outputs: Mapping[str, str],
        evaluate: Evaluate,
        tensor: Callable[[Any, str], Any],
    ) -> None:
        """Raises UsageError for a reference without a gradient.

        described: of the function; cotangents are added to it. outputs: its dtypes. evaluate: runs the function;
        tensor: makes a tensor of an array, and a width.
        """
        self._torch, self._evaluate, self._tensor = loaded.torch, evaluate, tensor
        self._function = replace(described, tensors=list(described.tensors))
        self._floats = {t.name: t.dtype for t in described.tensors if format_of(t.dtype).is_float}
        self.outputs: dict[str, str] = {}
        """Dtypes of the gradients."""
        if self._torch is None:
            raise UsageError(f"{loaded.place}: a gradient is taken by torch's autograd, so the reference must be torch")
        if changed := [one.name for one in described.arguments if one.inout]:
            raise UsageError(f"{loaded.place}: it changes its input {changed[0]!r}; a gradient is of what is returned")
        with self._torch.enable_grad():
            leaves = self._leaves(self._example(described.example), "float64")
            results = self._run(described.example, leaves, described.attrs, "float64")
        there = [name for name, dtype in outputs.items() if format_of(dtype).is_float and results[name].requires_grad]
        if not there:
            raise UsageError(f"{loaded.place}: no output depends on an input by operations that have a gradient")
        self.gradient = Gradient(tuple(outputs), {}, {}, {})
        self._add_cotangents(described, {name: outputs[name] for name in there})
        self._add_gradients(leaves, results)

    def _example(self, dims: Dims) -> dict[str, Array]:
        """Small random inputs."""
        tensors = self._function.tensors
        return {t.name: random_tensor(t, shape_of(t.axes, dims, {}), dims, seed) for seed, t in enumerate(tensors)}

    def _add_cotangents(self, described: Described, outputs: Mapping[str, str]) -> None:
        """Describe a cotangent of each output, its axes by the dimensions of the inputs if they follow from those."""
        taken = {*(t.name for t in described.tensors), *described.attrs, *(one.name for one in described.arguments)}
        trials = [(dims, shapes) for dims in self._trials() if (shapes := self._shapes(dims))]
        cotangents, repeated = dict[str, str](), dict[str, tuple[int, ...]]()
        for output, dtype in outputs.items():
            name = _unused(f"grad_{output}", taken)
            axes = [
                _formula(i, [(dims, shapes[output]) for dims, shapes in trials])
                for i in range(len(trials[0][1][output]))
            ]
            for i, axis in enumerate(axes):
                if axis is None:
                    axes[i] = dim = f"{name}_{i}"
                    extent = max(1, trials[0][1][output][i])
                    described.dims[dim], described.example[dim] = (1, max(MOST, extent)), extent
                    described.shapes = [{**one, dim: extent} for one in described.shapes]
            described.tensors.append(Tensor(name, [str(axis) for axis in axes], dtype))
            cotangents[output] = name
            if free := tuple(i for i, axis in enumerate(axes) if axis == f"{name}_{i}"):
                repeated[name] = free
        self.gradient = replace(self.gradient, cotangents=cotangents, repeated=repeated)

    def _add_gradients(self, leaves: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Name the gradients that there are: of each input to which something comes."""
        taken, gradients = set(self.gradient.given), {}
        for name in leaves:
            gradients[_unused(f"grad_{name}", taken)] = name
        trial = replace(self.gradient, gradients=gradients)
        begun = {name: self._torch.ones_like(results[output]) for output, name in trial.cotangents.items()}
        made = trial.backward(results, leaves, begun)
        gradients = {name: of for name, of in gradients.items() if made[name] is not None}
        self.gradient = replace(self.gradient, gradients=gradients)
        self.outputs = {name: self._floats[of] for name, of in gradients.items()}

    def _trials(self) -> Iterable[dict[str, int]]:
        """Extents at which shapes of outputs are looked at: the example, then each dimension changed, then all."""
        usual = dict(self._function.example)
        steps = {name: [*ends, 1][2] if len(ends) > 2 else 1 for name, ends in self._function.dims.items()}
        free = {name: n for name, n in usual.items() if self._function.dims[name][0] < self._function.dims[name][1]}
        yield usual
        for name, n in free.items():
            for other in (n + steps[name], 2 * n, 3 * n):
                yield {**usual, name: other}
        yield {**usual, **{name: 2 * n for name, n in free.items()}}
        yield {**usual, **{name: n + steps[name] for name, n in free.items()}}

    def _shapes(self, dims: Dims) -> dict[str, tuple[int, ...]] | None:
        """Shapes of the function's outputs; None: it does not take these extents."""
        try:
            made = self._evaluate(self._function, dims, self._example(dims), self._function.attrs, "float64")
        except (Exception, SystemExit):  # noqa: BLE001  a user's own code
            return None
        return {name: tuple(one.shape) for name, one in made.items()}

    def _leaves(self, arrays: Mapping[str, Any], width: str) -> dict[str, Any]:
        """Inputs of which there are gradients, as tensors that require them; what is no float stays as it is."""
        with np.errstate(invalid="ignore"):
            return {name: self._tensor(a, width).requires_grad_() for name, a in arrays.items() if name in self._floats}

    def _run(self, dims: Dims, given: Mapping[str, Any], attrs: Mapping[str, Any], width: str) -> dict[str, Any]:
        rest = self._example(dims)
        return self._evaluate(self._function, dims, {**rest, **given}, attrs, width)

    def called(
        self, dims: Dims, arrays: Mapping[str, Any], attrs: Mapping[str, Any], width: str = "float64"
    ) -> dict[str, Any]:
        """The gradients by name; 0 where nothing comes to an input, and empty for one that a case does not have."""
        given = {name: a for name, a in arrays.items() if name not in self.gradient.given}
        with self._torch.enable_grad():
            leaves = self._leaves(given, width)
            results = self._evaluate(self._function, dims, {**given, **leaves}, attrs, width)
            for output in results.keys() & self.gradient.cotangents.keys():
                _as_stored(results[output])
            begun = {}
            for output, name in self.gradient.cotangents.items():
                cotangent, shape = self._tensor(arrays[name], width), tuple(results[output].shape)
                begun[name] = self.gradient.fitted(name, cotangent, shape)
                if tuple(begun[name].shape) != shape:
                    raise ValueError(f"its output {output} has shape {shape}, which no dimension explains")
            made = self.gradient.backward(results, leaves, begun)
        return {name: self._there(made[name], leaves.get(of)) for name, of in self.gradient.gradients.items()}

    def _there(self, made: Any, leaf: Any) -> Any:
        if made is None:
            return self._torch.zeros(0) if leaf is None else self._torch.zeros_like(leaf)
        return made

    def widened(self) -> AbstractContextManager[Any]:
        """While it is entered, numbers are not rounded to narrower types."""
        from kernel_assay.oracles.references.torch.widened import Widened  # noqa: PLC0415  it needs torch

        return Widened()  # type: ignore[no-untyped-call]

    @property
    def check(self) -> Any:
        """The part of torch that compares gradients with differences."""
        return self._torch.autograd

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the inputs and of the outputs between which there are gradients."""
        return tuple(self._floats), tuple(self.gradient.cotangents)

    @contextmanager
    def differentiable(
        self, dims: Dims, inputs: Mapping[str, Array], attrs: Mapping[str, Any]
    ) -> Iterator[tuple[Callable[..., tuple[Any, ...]], tuple[Any, ...]]]:
        """The function of its inputs in floating point, and these as tensors, while gradients are on."""
        given = {name: a for name, a in inputs.items() if name not in self.gradient.given}
        leaves = self._leaves(given, "float64")

        def function(*tensors: Any) -> tuple[Any, ...]:
            mine = {**given, **dict(zip(leaves, tensors, strict=True))}
            results = self._evaluate(self._function, dims, mine, attrs, "float64")
            return tuple(results[output] for output in self.gradient.cotangents)

        with self._torch.enable_grad():
            yield function, tuple(leaves.values())

    def refuses(self, inputs: Mapping[str, Array]) -> str:
        """Say why gradients are not judged for some inputs; empty if they are."""
        odd = [n for n in inputs if format_of(inputs[n].dtype).is_float and not np.isfinite(inputs[n]).all()]
        return f"{odd[0]} is not finite, and gradients are judged at numbers only" if odd else ""

    def judged(
        self,
        dims: Dims,
        inputs: Mapping[str, Array],
        attrs: Mapping[str, Any],
        want: Mapping[str, Array],
        spans: Mapping[str, Span],
        unit: float,
    ) -> tuple[dict[str, Span], int]:
        """The limits, without any where the gradient has no value or jumps, and of how many elements that is."""
        jumps = self.jumps(dims, inputs, attrs, want, spans, unit)
        found, count, small = {}, 0, SMALL if unit > 2.0**-50 else SMALL_WIDE
        for name, span in spans.items():
            free = jumps[name] | ~np.isfinite(want[name]) | (np.isneginf(span.low) & np.isposinf(span.high))
            count += int(free.sum())
            low, high = np.where(free, -np.inf, span.low - small), np.where(free, np.inf, span.high + small)
            found[name] = Span(span.value, low, high)
        return found, count

    def jumps(
        self,
        dims: Dims,
        inputs: Mapping[str, Array],
        attrs: Mapping[str, Any],
        want: Mapping[str, Array],
        spans: Mapping[str, Span],
        unit: float,
        floor: float = 2.0**-126,
    ) -> dict[str, Array]:
        """Mark elements that change by more than their limits, and not in proportion, where inputs move a little.

        floor: numbers move no less than one of this size does.
        """
        step, draw = max(UNITS * unit, LEAST), np.random.default_rng(0)
        room = {name: 2.0 * np.maximum(want[name] - s.low, s.high - want[name]) for name, s in spans.items()}
        found = {name: np.zeros(x.shape, np.bool_) for name, x in want.items()}
        for _ in range(DRAWS):
            ways = {n: draw.uniform(0.5, 1.0, inputs[n].shape) for n in self._floats if n in inputs}
            ways = {n: way * draw.choice([-1.0, 1.0], way.shape) for n, way in ways.items()}
            for side in (step, -step):
                try:
                    far, near = (
                        self.called(dims, _moved(inputs, ways, size, floor), attrs) for size in (side, side / FINER)
                    )
                except (Exception, SystemExit):  # noqa: BLE001, S112  a user's own code does not take what is so near
                    continue
                for name, x in want.items():
                    change, less = (np.abs(np.asarray(made[name], np.float64) - x) for made in (far, near))
                    large = ~(np.maximum(change, less) <= room[name])
                    jumped = (less > change / 16.0) | (change > 16.0 * FINER * less) | ~np.isfinite(change + less)
                    found[name] |= large & jumped & np.isfinite(x)
        return found


def _as_stored(output: Any) -> None:
    """Let an output that is followed be what a kernel has stored of it, rounded: a backward pass may begin with that.

    What autograd has kept of it lies in the same memory.
    """
    if (followed := getattr(output, "followed", None)) is None:
        return
    fmt, (value, low, high) = format_of(followed.arithmetic.question.case.dtype), followed.span
    if fmt.is_float and fmt.unit > followed.arithmetic.unit and low.flags.writeable and 0 not in low.strides:
        room = np.where(np.isfinite(value), fmt.unit * np.abs(value) + fmt.eta / 2.0, 0.0)
        low -= room
        high += room


def _moved(inputs: Mapping[str, Array], ways: Mapping[str, Array], size: float, floor: float) -> dict[str, Array]:
    """Inputs that are moved by so many times their size."""
    made = dict(inputs)
    for name, way in ways.items():
        x = inputs[name].astype(np.float64)
        made[name] = x + size * way * np.maximum(np.abs(x), floor)
    return made


def _unused(name: str, taken: set[str]) -> str:
    """The name, with as many _ behind it as it takes to be new."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _formula(axis: int, trials: list[tuple[Dims, tuple[int, ...]]]) -> str | None:
    """An extent as a product of dimensions and a number, from shapes at some extents; None if it is none."""
    (usual, first), *others = trials
    if any(len(shape) != len(first) for _, shape in others) or not first[axis]:
        return None
    factors = []
    for name, n in usual.items():
        alone = [t for t in others if t[0][name] != n and all(t[0][k] == usual[k] for k in usual if k != name)]
        if alone and alone[0][1][axis] * n == first[axis] * alone[0][0][name]:
            factors.append(name)
    number, rest = divmod(first[axis], math.prod(usual[name] for name in factors))
    made = [number * math.prod(dims[name] for name in factors) for dims, _ in trials]
    if rest or made != [shape[axis] for _, shape in trials]:
        return None
    return "*".join([*factors, *([str(number)] if number > 1 or not factors else [])])
