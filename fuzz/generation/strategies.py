"""Strategies from a contract to cases: recipes, never tensors.

`build` is the grammar: it asks for integers in closed ranges, plainest value lowest, and makes a case of the answers.
Two askers exist: Hypothesis (`cases`, for anybody's `@given`) and the engine (fuzz/generation/engines.py). Both record
the same sequence of choices, so a failure of one can be shrunk by the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from hypothesis import strategies as st

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.specials import PLACES, SINCE, VALUES
from kernel_assay.corpus.model.base import GENERATOR_VERSION, SCHEMA_VERSION, Scalar
from kernel_assay.corpus.model.campaign import GENERATION
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.spec.axes import Attrs, Dims, product_of, shape_of
from kernel_assay.oracles.spec.contract import Contract, Input, Output

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
PACKED = ("exact_blocks", *("blocks",) * 4, "wild_blocks")
"""What an input of packed blocks may be filled with."""
COUNTS = ("zeros", "uniform", "edge_indices")
"""What indices and lengths may be filled with."""
EXTRA_WEIGHT = 3
INPUT_WEIGHT = 2
OUTPUT_WEIGHT = 7
MAX_WORK = 1 << 23
"""Multiplications of a case: what a slow subject does in well under a second."""


def cases(
    op: str | Contract,
    *,
    dtypes: tuple[str, ...] = (),
    max_elements: int | None = None,
    memory: int | None = None,
    generation: int = GENERATION,
) -> st.SearchStrategy[Case]:
    """Cases of an op, for `@given`.

    dtypes: only these for the first input; max_elements: of the largest tensor; memory: bytes of all inputs and outputs
    together; generation: of the rules by which they are drawn.
    Raises UsageError for an unknown op, or a dtype it does not have.
    """
    contract = contract_of(op) if isinstance(op, str) else op
    known = [v[_first(contract)] for v in contract.variants]
    if dtypes and not set(dtypes) & set(known):
        raise UsageError(f"{contract.name} has no variant of dtype {', '.join(dtypes)}; it has {', '.join(known)}")
    return _cases(contract, dtypes, max_elements, memory, generation)


@st.composite
def _cases(
    draw: st.DrawFn,
    contract: Contract,
    dtypes: tuple[str, ...],
    max_elements: int | None,
    memory: int | None,
    generation: int,
) -> Case:
    def choose(low: int, high: int) -> int:
        return draw(_integers(low, high))

    return build(contract, choose, dtypes=dtypes, max_elements=max_elements, memory=memory, generation=generation)


@cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


def build(
    contract: Contract,
    choose: Choose,
    *,
    dtypes: tuple[str, ...] = (),
    max_elements: int | None = None,
    memory: int | None = None,
    shapes: Sequence[Dims] = (),
    generation: int = GENERATION,
) -> Case:
    """One case from a sequence of choices.

    memory: bytes of all inputs and outputs; shapes: of which it has the first that fits into that, instead of the dims
    that are chosen (which are asked for all the same, and fitted around a shape that does not name them); generation:
    of the lists that answers choose from.
    Raises UsageError if no case is small enough.
    """
    variants = contract.variants
    if dtypes:
        variants = tuple(v for v in variants if v[_first(contract)] in dtypes)
    variant = variants[choose(0, len(variants) - 1)]
    most = max_elements or contract.max_elements
    room = min(most, ROOMS[choose(0, len(ROOMS) - 1)])
    dims, attrs = _choose_dims(contract, choose), _choose_attrs(contract, choose)
    within = Room(room, most, memory, variant)
    lowest = lowest_of(contract)
    fitting = (s for s in shapes if memory is None or memory_of(contract, variant, {**lowest, **s}, attrs) <= memory)
    given = next(fitting, {})
    whole = given and len(given) == len(dims)
    dims = dict(given) if whole else _fit(contract, {**dims, **given}, attrs, within, {**lowest, **given})
    present = _choose_inputs(contract, choose)
    fills = _probe(contract, choose, dims, variant)
    frame = Frame(dims, attrs, choose, generation, plain=bool(fills))
    drafts = {name: frame.tensor(contract.inputs[name], variant[name], fills.get(name)) for name in present}
    return _assemble(contract, drafts, attrs, choose(0, MAX_SEED - 1))


def _choose_attrs(contract: Contract, choose: Choose) -> dict[str, Scalar]:
    """Every attribute; optional ones are varied in one case of EXTRA_WEIGHT + 1 only."""
    extras = any(name in contract.optional for name in contract.attrs) and choose(0, EXTRA_WEIGHT) == EXTRA_WEIGHT
    return {
        name: values[choose(0, len(values) - 1)] if extras or name not in contract.optional else values[0]
        for name, values in contract.attrs.items()
    }


def _choose_inputs(contract: Contract, choose: Choose) -> list[str]:
    """The inputs a case has: an optional one in one case of INPUT_WEIGHT + 1."""
    present: dict[str, bool] = {}
    for name in contract.inputs:
        if name in contract.optional and name not in present:
            present |= dict.fromkeys(contract.group(name), choose(0, INPUT_WEIGHT) == INPUT_WEIGHT)
    return [name for name in contract.inputs if present.get(name, True)]


def _outputs_of(contract: Contract, seed: int) -> dict[str, str]:
    """Layouts of outputs that are not plain: one in OUTPUT_WEIGHT + 1.

    The seed decides, which is drawn anyway: one more question would give all sequences of choices another meaning.
    """
    found = {}
    for name, spec in contract.outputs.items():
        special = [layout for layout in spec.layouts if layout != "contiguous"]
        seed, number = divmod(seed, OUTPUT_WEIGHT + len(special))
        if number >= OUTPUT_WEIGHT:
            found[name] = special[number - OUTPUT_WEIGHT]
    return found


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
        outputs=_outputs_of(contract, seed),
        contracted=False,
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
        dims[name] = choose(dim.least // dim.multiple, dim.most // dim.multiple) * dim.multiple
    return dims


@dataclass(frozen=True, slots=True)
class Room:
    """The room of a case: how large it may be."""

    elements: int
    """Of the largest tensor, where that can be."""
    most: int
    """Likewise, at most."""
    memory: int | None
    """Bytes of all inputs and outputs; None: as many as that makes."""
    variant: Mapping[str, str]


def lowest_of(contract: Contract) -> dict[str, int]:
    """The smallest extents."""
    return {name: dim.least for name, dim in contract.dims.items()}


def _fit(contract: Contract, dims: dict[str, int], attrs: Attrs, room: Room, lowest: Dims) -> dict[str, int]:
    """Halve the largest dimension until every tensor and the work fit; halving keeps what is odd about a size."""
    tensors = [product_of(axes, attrs) for axes in contract.axes]
    while _too_many(tensors, dims, room.elements) or _too_large(contract, dims, attrs, room):
        wide = [name for name, extent in dims.items() if extent > lowest[name]]
        if not wide and _too_many(tensors, dims, room.most) | _too_large(contract, dims, attrs, room):
            raise UsageError(f"the smallest case of {contract.name} needs more elements or memory than a case may have")
        if not wide:
            return dims
        widest = max(wide, key=lambda d: dims[d] // contract.dims[d].multiple)
        step = contract.dims[widest].multiple
        dims = {**dims, widest: max(lowest[widest], dims[widest] // step // 2 * step)}
    return dims


def _too_many(tensors: Sequence[tuple[tuple[str, ...], int]], dims: Dims, most: int) -> bool:
    """Whether one of these products (oracles.spec.axes.product_of) has more elements."""
    return any(math.prod([dims[name] for name in names]) * factor > most for names, factor in tensors)


def _too_large(contract: Contract, dims: dict[str, int], attrs: Attrs, room: Room) -> bool:
    """Whether it is too large, in bytes or in work."""
    if room.memory is not None and memory_of(contract, room.variant, dims, attrs) > room.memory:
        return True
    return contract.work is not None and contract.work(dims) > MAX_WORK


def memory_of(contract: Contract, variant: Mapping[str, str], dims: Dims, attrs: Attrs) -> int:
    """Bytes of all inputs, optional ones among them, and of all outputs."""
    tensors = [(spec.axes, variant[name]) for name, spec in contract.inputs.items()]
    tensors += [(spec.axes, _dtype_of(spec, variant, attrs)) for spec in contract.outputs.values()]
    return sum(math.prod(shape_of(axes, dims, attrs)) * format_of(dtype).bits // 8 for axes, dtype in tensors)


def _dtype_of(spec: Output, variant: Mapping[str, str], attrs: Attrs) -> str:
    if not spec.like:
        return spec.dtype.format(**attrs)
    dtype = variant[spec.like]
    return spec.widened if spec.widened and format_of(dtype).bits == 8 else dtype


def _probe(contract: Contract, choose: Choose, dims: dict[str, int], variant: Mapping[str, str]) -> Mapping[str, Fill]:
    if contract.probe is None or choose(0, PROBE_WEIGHT) < PROBE_WEIGHT:
        return {}
    return contract.probe(dims, variant)


@cache
def distributions_for(spec: Input, dtype: str, generation: int = GENERATION) -> tuple[str, ...]:
    """Names a tensor of this input may be filled with, plainest first."""
    if spec.ranged:
        return spec.distributions or ((*RANGED, "whole", "whole") if spec.inner else RANGED)
    if spec.distributions:
        return tuple(name for name in spec.distributions if _is_drawn(name, generation))
    if spec.packed:
        return PACKED
    if spec.counts:
        return COUNTS
    is_float = format_of(dtype).is_float
    return tuple(
        d.name for d in DISTRIBUTIONS.values() if d.since <= generation and (d.floats if is_float else d.integers)
    )


def _is_drawn(name: str, generation: int) -> bool:
    """Whether a contract's own list has it for cases of a generation; what is not known is refused elsewhere."""
    return name not in DISTRIBUTIONS or DISTRIBUTIONS[name].since <= generation


