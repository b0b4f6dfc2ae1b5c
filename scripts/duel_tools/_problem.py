"""What a tool of the duel is given, for tools in Python: the kernel as a function, a reference, and which inputs fit.

    TOOL --kernel FILE --op OP --seconds S --seed N

is a tool's command. It prints {"began": true} when it begins to search; its last line on stdout is JSON, too:
{"found": true, "seconds": 0.4, "tests": 3, "said": "..."}, and "case": "case:...", if it has a word for the test that
failed. The duel has a clock of its own, from the one to the other. A tool that dies of its kernel has found it.
"""

import argparse
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "bench")]

_bench = importlib.import_module("_bench")

import numpy as np  # noqa: E402  where they lie is known by now

from kernel_assay.corpus.errors import InternalError, UsageError  # noqa: E402
from kernel_assay.corpus.formats import Array, format_of  # noqa: E402
from kernel_assay.corpus.inputs.materialize import materialize  # noqa: E402
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe  # noqa: E402
from kernel_assay.corpus.model.subject import Numerics  # noqa: E402
from kernel_assay.fuzz.checking.check import interface_of  # noqa: E402
from kernel_assay.kernels.backend_registry import loader_of  # noqa: E402
from kernel_assay.kernels.backends.support.guard import POISONS  # noqa: E402
from kernel_assay.kernels.catalog import user_subject  # noqa: E402
from kernel_assay.kernels.worker.host import HostAccess  # noqa: E402
from kernel_assay.oracles.catalog import contract_of  # noqa: E402
from kernel_assay.oracles.judging.criteria import due_of  # noqa: E402
from kernel_assay.oracles.judging.failure_mask import failing  # noqa: E402
from kernel_assay.oracles.judging.reference import Reference  # noqa: E402
from kernel_assay.oracles.spec.axes import shape_of  # noqa: E402
from kernel_assay.oracles.spec.contract import Contract, Input  # noqa: E402

asked: Any = None
"""What plain pytest asks about: its tests are in a module of their own."""
ROUND = (64, 128, 256)
"""Extents that a person writes into a test."""
WRITTEN = 20_000
"""Elements of a test that are written out, at most: it takes time that the tool is charged for."""
Inputs = dict[str, Array]


@dataclass(frozen=True)
class Form:
    """Everything of a test but its values."""

    dims: Mapping[str, int]
    dtypes: Mapping[str, str]
    attrs: Mapping[str, Any]


def always(extent: int) -> Callable[[str], int]:
    """The same extent of whatever dimension."""
    return lambda _: extent


def needed(contract: Contract) -> list[str]:
    """Inputs that every test has."""
    return [name for name in contract.inputs if name not in contract.optional]


