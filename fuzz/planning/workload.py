"""Fit the calls of a workload to ops, by the extents of their inputs: cases that a run begins with."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.campaign import Campaign, Workload
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.workload import Call, read_calls
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.fuzz.checking.user_references import NOT_BUILT_IN, ReferenceProcess
from kernel_assay.fuzz.generation.engines import Target
from kernel_assay.fuzz.generation.model_shapes import check_dims, is_beyond
from kernel_assay.fuzz.generation.strategies import memory_of
from kernel_assay.fuzz.planning.plan import deciding, targets
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.references.contract import OWN_ELEMENTS, OWN_WORK
from kernel_assay.oracles.spec.axes import filled, solve
from kernel_assay.oracles.spec.contract import Contract
from kernel_assay.oracles.spec.plain_case import plain_case
from kernel_assay.reports.words import count

MOST_WORK = 1 << 30
"""Multiplications of a case, where the contract counts them and no --case-memory is given."""
MOST = 256
"""Cases of an op that are taken from a workload, those of the most frequent calls."""
Shape = tuple[int, ...]


def with_workload(campaign: Campaign, path: Path) -> Campaign:
    """The campaign with the calls of a file that fit its ops.

    Raises UsageError for a file that cannot be read, and if none of its calls fits any op.
    """
    calls = read_calls(path)
    found, refused = {}, []
    for op in campaign.ops:
        mine, others = _of_op(contract_of(op), calls, alone=len(campaign.ops) == 1)
        try:
            found[op] = _fitted(campaign, op, str(path), mine, others)
        except UsageError as error:
            refused.append(str(error))
    if not found:
        raise UsageError(refused[0] if len(refused) == 1 else f"no call of {path} is one of {', '.join(campaign.ops)}")
    return campaign.but(workload=found)


def _of_op(contract: Contract, calls: Sequence[Call], *, alone: bool) -> tuple[list[Call], int]:
    """Calls that may be of an op, and how many others there are.

    Where some are called like the op, only those are, and those without a name; else all may be, if there is just one
    op.
    """
    name = _bare(contract.name.removesuffix(NOT_BUILT_IN))
    if alone and not any(one.call and _bare(one.call).endswith(name) for one in calls):
        return list(calls), 0
    mine = [one for one in calls if not one.call or _bare(one.call).endswith(name)]
    return mine, len(calls) - len(mine)


def _bare(name: str) -> str:
    """The last part of a name, letters and digits only: `aten._softmax` is `softmax`."""
    return re.sub(r"[^a-z0-9]", "", re.split(r"[.:]", name.lower())[-1])


def _fitted(campaign: Campaign, op: str, path: str, calls: Sequence[Call], others: int) -> Workload:
    """The cases of one op. Raises UsageError if there are none."""
    (target,) = (one for one in targets(campaign, campaign.chosen.max_elements or None) if one.contract.name == op)
    mine = deciding(op, campaign.subjects)
    made: Counter[str] = Counter()
    cases: dict[str, Case] = {}
    misfits: list[str] = []
    elsewhere: dict[str, str] = {}
    for call in calls:
        try:
            case = fit(target.contract, call)
            _must_be_taken(mine, case)
            _must_be_small(target, case)
        except UsageError as error:
            misfits.append(f"line {call.line}: {error}")
            continue
        cases[case.id] = case
        if odd := _in_no_layout(target.contract, call, case):
            elsewhere.setdefault(case.id, f"line {call.line}: {odd}")
        made[case.id] += call.count
    first = f"the first is {misfits[0]}" if misfits else ""
    if not cases:
        raise UsageError(f"no call of {path} fits {op}{f'; {first}' * bool(first)}")
    most = made.most_common(MOST)
    said = [f"{len(misfits)} of {count(len(calls), 'line')} do not fit: {first}"] if misfits else []
    if elsewhere:
        said.append(
            f"{count(len(elsewhere), 'shape')} in another layout: the first is {next(iter(elsewhere.values()))}"
        )
    said += [f"{count(others, 'line')} of other calls"] if others else []
    said += [f"the {len(cases) - MOST} least frequent shapes are left out"] if len(cases) > MOST else []
    return Workload(
        file=path, cases=tuple(cases[key] for key, _ in most), calls=sum(n for _, n in most), left_out=tuple(said)
    )


def fit(contract: Contract, call: Call) -> Case:
    """The case of an op that has the shapes and dtypes of a call, with plain values. Raises UsageError, why not."""
    given = _placed(contract, call)
    if odd := [name for name in call.strides if name not in call.inputs]:
        raise UsageError(f"strides are given of {odd[0]}, which is no input")
    attrs = {name: _attribute(name, values, call.attrs.get(name)) for name, values in contract.attrs.items()}
    _along_the_last(contract, call, given)
    shapes = {name: _folded(name, tuple(contract.inputs[name].axes), shape) for name, (_, _, shape) in given.items()}
    pairs = [
        (filled(axis, attrs), extent)
        for name, shape in shapes.items()
        for axis, extent in zip(contract.inputs[name].axes, shape, strict=True)
    ]
    dims = solve(tuple(pairs))
    if dims is None:
        told = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        axes = ", ".join(f"{name} [{', '.join(contract.inputs[name].axes)}]" for name in shapes)
        raise UsageError(f"{told} cannot be {axes}")
    check_dims(contract, dims)
    dtypes = {name: "uint8" if dtype == "bool" else dtype for name, (_, dtype, _) in given.items()}
    variant = next((v for v in contract.variants if all(v[n] == t for n, t in dtypes.items())), None)
    if variant is None:
        raise UsageError(f"{contract.name} does not take {', '.join(f'{n} as {t}' for n, t in dtypes.items())}")
    every = {**dict.fromkeys(contract.dims, 1), **dims}
    made = plain_case(contract, every, variant=variant)
    tensors = {name: made.tensors[name] for name in contract.inputs if name in {*given, *_cotangents(contract)}}
    for name, (said, _, shape) in given.items():
        layout = _layout(contract.inputs[name].layouts, shape, call.strides.get(said, ()))
        tensors[name] = made.tensors[name].but(layout=layout if shape == shapes[name] else "contiguous")
    return made.but(tensors=tensors, attrs=attrs)


def _along_the_last(contract: Contract, call: Call, given: Mapping[str, tuple[str, str, Shape]]) -> None:
    """Raise UsageError for an operator along another axis than the last: built-in ops have none to choose."""
    dim, axes = call.attrs.get("dim"), max((len(shape) for _, _, shape in given.values()), default=0)
    chosen = call.call.startswith("aten.") and type(dim) is int and "dim" not in contract.attrs
    if chosen and not contract.origin and dim not in {-1, axes - 1}:
        raise UsageError(f"it is along axis {dim}, and {contract.name} is along the last one")


def _in_no_layout(contract: Contract, call: Call, case: Case) -> str:
    """A tensor that lies as no layout has it, or no longer once axes are taken as one; empty: none."""
    for name, (said, _, shape) in _placed(contract, call).items():
        strides = call.strides.get(said, ())
        if strides and case.tensors[name].layout == "contiguous" and strides != LAYOUTS["contiguous"](shape).strides:
            return f"{name} has strides {list(strides)}, and is judged contiguous"
    return ""


def _placed(contract: Contract, call: Call) -> dict[str, tuple[str, str, Shape]]:
    """Each input with the name, dtype and shape of the tensor that is it: by their names, else in their order."""
    found, cuts = _by_name_or_order(contract, call.tensors), _cuts(contract)
    return {  # a case has offsets without the first one
        name: (said, dtype, (shape[0] - 1, *shape[1:]) if name in cuts and shape else shape)
        for name, (said, dtype, shape) in found.items()
    }


def _cuts(contract: Contract) -> set[str]:
    """Inputs that are offsets where the function is called."""
    if not isinstance(contract.elsewhere, ReferenceProcess):
        return set()
    arguments = contract.elsewhere.said["arguments"]
    return {name for one in arguments if one["kind"] == "offsets" for name in one["tensors"]}


def _cotangents(contract: Contract) -> set[str]:
    """Inputs that a call of the function does not have, whose gradient the op is."""
    return contract.elsewhere.cotangents if isinstance(contract.elsewhere, ReferenceProcess) else set()


def _by_name_or_order(
    contract: Contract, tensors: Mapping[str, tuple[str, Shape]]
) -> dict[str, tuple[str, str, Shape]]:
    needed = [name for name in contract.inputs if name not in {*contract.optional, *_cotangents(contract)}]
    if set(needed) <= set(tensors) <= set(contract.inputs):
        return {name: (name, *tensors[name]) for name in contract.inputs if name in tensors}
    if not len(needed) <= len(tensors) <= len(contract.inputs):
        raise UsageError(f"it has {len(tensors)} tensors, and {contract.name} takes {_range(contract, needed)}")
    names = needed if len(tensors) == len(needed) else list(contract.inputs)[: len(tensors)]
    if not set(needed) <= set(names):
        raise UsageError(f"its inputs are none of {', '.join(contract.inputs)}")
    return {name: (said, *tensor) for name, (said, tensor) in zip(names, tensors.items(), strict=True)}


def _range(contract: Contract, needed: Collection[str]) -> str:
    most = len(contract.inputs)
    return str(most) if len(needed) == most else f"{len(needed)} to {most}"


def _folded(name: str, axes: Sequence[str], shape: Shape) -> Shape:
    """A shape with as many axes as the input has: what is in front of them is one axis, and what is missing is 1."""
    if not axes and shape:
        raise UsageError(f"{name} has {len(shape)} axes, and is a number here")
    missing = len(axes) - len(shape)
    if missing >= 0:
        return (1,) * missing + shape
    return (math.prod(shape[: 1 - missing]), *shape[1 - missing :])


def _attribute(name: str, values: Sequence[Scalar], given: Any) -> Scalar:
    """The value of an attribute: any number for a number, else one that is tried. Raises UsageError for another."""
    if given is None:
        return values[0]
    if type(values[0]) is float and type(given) in {int, float}:
        return float(given)
    if not any(given == one and type(given) is type(one) for one in values):
        raise UsageError(f"{name} = {given!r} is none of {', '.join(map(repr, values))}")
    value: Scalar = given
    return value


def _must_be_taken(subjects: Sequence[Subject], case: Case) -> None:
    """Raise UsageError for a case whose dtype nobody takes."""
    if not any(takes(s, case.dtype) for s in subjects):
        raise UsageError(f"no kernel takes {case.dtype}")


def _must_be_small(target: Target, case: Case) -> None:
    """Raise UsageError for a case that takes too long, or for which there is no room."""
    contract, dims = target.contract, target.contract.dims_of(case)
    variant = {name: t.dtype for name, t in case.tensors.items()}
    words = ", ".join(f"{name} {extent:,}" for name, extent in dims.items())
    if contract.elsewhere is not None:
        if is_beyond(contract, dims, OWN_ELEMENTS, OWN_WORK):
            raise UsageError(f"{words} is too large for a reference of one's own")
    elif target.memory is not None:
        every = {**contract.variants[0], **variant}
        if memory_of(contract, every, dims, contract.attrs_of(case)) > target.memory:
            raise UsageError(f"{words} does not fit into --case-memory")
    elif is_beyond(contract, dims, target.longest, MOST_WORK):
        raise UsageError(f"{words} takes too long; --case-memory has it tried")


def _layout(known: Collection[str], shape: Shape, strides: Shape) -> str:
    """The layout that has these strides, if there is one; axes with one index count for nothing."""
    if not strides or len(strides) != len(shape):
        return "contiguous"
    for name in known or LAYOUTS:
        found = LAYOUTS[name](shape).strides
        if all(a == b or n == 1 for a, b, n in zip(found, strides, shape, strict=True)):
            return name
    return "contiguous"
