"""From a contract to cases: recipes, never tensors.

`build` is the grammar: it asks for integers in closed ranges, plainest value lowest, and makes a case of the answers.
Two askers exist: Hypothesis (`cases`, for anybody's `@given`) and the engine (fuzz/engine.py). Both record the same
sequence of choices, so a failure of one can be shrunk by the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from hypothesis import strategies as st

from corpus.distributions import DISTRIBUTIONS
from corpus.errors import UsageError
from corpus.formats import format_of
from corpus.layouts import LAYOUTS
from corpus.record import GENERATOR_VERSION, SCHEMA_VERSION, Scalar
from corpus.records import Case, Fill, Special, TensorRecipe
from corpus.specials import PLACES, VALUES
from oracles.catalog import contract_of
from oracles.contract import Contract, Input, shape_of

Choose = Callable[[int, int], int]
"""Asks for an integer between two bounds, both included."""

SCALES = (*(1.0,) * 8, 0.5, 4.0, 30.0, 2.0**-10, 2.0**10, 2.0**-30, 2.0**24, 2.0**-60, 2.0**63)
"""Repeats are weights: the plain scale eight times in seventeen."""

MAX_SEED = 1 << 16
SPECIAL_WEIGHT = 3
"""One tensor in SPECIAL_WEIGHT + 1 gets a special value."""
PROBE_WEIGHT = 7
"""One case in PROBE_WEIGHT + 1 is an exact probe, where the contract has one."""
ROOMS = (*(1 << 9,) * 4, *(1 << 11,) * 8, *(1 << 13,) * 3, 1 << 30)
"""Elements of the largest tensor: most bugs show in small cases, and those are cheap; some cases get all the room."""
ROOM_QUESTION = 1
"""The number of the question for it."""
RANGED = ("least", "ends", *("between",) * 4, *("tapered",) * 2)
"""What an input with a range may be filled with; repeats are weights."""
MAX_WORK = 1 << 23
"""Multiplications of a case: what a slow subject does in well under a second."""


def cases(
    op: str | Contract, *, dtypes: tuple[str, ...] = (), max_elements: int | None = None
) -> st.SearchStrategy[Case]:
    """Cases of an op, for `@given`. dtypes: only these for the first input; max_elements: of the largest tensor.

    Raises UsageError for an unknown op, or a dtype it does not have.
    """
    contract = contract_of(op) if isinstance(op, str) else op
    known = [v[_first(contract)] for v in contract.variants]
    if dtypes and not set(dtypes) & set(known):
        raise UsageError(f"{contract.name} has no variant of dtype {', '.join(dtypes)}; it has {', '.join(known)}")
    return _cases(contract, dtypes, max_elements)


@st.composite
def _cases(draw: st.DrawFn, contract: Contract, dtypes: tuple[str, ...], max_elements: int | None) -> Case:
    return build(contract, lambda low, high: draw(_integers(low, high)), dtypes=dtypes, max_elements=max_elements)


@cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


def build(contract: Contract, choose: Choose, *, dtypes: tuple[str, ...] = (), max_elements: int | None = None) -> Case:
    """One case from a sequence of choices."""
    variants = contract.variants
    if dtypes:
        variants = tuple(v for v in variants if v[_first(contract)] in dtypes)
    variant = variants[choose(0, len(variants) - 1)]
    room = min(max_elements or contract.max_elements, ROOMS[choose(0, len(ROOMS) - 1)])
    dims = _fit(contract, _choose_dims(contract, choose), room)
    attrs = {name: values[choose(0, len(values) - 1)] for name, values in contract.attrs.items()}
    fills = _probe(contract, choose, dims, variant)
    drafts = {
        name: _choose_tensor(spec, variant[name], dims, choose, fills.get(name), plain=bool(fills))
        for name, spec in contract.inputs.items()
    }
    return _assemble(contract, drafts, attrs, choose(0, MAX_SEED - 1))


def _assemble(contract: Contract, drafts: Mapping[str, Draft], attrs: dict[str, Scalar], seed: int) -> Case:
    """The case with every tensor on its own field: seeds seed*n, seed*n + 1, ..."""
    n = len(drafts)
    tensors = {name: _recipe(draft, seed * n + i) for i, (name, draft) in enumerate(drafts.items())}
    return Case.trusted(
        schema_version=SCHEMA_VERSION,
        generator_version=GENERATOR_VERSION,
        op=contract.name,
        tensors=tensors,
        attrs=attrs,
    )


def _recipe(draft: Draft, seed: int) -> TensorRecipe:
    fill = Fill.trusted(distribution=draft.distribution, seed=seed, scale=draft.scale, params=draft.params)
    return TensorRecipe.trusted(
        shape=draft.shape,
        dtype=draft.dtype,
        origin=(),
        layout=draft.layout,
        fill=fill,
        specials=draft.specials,
        pokes=(),
    )


@dataclass(slots=True)
class Draft:
    """A tensor's recipe before it has a seed."""

    shape: tuple[int, ...]
    dtype: str
    layout: str = "contiguous"
    distribution: str = "zeros"
    scale: float = 1.0
    params: dict[str, int | float] = field(default_factory=dict)
    specials: tuple[Special, ...] = ()


