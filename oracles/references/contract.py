"""The contract that a user's reference becomes, from its description; both processes make the same one of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.process.channel import Message
from kernel_assay.oracles.spec.axes import shape_of
from kernel_assay.oracles.spec.contract import Contract, Dim, Dims, Input, Output, Reals
from kernel_assay.oracles.spec.elsewhere import Elsewhere

MOST_ELEMENTS = 1 << 15
"""Of the largest tensor of a case."""
OWN_ELEMENTS, OWN_WORK = 1 << 20, 1 << 26
"""Of the shapes that the author names: elements of the largest tensor, and the product of all dimensions."""
FLOATS = ("float32", "float16", "bfloat16", "float64")
"""Dtypes in which a reference may be asked, besides those of its description."""


_SHARES = {"softmax", "log_softmax", "scaled_dot_product_attention"}
"""Operators of torch that a kernel may compute by logarithms of shares."""
_LOG = "the logarithm of a share, x - log sum exp x"


def contract_from(
    op: str,
    said: Message,
    reference: Callable[..., Mapping[str, Reals]],
    *,
    elsewhere: Elsewhere | None = None,
    origin: str = "",
) -> Contract:
    """The contract of a description."""
    tensors = said["tensors"]
    fixed = set(said["fixed"])
    floats = [t["name"] for t in tensors if format_of(t["dtype"]).is_float and t["name"] not in fixed]
    plain = {t["name"]: t["dtype"] for t in tensors}
    leads = bool(floats) and tensors[0]["name"] == floats[0]  # a case is asked for by the type of its first input
    others = [one for one in said["floats"] if leads and one != plain[floats[0]]]
    lowest = {name: Dim(*ends).least for name, ends in said["dims"].items()}
    least = max(math.prod(shape_of(t["axes"], lowest, {})) for t in tensors)
    changed = {one["name"] for one in said["arguments"] if one["inout"]}
    inputs = {t["name"]: _input(t, dense=t["name"] in changed) for t in tensors}
    inputs |= {t["name"]: _moderate(inputs[t["name"]], t["dtype"]) for t in tensors if t["weight"]}
    if said["library"] == "numpy" and any(t["structure"] for t in tensors):  # nobody knows what its zeros may leave out
        inputs = {name: _moderate(one, plain[name]) for name, one in inputs.items()}
    of_inputs = dict[str, str]()
    if gradient := said["gradient"]:  # each in the type of what it is the gradient of
        inputs = {name: _moderate(one, plain[name]) for name, one in inputs.items()}
        of_inputs = {name: of for name, of in gradient["gradients"].items() if of not in said["optional"]}
    return Contract(
        name=op,
        summary=said["summary"],
        dims={name: Dim(*ends) for name, ends in said["dims"].items()},
        inputs=inputs,
        outputs={
            name: _output(
                dtype,
                of_inputs.get(name, ""),
                [] if name in fixed else floats,
                plain,
                tuple(said["views"].get(name, ())),
            )
            for name, dtype in said["outputs"].items()
        },
        variants=(plain, *({**plain, **dict.fromkeys(floats, one)} for one in others)),
        attrs={name: tuple(values) for name, values in said["attrs"].items()},
        optional=tuple(said["optional"]),
        intermediates={"log": _LOG} if _SHARES & set(said["operators"].get("main", {})) else {},
        reference=reference,
        elsewhere=elsewhere,
        work=_work,
        max_elements=max(MOST_ELEMENTS, min(16 * least, OWN_ELEMENTS)),
        shapes=tuple(dims for dims in said["shapes"] if _is_small(dims, tensors)),
        origin=origin,
    )


def _input(t: Mapping[str, Any], *, dense: bool) -> Input:
    """One input. dense: it is changed in place, in the memory of an output."""
    layouts: tuple[str, ...] = ("contiguous",) if dense else ()
    if t["structure"] and not dense:
        layouts = tuple(name for name in LAYOUTS if name != "broadcast")  # whose rows are one
    if t["below"] or t["upto"]:
        return Input(tuple(t["axes"]), below=t["below"], upto=t["upto"], layouts=layouts)
    names = ("either",) if t["two"] else ()
    return Input(
        tuple(t["axes"]),
        low=t["low"],
        high=t["high"],
        layouts=layouts,
        distributions=names,
        structure=t["structure"],
        inner=not t["two"],
    )


def ordinary(contract: Contract) -> Contract:
    """The same op with no input that holds NaN, Inf, or numbers of any size."""
    plain = contract.variants[0]
    return replace(contract, inputs={name: _moderate(spec, plain[name]) for name, spec in contract.inputs.items()})


def _moderate(spec: Input, dtype: str) -> Input:
    """The input without special values, and without numbers of any size: weights are so, and what has a gradient.

    A kernel may fold weights into one another, and 0 * Inf is NaN there. A product of many factors, as gradients are,
    overflows in one order of them and not in another.
    """
    if spec.ranged or spec.counts or not format_of(dtype).is_float:
        return replace(spec, specials=False)
    names = tuple(d.name for d in DISTRIBUTIONS.values() if d.floats and d.nature != "adversarial")
    return replace(spec, specials=False, distributions=names)


def _output(dtype: str, of: str, floats: list[str], plain: Mapping[str, str], views: tuple[str, ...]) -> Output:
    """An output of the inputs' own type has that of another variant, too. of: the input whose type it has, if any."""
    if not of and floats and plain[floats[0]] == dtype:
        of = floats[0]
    return Output((), like=of, views=views) if of else Output((), dtype=dtype, views=views)


def _is_small(dims: Dims, tensors: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a case of these extents is judged in a moment."""
    elements = max(math.prod(shape_of(t["axes"], dims, {})) for t in tensors)
    return elements <= OWN_ELEMENTS and _work(dims) <= OWN_WORK


def _work(dims: Dims) -> int:
    """As if every dimension were a loop within all others."""
    return math.prod(max(1, n) for n in dims.values())
