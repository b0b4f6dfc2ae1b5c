"""Make the record of a run before it begins, and the targets that cases are generated for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import product

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.specials import VALUES
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.campaign import GENERATION, Campaign, RunOptions, Space
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking import check_mode
from kernel_assay.fuzz.checking.subjects import bears_far, most_elements, takes
from kernel_assay.fuzz.checking.user_references import described, unfollowed_of
from kernel_assay.fuzz.generation.elites import MOST_LEAD
from kernel_assay.fuzz.generation.engines import Target
from kernel_assay.fuzz.generation.model_shapes import check_dims, must_fit
from kernel_assay.fuzz.generation.strategies import distributions_for, layouts_for, specials_for
from kernel_assay.fuzz.planning.coverage import last_class
from kernel_assay.fuzz.planning.goals import Reach, goals_of
from kernel_assay.fuzz.triage.failures import now
from kernel_assay.kernels.backend_registry import is_on_gpu
from kernel_assay.kernels.backends.simt.processor import no_contraction
from kernel_assay.kernels.catalog import layouts_taken, size_hints
from kernel_assay.kernels.environment import environment
from kernel_assay.kernels.sandbox.sandbox import Sandbox
from kernel_assay.oracles.catalog import contract_of, origin_of
from kernel_assay.oracles.large.parts import BEYOND
from kernel_assay.oracles.spec.axes import Dims, filled, parse_axis
from kernel_assay.oracles.spec.contract import Contract, Dim, Input

USUAL = RunOptions()
BYTES, WIDEST = 160, 32
"""Bytes an element that a worker needs to make a case and to compute in float64, and those of its tensors alone."""


def fitted(campaign: Campaign, sandbox: Sandbox) -> Campaign:
    """The campaign with what loading its subjects has told about the optional parts of their ops.

    Subjects of one's own decide; built-in peers decline what they cannot take.
    """
    mine = {op: [s.key for s in deciding(op, campaign.subjects)] for op in campaign.ops}
    unused = {op: tuple(sorted(frozenset.intersection(*(sandbox.lacks[k] for k in keys)))) for op, keys in mine.items()}
    needed = {op: tuple(sorted(frozenset.intersection(*(sandbox.needs[k] for k in keys)))) for op, keys in mine.items()}
    return campaign.but(
        unused={op: names for op, names in unused.items() if names},
        needed={op: names for op, names in needed.items() if names},
    )


def targets(campaign: Campaign, max_elements: int | None = None) -> list[Target]:
    """Targets of a search: every op with the dtypes of its space, and the sizes and options that subjects suggest."""
    found, memory = [], campaign.chosen.case_memory << 20
    for op in campaign.ops:
        cells = (cell.partition("|") for cell in campaign.space)
        dtypes = tuple(sorted(dtype for name, _, dtype in cells if name == op))
        hints = tuple(sorted({n for s in campaign.subjects if s.op == op for n in size_hints(s)}))
        layouts = campaign.layouts.get(op, {})
        contract = contract_of(op).narrowed(campaign.unused.get(op, ()), campaign.needed.get(op, ()), layouts)
        if campaign.generation < 2:  # then an input with a range had neither small integers nor special values
            inputs = {name: replace(spec, inner=False) for name, spec in contract.inputs.items()}
            contract = replace(contract, inputs=inputs)
        longest = 0 if campaign.generation < 2 else _longest(campaign, contract, max_elements)
        found.append(
            Target(
                contract,
                dtypes,
                hints,
                max_elements,
                memory or None,
                campaign.contracted,
                longest,
                0 if campaign.generation < 3 else _farthest(campaign, op, max_elements),
                campaign.generation,
                _workload(campaign, contract),
                campaign.shapes.get(op, ()),
                campaign.checks_often,
            )
        )
    return found


def _workload(campaign: Campaign, contract: Contract) -> tuple[Case, ...]:
    """The cases of a workload, without what nobody takes."""
    if contract.name not in campaign.workload:
        return ()
    return tuple(
        case.but(
            tensors={name: t for name, t in case.tensors.items() if name in contract.inputs},
            attrs={name: value for name, value in case.attrs.items() if name in contract.attrs},
        )
        for case in campaign.workload[contract.name].cases
    )


def _longest(campaign: Campaign, contract: Contract, max_elements: int | None) -> int:
    """Elements of the largest tensor of a long case: what somebody who decides takes, and there is memory for."""
    mine = max(most_elements(s) for s in deciding(contract.name, campaign.subjects))
    room = campaign.chosen.memory_mb << 20
    given = campaign.chosen.case_memory << 20
    limits = [mine, room // BYTES, *([given // WIDEST] if given else []), *([max_elements] if max_elements else [])]
    if contract.origin and contract.max_elements < Contract.max_elements:
        limits.append(contract.max_elements)
    return min(limits)


def _farthest(campaign: Campaign, op: str, max_elements: int | None) -> int:
    """Bytes of a case with more elements than 32 bits count: as many as were given, if somebody who decides runs it."""
    able = [s for s in deciding(op, campaign.subjects) if bears_far(s)]
    if not able or (max_elements or math.inf) <= BEYOND[0]:
        return 0
    given = campaign.chosen.case_memory << 20
    return given if any(is_on_gpu(s) for s in able) else min(given, (campaign.chosen.memory_mb << 20) // 2)


def new_campaign(
    run: str, seed: int, engine: str, subjects: Sequence[Subject], options: RunOptions = USUAL, revision: str = ""
) -> Campaign:
    """The record of a run that has not begun."""
    ops = tuple(dict.fromkeys(s.op for s in subjects))
    space = {cell: one for op in ops for cell, one in space_of(contract_of(op), subjects).items()}
    return Campaign(
        run=run,
        seed=seed,
        engine=engine,
        generation=GENERATION,
        most_lead=MOST_LEAD,
        ops=ops,
        subjects=tuple(subjects),
        revision=revision,
        environment=environment(),
        options=asdict(options),
        started=now(),
        updated=now(),
        goals=dict.fromkeys(goals_of(reach_of(ops, space)), -1),
        space=space,
        layouts={op: found for op in ops if (found := layouts_of(contract_of(op), subjects))},
        estimated=tuple(op for op in ops if contract_of(op).estimated),
        contracts={op: place for op in ops if (place := origin_of(op))},
        references={op: described(op) for op in ops if contract_of(op).elsewhere},
        unfollowed=unfollowed_of(ops),
        contracted=any(s.loader == "cuda" for s in subjects) and not no_contraction(),
        checks_often=any(s.is_own and s.loader == "cuda" for s in subjects),
        checked=check_mode.wanted(subjects),
    )


def limited(campaign: Campaign, shapes: Sequence[Dims], layouts: Sequence[str]) -> Campaign:
    """The campaign whose cases have only these extents, and these layouts; none given: all there are.

    Raises UsageError for an op that cannot have any of them.
    """
    contracts = [contract_of(op) for op in campaign.ops]
    extents = {c.name: fitting_shapes(c, shapes) for c in contracts} if shapes else {}
    if not layouts:
        return campaign.but(shapes=extents)
    narrow = {c.name: with_layouts(c, layouts, campaign.layouts.get(c.name, {})) for c in contracts}
    kept = {op: tuple({layout: 0 for some in inputs.values() for layout in some}) for op, inputs in narrow.items()}
    space = {cell: one.but(layouts=kept[cell.partition("|")[0]]) for cell, one in campaign.space.items()}
    goals = dict.fromkeys(goals_of(reach_of(campaign.ops, space)), -1)
    return campaign.but(shapes=extents, layouts=narrow, space=space, goals=goals)


def fitting_shapes(contract: Contract, shapes: Sequence[Dims]) -> tuple[Dims, ...]:
    """The shapes that name the dims of an op. Raises UsageError if none does, or the op has no such extents."""
    found = [dims for dims in shapes if set(dims) == set(contract.dims)]
    if not found:
        raise UsageError(f"no shape is one of {contract.name}, whose dims are {', '.join(contract.dims)}")
    for dims in found:
        check_dims(contract, dims)
        must_fit(contract, dims)
    return tuple(found)


def with_layouts(
    contract: Contract, layouts: Sequence[str], taken: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Each input's layouts among these, or its plainest; taken: those that subjects take, of inputs where not all.

    Raises UsageError for a layout that is not known, and if no input can have any.
    """
    for name in layouts:
        if name not in LAYOUTS:
            raise UsageError(f"layout {name!r} is not known; the known ones are {', '.join(LAYOUTS)}")
    every = {name: taken.get(name, tuple(dict.fromkeys(layouts_for(i)))) for name, i in contract.inputs.items()}
    kept = {name: tuple(one for one in some if one in layouts) for name, some in every.items()}
    if not any(kept.values()):
        raise UsageError(f"no input of {contract.name} is tried in the layout {' or '.join(layouts)}")
    return {name: kept[name] or every[name][:1] for name in every}


