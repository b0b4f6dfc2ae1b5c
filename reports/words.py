"""Numbers, times and values as the page writes them, and the texts where they say the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from kernel_assay.corpus.formats import FORMATS
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.findings import Element, Exhibit
from kernel_assay.reports.reproducer.values import parts

DASH, MINUS, TIMES = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
DIGITS = {"float64": 17, "float32": 9, "float16": 6, "bfloat16": 6}
"""Significant digits that tell each value of a type from its neighbours, and the reference from both."""


def estimates(c: Campaign) -> list[str]:
    """Sentences about estimated budgets: of which ops, what their references are, and what cannot be followed."""
    if not c.estimated:
        return []
    said = [f"budgets of {', '.join(c.estimated)} are estimated from their formulas: weaker than derived ones"]
    said += [f"{op} is {text}" for op, text in c.references.items()]
    rest = "it is judged by what float32, or a neighbouring input, changes there, several times: weaker still"
    said += [f"no rule follows {', '.join(names)} in {op}; {rest}" for op, names in c.unfollowed.items()]
    why = "of the elements of {}: its gradient jumps there, or has no value"
    return said + [f"not judged: {percent(share)} {why.format(op)}" for op, share in c.unjudged.items()]


def workloads(c: Campaign) -> list[str]:
    """Sentences about the workload: how many of its shapes were judged, and what was left out of it."""
    said = []
    for op, one in c.workload.items():
        shapes = f"{len(one.judged):,} of {count(len(one.cases), 'shape')} of {op}"
        head = f"of your workload: {shapes} judged, those of {count(one.calls, 'call')}"
        rest = "the others were declined, took too long or were not reached"
        said.append("; ".join([head, *([rest] if len(one.judged) < len(one.cases) else []), *one.left_out]))
    return said


def notes(c: Campaign) -> list[str]:
    """Sentences about what is no fault, and should be known: kernels that call the library, inputs given as one."""
    said = [f"the kernel {key} {words}" for key, words in c.library.items() if words]
    said += [
        f"{op} was not tried without {listed(names)}: no kernel has a default there" for op, names in c.needed.items()
    ]
    lacking = ((op, names) for op, names in c.unused.items() if op in c.references)
    return said + [f"{op} was not tried with {listed(names, 'or')}: no kernel takes it" for op, names in lacking]


def count(n: int, noun: str) -> str:
    """A number with its noun: `1 case`, `1,200 cases`."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Words as a sentence has them: `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""


def first_of(words: Sequence[str], most: int = 6) -> str:
    """Words as a sentence has them, the first of so many that nobody would read all: `a, b and 31 more`."""
    left = len(words) - most
    return listed(words) if left <= 1 else listed([*words[:most], f"{left:,} more"])


def percent(share: float) -> str:
    """A share of 1, in three digits."""
    return f"{100 * share:.3g} %"


def short(n: float) -> str:
    """A count in at most four characters or so: 950, 1.2k, 48k, 3.1M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= 0.9995 * unit:
            scaled = n / unit
            return f"{scaled:.1f}".removesuffix(".0") + name if scaled < 9.95 else f"{scaled:.0f}{name}"
    return f"{n:.0f}"


def figure(x: float | None) -> str:
    """A measured value in three digits."""
    if x is None:
        return DASH
    if math.isinf(x):
        return "∞" if x > 0 else f"{MINUS}∞"
    return f"{x:,.0f}" if abs(x) < 1e7 and float(x).is_integer() else f"{x:.3g}"


def times(rho: float) -> str:
    """Words for how many budgets an element is off; beyond a million, or of a budget of 0, the number says nothing."""
    return "-" if math.isinf(rho) else f"{rho:.3g}" if rho < 1e6 else "> 1e6"


def value(x: float, dtype: str) -> str:
    """One element, with as many digits as its type needs."""
    known = FORMATS.get(dtype)
    if known is not None and not known.is_float and math.isfinite(x):
        return f"{x:.0f}"
    return f"{x:.{DIGITS.get(dtype, 9)}g}"


def bits(pattern: int, dtype: str) -> str:
    """A bit pattern as hex, as wide as its type."""
    known = FORMATS.get(dtype)
    return f"0x{pattern:0{known.bits // 4 if known else 1}x}"


def only_bits_tell(e: Element, got: str, wanted: str) -> bool:
    """Whether an element that fails looks right as it is printed: another NaN, the other zero, digits cut off."""
    return e.fails and 0 <= e.wanted_bits != e.bits and (got == wanted or e.got == e.wanted)


def place(index: Sequence[int] | None) -> str:
    """The place of an element: `[0, 3]`."""
    return "" if index is None else f"[{', '.join(map(str, index))}]" if index else "the only one"


def relation(shown: Exhibit) -> str:
    """Words for what a law says of the other case's output, if that is not simply the first one's."""
    factor = f"{shown.factor:g} times " if shown.factor != 1 else ""
    part = f"[{parts(shown.view)}] of " if shown.view else ""
    within = f", to within {shown.within:g} error budgets and rounding" if shown.within else ""
    return f"; its output must be {factor}{part}the other's{within}" if factor or part or within else ""


def extent(shape: Sequence[int]) -> str:
    """A shape, its extents with crosses between them."""
    return f" {TIMES} ".join(f"{n}" for n in shape) or "scalar"


def span(seconds: float) -> str:
    """A duration in its two largest units."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    whole = round(seconds)
    parts = ((whole // 3600, "h"), (whole % 3600 // 60, "min"), (whole % 60, "s"))
    return " ".join([f"{n} {unit}" for n, unit in parts if n][:2])


def time_of(seconds: float) -> str:
    """A short duration in three digits and the unit that suits it: 12.3 µs."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns" if math.isfinite(seconds) else DASH


def moment(at: str) -> str:
    """A time of a record, to the minute, in UTC; what is none stays as it is."""
    try:
        when = datetime.fromisoformat(at)
    except ValueError:
        return at
    return f"{(when if when.tzinfo is None else when.astimezone(UTC)):%Y-%m-%d %H:%M} UTC"


def largest_first(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts in the order in which they are told; of equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