@cache
def layouts_for(spec: Input) -> tuple[str, ...]:
    """Layouts a tensor of this input may have, plain ones first and as often as all others together."""
    names = spec.layouts or tuple(LAYOUTS)
    return (names[0],) * len(names) + names


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame that all tensors of a case share, while it is made."""

    dims: dict[str, int]
    attrs: Attrs
    choose: Choose
    generation: int
    plain: bool
    """An exact probe: no scales, no special values."""

    def tensor(self, spec: Input, dtype: str, probe: Fill | None) -> Draft:
        """A tensor of this input; probe: its values, if they are settled."""
        choose, draft = self.choose, Draft(shape_of(spec.axes, self.dims, self.attrs), dtype)
        draft.params = spec.params(self.dims, self.attrs)
        if probe is not None and not spec.ranged:
            draft.distribution, draft.scale = probe.distribution, probe.scale
            draft.params = {**draft.params, **probe.params}
        else:
            names = distributions_for(spec, dtype, self.generation)
            draft.distribution = names[choose(0, len(names) - 1)]
            if not spec.ranged and not self.plain and format_of(dtype).is_float:
                draft.scale = SCALES[choose(0, len(SCALES) - 1)] if spec.specials or spec.scaled else 1.0
                draft.specials = _choose_specials(choose, specials_known(self.generation)) if spec.specials else ()
            elif not self.plain and (values := specials_for(spec, dtype, self.generation)):
                draft.specials = _choose_specials(choose, (values, specials_known(self.generation)[1]))
        layouts = layouts_for(spec)
        draft.layout = layouts[choose(0, len(layouts) - 1)]
        return draft


@cache
def specials_for(spec: Input, dtype: str, generation: int = GENERATION) -> tuple[str, ...]:
    """Special values that may be sprinkled into a tensor of this input; of a range, those in it."""
    fmt = format_of(dtype)
    if not fmt.is_float or not spec.specials or (spec.ranged and not spec.inner):
        return ()
    return tuple(name for name in specials_known(generation)[0] if spec.holds(fmt.number(VALUES[name](fmt))))


def _choose_specials(choose: Choose, known: tuple[tuple[str, ...], tuple[str, ...]]) -> tuple[Special, ...]:
    if choose(0, SPECIAL_WEIGHT) < SPECIAL_WEIGHT:
        return ()
    values, places = known
    return (_special(values[choose(0, len(values) - 1)], places[choose(0, len(places) - 1)]),)


@cache
def specials_known(generation: int = GENERATION) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Special values, and the places where they may be."""
    values, places = (tuple(n for n in table if SINCE.get(n, 1) <= generation) for table in (VALUES, PLACES))
    return values, places


@cache
def _special(value: str, place: str) -> Special:
    return Special(value=value, place=place)
