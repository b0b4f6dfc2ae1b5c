"""Backward passes of a reference against finite differences, by torch's own gradcheck and gradgradcheck."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.corpus.process.channel import Message
from kernel_assay.oracles.numerics.following.intervals import Span
from kernel_assay.oracles.references.gradients import Derived, Dims

EPS = (1e-6, 1e-7)
"""Distances of differences; what is wrong is so by each of them."""
NEAR = 2.0**-18
"""Inputs within a few times this of a kink are left out: there differences say something else."""
SAME = 1e-4
"""Relative change of a gradient near a point that is none."""
_MISMATCH = re.compile(
    r"Jacobian mismatch for output (?P<output>\d+) with respect to input (?P<input>\d+),\s*"
    r"numerical:\s*(?P<numerical>.+?)\s*analytical:\s*(?P<analytical>[^\n]+)",
    re.DOTALL,
)
_ONCE = "a backward pass that has none says so by torch.autograd.function.once_differentiable"
_FOR_ITS_MESSAGE = "_run_slow_mode_and_get_error"
"""What gradcheck computes of each element once it knows that something is wrong; nobody reads that."""
_NUMBER = re.compile(r"-?\d[\d.]*(e[+-]?\d+)?|nan|-?inf")


def compared(derived: Derived, dims: Dims, inputs: Mapping[str, Array], attrs: Mapping[str, Any]) -> Message:
    """Compare the gradients at some inputs: what is `wrong`, and whether it was `declined` or found right `twice`.

    declined: the gradient jumps near these inputs, or is no number. twice: second derivatives are right, too. first:
    whether it is no second one that is wrong. What the reference rounds to narrower types on its way stays wide:
    differences of rounded numbers say nothing.
    """
    with derived.widened():
        return _compared(derived, dims, inputs, attrs)


def _compared(derived: Derived, dims: Dims, inputs: Mapping[str, Array], attrs: Mapping[str, Any]) -> Message:
    want = {name: np.asarray(x, np.float64) for name, x in derived.called(dims, inputs, attrs).items()}
    spans = {name: _about(x) for name, x in want.items()}
    jumps = derived.jumps(dims, inputs, attrs, want, spans, NEAR, floor=1.0)
    if any(jump.any() or not np.isfinite(want[name]).all() for name, jump in jumps.items()):
        return {"wrong": "", "declined": True, "twice": False}
    check = derived.check
    with derived.differentiable(dims, inputs, attrs) as (function, leaves):
        wrong = _wrong(lambda eps: check.gradcheck(function, leaves, eps=eps, **_HOW), derived.names)
        if wrong:
            return {"wrong": wrong, "first": True, "declined": False, "twice": False}
        try:
            if _is_once(check, function(*leaves), leaves):
                return {"wrong": "", "declined": False, "twice": False}
            wrong = _wrong(lambda eps: check.gradgradcheck(function, leaves, eps=eps, **_HOW), None)
        except Exception:  # noqa: BLE001  a function need not have a second derivative
            return {"wrong": "", "declined": False, "twice": False}
    return {"wrong": wrong, "first": False, "declined": False, "twice": not wrong}


def _is_once(autograd: Any, outputs: tuple[Any, ...], leaves: tuple[Any, ...]) -> bool:
    """Whether a backward pass says that it is `once_differentiable`, which gradgradcheck takes for a gradient of 0."""
    begun = [(x * 0 + 1).detach().requires_grad_() for x in outputs]
    made = autograd.grad(outputs, leaves, begun, create_graph=True, allow_unused=True)
    nodes, met = [x.grad_fn for x in made if x is not None], set[Any]()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in met:
            met.add(node)
            nodes += [one for one, _ in node.next_functions]
    return any(node.name().endswith("Error") for node in met)


_HOW = {"fast_mode": True, "check_undefined_grad": False}


def _about(x: Array) -> Span:
    size = SAME * (1.0 + float(np.abs(x).max(initial=0.0)))
    return Span(x, x - size, x + size)


def _wrong(check: Callable[[float], bool], names: tuple[tuple[str, ...], tuple[str, ...]] | None) -> str:
    """Say what the check finds at each distance; empty if nothing. Raises what is no finding of it."""
    said = ""
    vars(sys.modules["torch.autograd.gradcheck"])[_FOR_ITS_MESSAGE] = lambda *_: ""
    for eps in EPS:
        try:
            check(eps)
        except RuntimeError as error:
            if type(error).__name__ != "GradcheckError":
                raise
            said = _said(str(error), names)
        else:
            return ""
    return said


def _said(text: str, names: tuple[tuple[str, ...], tuple[str, ...]] | None) -> str:
    """The words of gradcheck in a sentence. names: of inputs and outputs; None: it is about second derivatives."""
    match = _MISMATCH.search(text)
    if match is None:
        return " ".join(text.split())[:200]
    numerical, analytical = (
        (found[0] if (found := _NUMBER.search(match[side])) else "?") for side in ("numerical", "analytical")
    )
    values = f"in one direction finite differences give {numerical}, its backward {analytical}"
    if names is None:
        return f"a second derivative is wrong: {values}; {_ONCE}"
    inputs, outputs = names
    return f"the gradient of {outputs[int(match['output'])]} by {inputs[int(match['input'])]} is wrong: {values}"
