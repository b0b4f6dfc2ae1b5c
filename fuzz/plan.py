"""A run before it begins: what to search for, and what its cases could be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from corpus.campaign import Campaign, Space
from corpus.formats import format_of
from corpus.record import Scalar
from corpus.records import Subject
from corpus.specials import VALUES
from fuzz.coverage import last_class
from fuzz.engine import Target
from fuzz.filing import now
from fuzz.goals import Reach, goals_of
from fuzz.strategies import distributions_for, layouts_for
from kernels.catalog import size_hints
from kernels.environment import environment
from oracles.catalog import contract_of, origin_of
from oracles.contract import Contract, parse_axis


def targets(subjects: Sequence[Subject], ops: Sequence[str], max_elements: int | None) -> list[Target]:
    """What to search: every op with the dtypes and sizes its subjects suggest."""
    found = []
    for op in ops:
        mine = [s for s in subjects if s.op == op]
        dtypes = () if any(not s.dtypes for s in mine) else tuple(sorted({t for s in mine for t in s.dtypes}))
        hints = tuple(sorted({n for s in mine for n in size_hints(s)}))
        found.append(Target(contract_of(op), dtypes, hints, max_elements))
    return found


def new_campaign(
    run: str, seed: int, engine: str, subjects: Sequence[Subject], options: Mapping[str, Scalar], revision: str
) -> Campaign:
    """The record of a run that has not begun."""
    ops = tuple(dict.fromkeys(s.op for s in subjects))
    space = {cell: one for op in ops for cell, one in space_of(contract_of(op), subjects).items()}
    return Campaign(
        run=run,
        seed=seed,
        engine=engine,
        ops=ops,
        subjects=tuple(subjects),
        revision=revision,
        environment=environment(),
        options=dict(options),
        started=now(),
        updated=now(),
        goals=dict.fromkeys(goals_of(reach_of(ops, space)), -1),
        space=space,
        estimated=tuple(op for op in ops if contract_of(op).estimated),
        contracts={op: place for op in ops if (place := origin_of(op))},
    )


def reach_of(ops: Sequence[str], space: Mapping[str, Space]) -> Reach:
    """What the cases of these ops could be."""
    contracts = [contract_of(op) for op in ops]
    return Reach(
        classes=frozenset(name for one in space.values() for name in (*one.shapes, *one.layouts, *one.values)),
        axes=max((len(next(iter(c.inputs.values())).axes) for c in contracts), default=0),
        laws=any(c.laws for c in contracts),
        company=any(len(one.subjects) > 1 for one in space.values()),
    )


def space_of(contract: Contract, subjects: Sequence[Subject]) -> dict[str, Space]:
    """`op|dtype` -> the classes its cases can have; what a run did not reach of them is a hole."""
    spaces = {}
    first = next(iter(contract.inputs))
    for dtype in dict.fromkeys(variant[first] for variant in contract.variants):
        takers = [s.name for s in subjects if s.op == contract.name and (not s.dtypes or dtype in s.dtypes)]
        variants = [v for v in contract.variants if v[first] == dtype]
        if takers:
            spaces[f"{contract.name}|{dtype}"] = Space(
                shapes=_shapes(contract),
                layouts=tuple(dict.fromkeys(name for i in contract.inputs.values() for name in layouts_for(i))),
                values=tuple(dict.fromkeys(name for v in variants for name in _values(contract, v))),
                subjects=tuple(takers),
            )
    return spaces


def _values(contract: Contract, variant: Mapping[str, str]) -> tuple[str, ...]:
    """Value classes: distributions of the first input, also those of a probe, and special values of any."""
    name, spec = next(iter(contract.inputs.items()))
    probed = () if contract.probe is None or spec.ranged else (_probe(contract, variant, name),)
    return (*distributions_for(spec, variant[name]), *(p for p in probed if p), *_specials(contract, variant))


def _probe(contract: Contract, variant: Mapping[str, str], name: str) -> str:
    """What a probe fills this input with, at the middle of all sizes; nothing if there is none."""
    dims = {n: (d.low + d.high) // 2 // d.multiple * d.multiple for n, d in contract.dims.items()}
    fill = contract.probe(dims, variant).get(name) if contract.probe else None
    return fill.distribution if fill else ""


def _specials(contract: Contract, variant: Mapping[str, str]) -> tuple[str, ...]:
    """Special values that are sprinkled into any of the inputs, without their signs."""
    sprinkled = [n for n, i in contract.inputs.items() if i.specials and not i.ranged]
    if not any(format_of(variant[n]).is_float for n in sprinkled):
        return ()
    return tuple(dict.fromkeys(name.removeprefix("-") for name in VALUES))


def _shapes(contract: Contract) -> tuple[str, ...]:
    """Shape classes of the first input, plain ones first."""
    first = next(iter(contract.inputs.values()))
    axes = [parse_axis(axis) for axis in first.axes]
    found = ["empty"] if any(dim.low == 0 for dim in contract.dims.values()) else []
    dims = [contract.dims[dim] for dim, _ in axes]
    if all(dim.low <= 1 and dim.multiple == factor == 1 for dim, (_, factor) in zip(dims, axes, strict=True)):
        found.append("one")
    if axes:
        room = contract.max_elements // math.prod(max(1, dim.low) for dim in dims[:-1])
        spec, factor = dims[-1], axes[-1][1]
        extents = range(max(spec.multiple, -(-spec.low // spec.multiple) * spec.multiple), spec.high + 1, spec.multiple)
        found += sorted({last_class(n * factor) for n in extents if n * factor <= room}, key=_by_size)
    return tuple(dict.fromkeys(found))


def _by_size(name: str) -> tuple[int, str]:
    """Small before medium before large."""
    return ("small", "medium", "large").index(name.partition("-")[0]), name