def reach_of(ops: Sequence[str], space: Mapping[str, Space]) -> Reach:
    """The reach of the cases of these ops."""
    contracts = [contract_of(op) for op in ops]
    return Reach(
        classes=frozenset(name for one in space.values() for name in (*one.shapes, *one.layouts, *one.values)),
        outputs=frozenset(layout for c in contracts for output in c.outputs.values() for layout in output.layouts),
        axes=max((len(next(iter(c.inputs.values())).axes) for c in contracts), default=0),
        laws=any(c.laws for c in contracts),
        company=any(len(one.subjects) > 1 for one in space.values()),
    )


def space_of(contract: Contract, subjects: Sequence[Subject]) -> dict[str, Space]:
    """`op|dtype` -> the classes its cases can have; what a run did not reach of them is a hole.

    Of dtypes and layouts a person's own subjects decide, if there are any.
    """
    spaces = {}
    first, everyone = next(iter(contract.inputs)), [s for s in subjects if s.op == contract.name]
    mine, narrow = deciding(contract.name, everyone), layouts_of(contract, everyone)
    layouts = tuple(dict.fromkeys(one for n, i in contract.inputs.items() for one in narrow.get(n, layouts_for(i))))
    for dtype in dict.fromkeys(variant[first] for variant in contract.variants):
        takers = [s.name for s in everyone if takes(s, dtype)]
        variants = [v for v in contract.variants if v[first] == dtype]
        if any(takes(s, dtype) for s in mine):
            spaces[f"{contract.name}|{dtype}"] = Space(
                shapes=_shapes(contract),
                layouts=layouts,
                values=tuple(dict.fromkeys(name for v in variants for name in _values(contract, v))),
                subjects=tuple(takers),
            )
    return spaces


