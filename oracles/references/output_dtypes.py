"""Ask a reference what dtypes it gives its outputs, for inputs of each dtype."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_assay.corpus.formats import format_of
from kernel_assay.oracles.references.contract import FLOATS
from kernel_assay.oracles.references.description import Described

Run = Callable[[Mapping[str, str]], Mapping[str, Any]]
"""Runs a reference on floats of some dtypes, by name; gives its outputs, and raises what it raises."""


@dataclass
class OutputDtypes:
    """Dtypes of outputs in floating point, and the rule by which they follow from those of the inputs."""

    of: dict[str, str] = field(default_factory=dict)
    """By name, for inputs of the dtypes described."""
    fixed: set[str] = field(default_factory=set)
    """Outputs that have the same dtype whatever that of the inputs is; others have that of the inputs."""
    floats: tuple[str, ...] = FLOATS
    """Dtypes of inputs for which that holds."""


def asked(described: Described, outputs: Collection[str], run: Run) -> OutputDtypes:
    """Ask for the dtypes of some outputs. Of dtypes that the reference does not take, the rule of the others holds."""
    floats = {t.name: t.dtype for t in described.tensors if format_of(t.dtype).is_float}
    usual = next(iter(floats.values()), "float32")
    known = {one: made for one in FLOATS if (made := _given(run, dict.fromkeys(floats, one)))}
    if floats != dict.fromkeys(floats, usual) and (made := _given(run, floats)):
        known[usual] = made
    found = OutputDtypes()
    for name in outputs:
        of = {one: made[name] for one, made in known.items() if made.get(name) in FLOATS}
        found.of[name] = of.get(usual, usual)
        if found.of[name] != usual or (len(of) > 1 and set(of.values()) == {usual}):
            found.fixed.add(name)
        odd = {one for one, made in of.items() if made != (found.of[name] if name in found.fixed else one)}
        found.floats = tuple(one for one in found.floats if one not in odd - {usual})
    return found


def _given(run: Run, floats: Mapping[str, str]) -> dict[str, str]:
    """Dtypes of all outputs for floats of some dtypes; none, if the reference does not take them."""
    try:
        made = run(floats)
    except (Exception, SystemExit):  # noqa: BLE001  a user's own code
        return {}
    return {name: str(getattr(one, "dtype", "")).removeprefix("torch.") for name, one in made.items()}