def _first(contract: Contract) -> str:
    return next(iter(contract.inputs))


def _choose_dims(contract: Contract, choose: Choose) -> dict[str, int]:
    dims = {}
    for name, dim in contract.dims.items():
        low, high = -(-dim.low // dim.multiple), dim.high // dim.multiple
        dims[name] = choose(low, high) * dim.multiple
    return dims


def _fit(contract: Contract, dims: dict[str, int], max_elements: int) -> dict[str, int]:
    """Halve the largest dimension until every tensor and the work fit; halving keeps what is odd about a size."""
    while _too_large(contract, dims, max_elements):
        widest = max(dims, key=lambda d: dims[d] // contract.dims[d].multiple)
        step = contract.dims[widest].multiple
        dims = {**dims, widest: max(contract.dims[widest].low, dims[widest] // step // 2 * step)}
    return dims


def _too_large(contract: Contract, dims: dict[str, int], max_elements: int) -> bool:
    shaped = [i.axes for i in contract.inputs.values()] + [o.axes for o in contract.outputs.values()]
    if any(math.prod(shape_of(axes, dims)) > max_elements for axes in shaped):
        return True
    return contract.work is not None and contract.work(dims) > MAX_WORK


def _probe(contract: Contract, choose: Choose, dims: dict[str, int], variant: Mapping[str, str]) -> Mapping[str, Fill]:
    if contract.probe is None or choose(0, PROBE_WEIGHT) < PROBE_WEIGHT:
        return {}
    return contract.probe(dims, variant)


@cache
def distributions_for(spec: Input, dtype: str) -> tuple[str, ...]:
    """Names a tensor of this input may be filled with, plainest first."""
    if spec.ranged:
        return RANGED
    if spec.distributions:
        return spec.distributions
    is_float = format_of(dtype).is_float
    return tuple(d.name for d in DISTRIBUTIONS.values() if (d.floats if is_float else d.integers))


@cache
def layouts_for(spec: Input) -> tuple[str, ...]:
    """Layouts a tensor of this input may have, plain ones first and as often as all others together."""
    names = spec.layouts or tuple(LAYOUTS)
    return (names[0],) * len(names) + names


def _choose_tensor(
    spec: Input, dtype: str, dims: dict[str, int], choose: Choose, probe: Fill | None, *, plain: bool
) -> Draft:
    draft = Draft(shape_of(spec.axes, dims), dtype)
    if probe is not None and not spec.ranged:
        draft.distribution, draft.scale, draft.params = probe.distribution, probe.scale, probe.params
    else:
        names = distributions_for(spec, dtype)
        draft.distribution = names[choose(0, len(names) - 1)]
        draft.params = spec.params(dims)
        if spec.specials and not spec.ranged and not plain and format_of(dtype).is_float:
            draft.scale = SCALES[choose(0, len(SCALES) - 1)]
            draft.specials = _choose_specials(choose)
    layouts = layouts_for(spec)
    draft.layout = layouts[choose(0, len(layouts) - 1)]
    return draft


_VALUES, _PLACES = tuple(VALUES), tuple(PLACES)


def _choose_specials(choose: Choose) -> tuple[Special, ...]:
    if choose(0, SPECIAL_WEIGHT) < SPECIAL_WEIGHT:
        return ()
    value, place = _VALUES[choose(0, len(_VALUES) - 1)], _PLACES[choose(0, len(_PLACES) - 1)]
    return (_special(value, place),)


@cache
def _special(value: str, place: str) -> Special:
    return Special(value=value, place=place)