def deciding(op: str, subjects: Sequence[Subject]) -> list[Subject]:
    """Subjects for which cases are made: a person's own, if there are any; peers decline what they cannot take."""
    everyone = [s for s in subjects if s.op == op]
    return [s for s in everyone if s.is_own] or everyone


def layouts_of(contract: Contract, subjects: Sequence[Subject]) -> dict[str, tuple[str, ...]]:
    """Inputs that are given in some of their layouts only, as the others are declined by all that decide."""
    found: dict[str, tuple[str, ...]] = {}
    ranks = {name: len(spec.axes) for name, spec in contract.inputs.items()}
    takers = [layouts_taken(s, ranks) for s in deciding(contract.name, subjects)]
    for name, spec in contract.inputs.items():
        taken = {one for taker in takers for one in taker[name]}
        every = tuple(dict.fromkeys(layouts_for(spec)))
        if kept := tuple(one for one in every if one in taken):
            found |= {name: kept} if kept != every else {}
    return found


def _values(contract: Contract, variant: Mapping[str, str]) -> tuple[str, ...]:
    """Value classes: distributions of the first input, also those of a probe, and special values of any."""
    name, spec = next(iter(contract.inputs.items()))
    probed = () if contract.probe is None or spec.ranged else (_probe(contract, variant, name),)
    return (*distributions_for(spec, variant[name]), *(p for p in probed if p), *_specials(contract, variant))


def _probe(contract: Contract, variant: Mapping[str, str], name: str) -> str:
    """The distribution that a probe fills this input with, at the middle of all sizes; empty if there is none."""
    dims = {n: (d.low + d.high) // 2 // d.multiple * d.multiple for n, d in contract.dims.items()}
    fill = contract.probe(dims, variant).get(name) if contract.probe else None
    return fill.distribution if fill else ""


def _specials(contract: Contract, variant: Mapping[str, str]) -> tuple[str, ...]:
    """Special values that are sprinkled into any of the inputs, without their signs."""
    drawn = {value for name, spec in contract.inputs.items() for value in specials_for(spec, variant[name])}
    return tuple(dict.fromkeys(name.removeprefix("-") for name in VALUES if name in drawn))


def _shapes(contract: Contract) -> tuple[str, ...]:
    """Shape classes of the first input, plain ones first."""
    first = next(iter(contract.inputs.values()))
    found = ["empty"] if any(dim.low == 0 for dim in contract.dims.values()) else []
    if not first.axes:
        return (*found, "one")
    for attrs in _variations(contract, first):
        axes = [parse_axis(filled(axis, attrs)) for axis in first.axes]
        dims = [[contract.dims[name] for name in names] for names, _ in axes]
        if all(d.low <= 1 and d.multiple == 1 for some in dims for d in some) and all(f == 1 for _, f in axes):
            found.append("one")
        room = contract.max_elements // math.prod(max(1, d.low) for some in dims[:-1] for d in some)
        found += _last_classes(tuple(dims[-1]), axes[-1][1], room)
    return tuple(dict.fromkeys(found))


def _variations(contract: Contract, first: Input) -> list[dict[str, Scalar]]:
    """The values of the attributes that decide the input's shape; one empty set if none does."""
    names = [name for name in contract.attrs if any(f"{{{name}}}" in axis for axis in first.axes)]
    return [dict(zip(names, values, strict=True)) for values in product(*(contract.attrs[name] for name in names))]


@lru_cache(256)
def _last_classes(dims: tuple[Dim, ...], factor: int, room: int) -> tuple[str, ...]:
    """The classes of a last axis that is a product of these dimensions and a factor, by size; room: its most."""
    return tuple(sorted({last_class(n) for n in _extents(dims, factor) if n <= room}, key=_by_size))


def _extents(dims: Sequence[Dim], factor: int) -> set[int]:
    """Extents of an axis that is a product of these dimensions and a factor."""
    found = {factor}
    for dim in dims:
        low = max(dim.multiple, dim.least)
        found = {n * extent for n in found for extent in range(low, dim.high + 1, dim.multiple)}
    return found


def _by_size(name: str) -> tuple[int, str]:
    """Small before medium before large."""
    return ("small", "medium", "large").index(name.partition("-")[0]), name
