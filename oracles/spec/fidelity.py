"""Measure how much right results lose by design, as quantization does, for contracts that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.spec.axes import Attrs


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Distance of results from what they stand for, where the op itself gives something away: told, never judged."""

    what: str
    """The quantity's name; less is better."""
    measure: Callable[[Mapping[str, Array], Mapping[str, Array], Attrs], float | None]
    """From outputs, inputs and attributes; None: this case tells nothing. Asked for independent draws that passed."""
    by: str
    """The attribute whose values are told apart."""
    customary: Mapping[str, float]
    """Up to where each of them is in use in the field."""
