"""Goals that a clean run must have reached ("sometimes" assertions). Without them no findings prove little.

To add a goal, add a function: it is true for a checked case that reaches it. Its docstring says what that means. What
it needs says whether a run can reach it at all: a goal that it cannot reach is none of its goals.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.requests import Checked
from kernel_assay.fuzz.planning.coverage import nature


@dataclass(frozen=True, slots=True)
class Reach:
    """The reach of a run's cases."""

    classes: frozenset[str]
    """Shape classes, layouts and value classes of any op and dtype."""
    outputs: frozenset[str]
    """Layouts of any output."""
    axes: int
    """Most axes of any op's first input."""
    laws: bool
    """Whether any op has a law."""
    company: bool
    """Whether two subjects run the same op."""

    def has(self, *names: str) -> bool:
        """Whether one of these classes is among them."""
        return not self.classes.isdisjoint(names)


Goal = Callable[[Checked], bool]
Need = Callable[[Reach], bool]
GOALS: dict[str, Goal] = {}
COMPANY = frozenset({"side_by_side"})
"""Goals that look at everybody's verdicts."""
NEEDS: dict[str, Need] = {}


def goal(needs: Need = lambda _: True) -> Callable[[Goal], Goal]:
    """Enter a goal into the table under its own name."""

    def enter(reached: Goal) -> Goal:
        GOALS[reached.__name__], NEEDS[reached.__name__] = reached, needs
        return reached

    return enter


def goals_of(reach: Reach) -> list[str]:
    """The goals that a run can reach."""
    return [name for name, needs in NEEDS.items() if needs(reach)]


def _specials(case: Case) -> set[str]:
    return {s.value.removeprefix("-") for t in case.tensors.values() for s in t.specials}


def _distributions(case: Case) -> set[str]:
    return {t.fill.distribution for t in case.tensors.values()}


def _last(case: Case) -> int:
    shape = next(iter(case.tensors.values())).shape
    return shape[-1] if shape else 1


@goal(lambda r: r.has("empty"))
def empty_tensor(c: Checked) -> bool:
    """An input without elements."""
    return any(t.size == 0 for t in c.case.tensors.values())


@goal(lambda r: r.has("one"))
def single_element(c: Checked) -> bool:
    """Every input has one element."""
    return all(t.size == 1 for t in c.case.tensors.values())


@goal(lambda r: r.has("medium-by-one", "large-by-one"))
def tile_tail_by_one(c: Checked) -> bool:
    """A last axis longer than 128 that ends one element behind a tile of 32."""
    return _last(c.case) > 128 and _last(c.case) % 32 == 1


@goal(lambda r: r.has("large-aligned", "large-by-one", "large-tail"))
def long_axis(c: Checked) -> bool:
    """A last axis of 2048 or more."""
    return _last(c.case) >= 2048


@goal(lambda r: r.axes > 1)
def equal_axes(c: Checked) -> bool:
    """A square input larger than 1 x 1."""
    shape = next(iter(c.case.tensors.values())).shape
    return len(shape) > 1 and shape[-1] == shape[-2] > 1


@goal(lambda r: r.has("offset_one"))
def misaligned(c: Checked) -> bool:
    """An input one element off its alignment."""
    return any(t.layout == "offset_one" for t in c.case.tensors.values())


@goal(lambda r: "offset_one" in r.outputs)
def misaligned_output(c: Checked) -> bool:
    """An output one element off its alignment."""
    return "offset_one" in c.case.outputs.values()


@goal(lambda r: r.has("transposed", "row_gaps", "element_gaps"))
def strided(c: Checked) -> bool:
    """An input that is not contiguous."""
    return any(t.layout in {"transposed", "row_gaps", "element_gaps"} for t in c.case.tensors.values())


@goal(lambda r: r.has("broadcast"))
def broadcast(c: Checked) -> bool:
    """An input with stride 0."""
    return any(t.layout == "broadcast" and t.shape[:1] > (1,) for t in c.case.tensors.values())


@goal(lambda r: r.has("nan"))
def nan_input(c: Checked) -> bool:
    """A NaN among the inputs, on purpose."""
    return bool(_specials(c.case) & {"nan", "nan_payload", "signalling_nan"})


@goal(lambda r: r.has("inf"))
def inf_input(c: Checked) -> bool:
    """An infinity among the inputs, on purpose."""
    return "inf" in _specials(c.case)


@goal(lambda r: r.has("subnormal"))
def subnormal_input(c: Checked) -> bool:
    """A subnormal number among the inputs, on purpose."""
    return bool(_specials(c.case) & {"subnormal", "max_subnormal"})


@goal(lambda r: r.has("max"))
def largest_finite_input(c: Checked) -> bool:
    """The largest finite number among the inputs."""
    return "max" in _specials(c.case)


@goal(lambda r: r.has("raw_bits"))
def any_bit_pattern(c: Checked) -> bool:
    """An input of random bits."""
    return "raw_bits" in _distributions(c.case)


@goal(lambda r: r.has("cancellation"))
def cancellation(c: Checked) -> bool:
    """An input of pairs that cancel."""
    return "cancellation" in _distributions(c.case)


@goal(lambda r: r.has(*(d.name for d in DISTRIBUTIONS.values() if d.nature == "iid")))
def independent_values(c: Checked) -> bool:
    """All inputs independent draws, where the statistical budgets apply."""
    return nature(c.case) == "iid"


@goal(lambda r: r.laws)
def law_tested(c: Checked) -> bool:
    """A metamorphic law could be tested."""
    return c.laws > 0


@goal()
def budget_used(c: Checked) -> bool:
    """A correct result that used more than a tenth of its error budget: the budget is not far too wide."""
    return any(v.kind is Kind.PASS and v.rho > 0.1 for v in c.verdicts.values())


@goal(lambda r: r.company)
def side_by_side(c: Checked) -> bool:
    """Two subjects passed the same case."""
    return sum(v.kind is Kind.PASS for v in c.verdicts.values()) >= 2


def reached_now(open_goals: AbstractSet[str], checked: Checked, deciding: AbstractSet[str] | None = None) -> list[str]:
    """Names of the open goals that this case reaches.

    deciding: keys of the subjects of which one must have been judged on it; None: any, or none. What a goal asks of
    verdicts, it asks of theirs; only beside them are others looked at.
    """
    if deciding is None:
        return [name for name in sorted(open_goals) if GOALS[name](checked)]
    mine = {key: verdict for key, verdict in checked.verdicts.items() if key in deciding}
    if all(not verdict.kind.facts.decided for verdict in mine.values()):
        return []
    theirs = replace(checked, verdicts=mine)
    return [name for name in sorted(open_goals) if GOALS[name](checked if name in COMPANY else theirs)]
