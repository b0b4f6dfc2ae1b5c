"""Learn what is always declined, while a run goes on: later cases are ones that a kernel takes.

A case has traits: a value of an attribute, a layout, a size that is no multiple of 4 or larger than 1024. A trait of
which every case was declined for one and the same reason, more often than chance explains, is left out from some batch
on. Some cases are drawn as if nothing was known, so that what was wrongly left out comes back.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.campaign import Tried
from kernel_assay.corpus.model.case import Case
from kernel_assay.fuzz.generation.strategies import layouts_for
from kernel_assay.oracles.spec.contract import Contract, Dim, Input

MODULI = (2, 4, 8, 16, 32, 64, 128)
POWERS = tuple(1 << n for n in range(17))
"""Sizes above or below which something may be declined."""
LEAST = 12
"""Declined cases with a trait before it may be left out."""
DOUBT = 10.0
"""Over the share of cases that end otherwise: so many in a row end alike by chance once in twenty thousand."""
_DIGITS, _SHOWN = re.compile(r"\d+"), 80
"""Reasons that differ in their numbers only are one."""
AS_IF = 16
"""One case of an op in so many is drawn as if nothing was known."""


def traits_of(contract: Contract, case: Case) -> tuple[str, ...]:
    """Traits of a case for which a kernel may decline it."""
    found = [f"dtype {case.dtype}"]
    found += [f"{name} = {value}" for name, value in contract.attrs_of(case).items() if len(contract.attrs[name]) > 1]
    found += [f"{name} given" for name in contract.optional if name in case.tensors]
    found += [f"{name} lies {_place(t.layout, t.shape)}" for name, t in case.tensors.items()]
    found += [f"{name} lies {layout}" for name, layout in case.outputs.items()]
    for name, extent in contract.dims_of(case).items():
        found += _sizes(name, extent)
    return tuple(found)


@lru_cache(1 << 12)
def _place(layout: str, shape: tuple[int, ...]) -> str:
    """The layout, or the plainest one with which such a tensor lies in memory just so, as one of one row may."""
    return next(name for name in (*LAYOUTS, layout) if name == layout or _lies(name, shape) == _lies(layout, shape))


def _lies(layout: str, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    if 0 in shape:
        return 0, ()
    placed = LAYOUTS[layout](shape)
    return placed.offset, tuple(s for s, n in zip(placed.strides, shape, strict=True) if n > 1)


@lru_cache(1 << 12)
def _sizes(name: str, extent: int) -> tuple[str, ...]:
    tails = tuple(f"{name} % {m} != 0" for m in MODULI if extent % m)
    return (*tails, *(f"{name} > {n}" for n in POWERS if extent > n), *(f"{name} < {n}" for n in POWERS if extent < n))


def narrowed(contract: Contract, dtypes: tuple[str, ...], refused: frozenset[str]) -> tuple[Contract, tuple[str, ...]]:
    """The contract and the dtypes without these traits; a trait stays where nothing would be left."""
    every = dtypes or contract.dtypes
    unused = {name for name in contract.optional if f"{name} given" in refused}
    attrs = {n: tuple(v for v in some if f"{n} = {v}" not in refused) or some for n, some in contract.attrs.items()}
    outputs = {
        name: replace(out, layouts=_kept_layouts(name, out.layouts, refused)) for name, out in contract.outputs.items()
    }
    inputs = {n: _kept_input(n, spec, refused) for n, spec in contract.inputs.items() if n not in unused}
    return replace(
        contract,
        attrs=attrs,
        inputs=inputs,
        outputs=outputs,
        optional=tuple(name for name in contract.optional if name not in unused),
        dims={name: _kept_sizes(name, dim, refused) for name, dim in contract.dims.items()},
    ), tuple(t for t in every if f"dtype {t}" not in refused) or every


def _kept_input(name: str, spec: Input, refused: frozenset[str]) -> Input:
    return replace(spec, layouts=_kept_layouts(name, tuple(dict.fromkeys(layouts_for(spec))), refused))


def _kept_layouts(name: str, layouts: tuple[str, ...], refused: frozenset[str]) -> tuple[str, ...]:
    return tuple(layout for layout in layouts if f"{name} lies {layout}" not in refused) or layouts


def _kept_sizes(name: str, dim: Dim, refused: frozenset[str]) -> Dim:
    multiple = math.lcm(dim.multiple, *(m for m in MODULI if f"{name} % {m} != 0" in refused))
    low = max([dim.low, *(n for n in POWERS if f"{name} < {n}" in refused)])
    high = min([dim.high, *(n for n in POWERS if f"{name} > {n}" in refused)])
    return Dim(low, high, multiple, dim.usual) if -(-low // multiple) <= high // multiple else dim


@dataclass
class Tries:
    """Tries of the cases of an op in one batch."""

    taken: int = 0
    took: set[str] = field(default_factory=set)
    """Traits of those that were taken."""
    declined: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Of each that was not the reason, and its traits."""

    def add(self, traits: tuple[str, ...], reasons: Iterable[str]) -> None:
        """One more. reasons: for which it was declined; none: somebody took it."""
        if reason := "; ".join(sorted({_DIGITS.sub("0", one)[:_SHOWN] for one in reasons})):
            self.declined.append((reason, traits))
        else:
            self.taken += 1
            self.took.update(traits)


