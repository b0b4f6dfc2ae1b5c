"""The coverage of a search: op x dtype x shape class x layout x value class x subject."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.specials import TILE
from kernel_assay.corpus.model.case import Case

LARGE = 1024
"""Extents from here on are large; below 64 they are small."""


def shape_class(case: Case) -> str:
    """Coarse class of the first tensor's shape: empty, one, or size and how the last axis ends relative to 32."""
    shape = next(iter(case.tensors.values())).shape
    if 0 in shape or any(0 in t.shape for t in case.tensors.values()):
        return "empty"
    if max(shape, default=1) == 1:
        return "one"
    return last_class(shape[-1])


def last_class(last: int) -> str:
    """Class of the last axis's extent."""
    size = "small" if last < 2 * TILE else "large" if last >= LARGE else "medium"
    rest = last % TILE
    end = "aligned" if rest == 0 else "by-one" if rest in {1, TILE - 1} else "tail"
    return f"{size}-{end}"


def layout_class(case: Case) -> str:
    """The first layout that is not plain."""
    return next((t.layout for t in case.tensors.values() if t.layout != "contiguous"), "contiguous")


def value_class(case: Case) -> str:
    """The special value that was sprinkled in, else the distribution of the first tensor."""
    for tensor in case.tensors.values():
        if tensor.specials:
            return tensor.specials[0].value.removeprefix("-")
    return next(iter(case.tensors.values())).fill.distribution


def nature(case: Case) -> str:
    """iid, structured or adversarial: the worst of all tensors."""
    natures = {DISTRIBUTIONS[t.fill.distribution].nature for t in case.tensors.values()}
    return next(n for n in ("adversarial", "structured", "iid") if n in natures)


def cell_of(case: Case) -> str:
    """A case's coverage cell, without the subject."""
    return "|".join((case.op, case.dtype, shape_class(case), layout_class(case), value_class(case)))


def elite_cells(case: Case, subjects: Iterable[str]) -> dict[str, str]:
    """Cells of the elite table by subject: op, subject, dtype and coarse shape class."""
    place = f"{case.dtype}|{shape_class(case)}"
    return {subject: f"{case.op}|{subject}|{place}" for subject in subjects}