def forms_of(contract: Contract, dtypes: Sequence[str], extents: Callable[[str], int]) -> Iterator[Form]:
    """Every dtype (of these, if any are named) and combination of attributes, with the extents that are asked for."""
    first = next(iter(contract.inputs))
    dims = {}
    for name, dim in contract.dims.items():
        dims[name] = max(dim.least, min(extents(name), dim.high) // dim.multiple * dim.multiple)
    for variant, values in product(contract.variants, product(*contract.attrs.values())):
        if not dtypes or variant[first] in dtypes:
            yield Form(dims, variant, dict(zip(contract.attrs, values, strict=True)))


def case_of(contract: Contract, form: Form, seed: int) -> Case:
    """A test of normal values in dense memory; what is no plain float is filled as the op wants it."""
    tensors = {name: _recipe(contract.inputs[name], form, name, seed + i) for i, name in enumerate(needed(contract))}
    return Case(op=contract.name, tensors=tensors, attrs=dict(form.attrs))


def _recipe(spec: Input, form: Form, name: str, seed: int) -> TensorRecipe:
    dtype, distribution = form.dtypes[name], "normal"
    if spec.packed:
        distribution = "blocks"
    elif spec.ranged:
        distribution = "between"
    elif spec.counts or not format_of(dtype).is_float:
        distribution = "uniform"
    elif spec.distributions and distribution not in spec.distributions:
        distribution = spec.distributions[0]
    fill = Fill(distribution=distribution, seed=seed, params=spec.params(form.dims, form.attrs))
    return TensorRecipe(shape=shape_of(spec.axes, form.dims, form.attrs), dtype=dtype, fill=fill)


def is_free(spec: Input, dtype: str) -> bool:
    """Whether any float may stand in an input."""
    return not (spec.packed or spec.ranged or spec.counts) and format_of(dtype).is_float


def settled(reference: Reference, name: str, got: Array, due: Array) -> Array:
    """What is due; where the contract leaves open what that is, what a kernel gave, if it is one of the answers."""
    chosen = reference.chosen(name, got)
    numbers = (got, due, *reference.inputs.values())
    if chosen is None and not all(np.isfinite(array).all() for array in numbers):  # else a budget is time for nothing
        budget = reference.budget(Numerics())[name]
        accept = np.broadcast_to(0 if budget.accept is None else budget.accept, due.shape)
        chosen = ((accept & (accept - 1)) != 0) & ~failing(got, reference.want[name], budget)
    return due if chosen is None else np.where(chosen, got, due)


class Problem:
    """A kernel, and what it should do."""

    def __init__(self, kernel: str, op: str) -> None:
        self.contract = contract_of(op)
        self.subject = user_subject(kernel, (op,))
        self._loader = loader_of(self.subject.backend)
        self._drawn: dict[str, tuple[Array, TensorRecipe]] = {}
        self._tried: tuple[Form, Inputs] | None = None

    @cached_property
    def _bound(self) -> Any:
        self._loader.preload()
        return HostAccess(self._loader).bound(self.subject, interface_of(self.contract))

    def forms(self, extents: Callable[[str], int]) -> Iterator[Form]:
        """Every dtype and combination of attributes that the kernel takes, with the extents that are asked for."""
        for form in forms_of(self.contract, self.subject.dtypes, extents):
            if not self._bound.declines(form.attrs, needed(self.contract)):
                yield form

    def draw(self, form: Form, seed: int) -> Inputs:
        """The values of such a test."""
        recipes = case_of(self.contract, form, seed).tensors
        self._drawn = {name: (materialize(recipe), recipe) for name, recipe in recipes.items()}
        return {name: array for name, (array, _) in self._drawn.items()}

    def is_free(self, name: str, form: Form) -> bool:
        """Whether any float may stand in an input."""
        return is_free(self.contract.inputs[name], form.dtypes[name])

    @property
    def token(self) -> str:
        """The test that was compared last, as a word that brings it back; empty: there was none, or it is long."""
        form, inputs = self._tried or (None, {})
        if form is None or sum(a.size for n, a in inputs.items() if a is not self._drawn[n][0]) > WRITTEN:
            return ""
        tensors = {name: _poked(array, *self._drawn[name]) for name, array in inputs.items()}
        return Case(op=self.contract.name, tensors=tensors, attrs=dict(form.attrs)).token

    def compared(self, form: Form, inputs: Inputs) -> Iterator[tuple[str, Array, Array]]:
        """Each output's name, what the kernel gives, and what is right, rounded to its type.

        Nothing, if the kernel declines the test (NotImplementedError). Raises Found for whatever else it raises, and
        for outputs of another form.
        """
        self._tried = form, inputs
        reference = Reference(self.contract, case_of(self.contract, form, 0), inputs)
        try:
            outputs = self._run(form, inputs, reference.specs)
        except NotImplementedError:
            return
        except Exception as error:
            raise Found(f"it raised {type(error).__name__}: {error}") from error
        for name, spec in reference.specs.items():
            got, due = outputs[name], due_of(reference.want[name], format_of(spec.dtype))
            if got.shape != due.shape or got.dtype != due.dtype:
                raise Found(f"{name} is {got.dtype} {got.shape}, not {due.dtype} {due.shape}")
            yield name, got, settled(reference, name, got, due)

    def _run(self, form: Form, inputs: Inputs, specs: Mapping[str, Any]) -> Inputs:
        bound, attrs = self._bound, self._bound.attributes(form.attrs)
        given = [self._loader.wrap(one) for one in inputs.values()]
        if bound.returns:
            back = bound.call(*given, **attrs)
            several = back if isinstance(back, tuple) else (back,)
            return {name: self._loader.unwrap(one).array for name, one in zip(specs, several, strict=True)}
        outputs = {name: poisoned(s.shape, format_of(s.dtype).dtype) for name, s in specs.items()}
        bound.call(*(self._loader.wrap(one) for one in outputs.values()), *given, **attrs)
        return outputs


def poisoned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An output as it is before a run, for all tools alike: NaN, of whatever float, until somebody writes it."""
    return np.full(math.prod(shape) * dtype.itemsize, POISONS[0], np.uint8).view(dtype).reshape(shape)


def _poked(array: Array, drawn: Array, recipe: TensorRecipe) -> TensorRecipe:
    """The recipe of an array: that by which it was drawn, or every element written out."""
    if array is drawn:
        return recipe
    bits = np.ascontiguousarray(array).reshape(-1).view(format_of(recipe.dtype).carrier)
    pokes = tuple((index, int(bits[index])) for index in np.flatnonzero(bits).tolist())
    return recipe.but(fill=Fill(), pokes=pokes)


class Found(Exception):  # noqa: N818  not an error of the tool
    """The kernel is wrong: what was seen, and the case, if the tool knows a word for it."""

    def __init__(self, said: str, case: str = "") -> None:
        super().__init__(said)
        self.case = case


def main(search: Callable[[Problem, Random, "Clock"], None]) -> None:
    """Read the command line of a tool, search, and print the answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--op", required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    clock, said, case = Clock(args.seconds), "", ""
    try:
        problem = Problem(args.kernel, args.op)
        list(problem.forms(always(1)))  # it is loaded, and compiled, before the search begins
        with np.errstate(all="ignore"):
            search(problem, Random(args.seed), clock)
    except Found as found:
        said, case = str(found), found.case or problem.token
    except (UsageError, InternalError) as error:
        parser.error(str(error))
    answer = {"found": bool(said), "seconds": clock.spent, "tests": clock.tests, "said": said[:300], "case": case}
    print("\n" + json.dumps(answer))


class Clock:
    """The time a tool has, and the tests it has made."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._begin, self.tests = seconds, time.monotonic(), 0

    def begin(self) -> None:
        """Begin to search now, and say so."""
        print('\n{"began": true}', flush=True)
        self._begin = time.monotonic()

    @property
    def spent(self) -> float:
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        return self._seconds - self.spent

    @property
    def over(self) -> bool:
        return self.left < 0