@dataclass
class _Known:
    """Knowledge of an op, since a trait was last left out."""

    took: set[str] = field(default_factory=set)
    """Traits of cases that were taken, ever."""
    only: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Trait -> the only reason for which cases with it were declined ('': there were several), and how many."""
    ends: Counter[str] = field(default_factory=Counter)
    """Reason -> cases that no trait explains that is left out; '': those that were taken."""
    refused: set[str] = field(default_factory=set)

    def weigh(self, some: Tries) -> list[tuple[str, bool]]:
        """Add a batch; each trait that is left out from now on (True), or is so no more."""
        back = sorted(self.refused & some.took)
        self.refused -= some.took
        self.took |= some.took
        self.ends[""] += some.taken
        for reason, traits in some.declined:
            if self.refused.isdisjoint(traits):
                self.ends[reason] += 1
                for trait in traits:
                    known, times = self.only.get(trait, (reason, 0))
                    self.only[trait] = (reason if known == reason else "", times + 1)
        out = sorted(trait for trait, (reason, times) in self.only.items() if self._is_proof(trait, reason, times))
        if out:
            self.refused.update(out)
            self.only.clear()
            self.ends.clear()
        return [*((trait, False) for trait in back), *((trait, True) for trait in out)]

    def _is_proof(self, trait: str, reason: str, times: int) -> bool:
        if not reason or times < LEAST or trait in self.took:
            return False
        others = self.ends.total() - self.ends[reason]
        return times * others >= DOUBT * self.ends.total()


class Declines:
    """A fold over batches, in their order: whoever sees the same ones leaves out the same traits."""

    def __init__(self, before: Mapping[str, Tried]) -> None:
        """Begin with `before`, what a run's record has."""
        self._known = {
            op: _Known(set(t.took), dict(t.only), Counter(t.ends), set(t.refused)) for op, t in before.items()
        }

    def weigh(self, tries: Mapping[str, Tries]) -> list[tuple[str, str, bool]]:
        """Add a batch; (op, trait, whether it is left out from now on or is so no more)."""
        found = []
        for op, some in tries.items():
            if op in self._known or some.declined:
                known = self._known.setdefault(op, _Known())
                found += [(op, trait, out) for trait, out in known.weigh(some)]
        return found

    def record(self) -> dict[str, Tried]:
        """The lasting part; of ops of which everything was taken there is nothing."""
        return {
            op: Tried(took=tuple(sorted(k.took)), only=k.only, ends=dict(k.ends), refused=tuple(sorted(k.refused)))
            for op, k in self._known.items()
        }
