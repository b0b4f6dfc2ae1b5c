"""Learn which of a few values a case must have to fail: `fails only if x.layout is not contiguous`.

What the smallest case says is tried on the case it was found with, and on others of its size: an attribute under which
the values of a small case happen to come out right decides nothing. Dtypes, numbers and inputs that need not be there
are no matter of a rule: what one of them hides, in an error budget or behind a zero, shows in it with other values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.case import Case, TensorRecipe
from kernel_assay.fuzz.generation.strategies import layouts_for
from kernel_assay.fuzz.triage.counterexamples import MAX_ELEMENTS, grown
from kernel_assay.fuzz.triage.shrink_passes import livelier, next_seeds, with_attrs, with_output, with_tensor
from kernel_assay.fuzz.triage.shrinker import Shrinker
from kernel_assay.oracles.catalog import contract_of

TRIALS = 4
"""Fields on which a value that a case may have is tried, on the case it was found with."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something of a case that has one of a few values."""

    own: str
    cases: Mapping[str, Case]
    """The case with each value, its own among them; plainest first."""


def learn_choices(shrinker: Shrinker, case: Case, original: Case) -> tuple[str, ...]:
    """One sentence for everything of which the value decides whether the case fails.

    original: the case it was found with, which a rule must not contradict.
    """
    found, before = [], choices_of(original)
    for name, choice in choices_of(case).items():
        if shrinker.expired():
            break
        if name not in before or len(choice.cases) < 2:
            continue
        fails = _fails(shrinker, choice)
        if fails.setdefault(before[name].own, True) is True and (rule := explain_choice(name, fails)):
            works = [c for value, c in before[name].cases.items() if fails.get(value) is False]
            others = [other for c in works for other in next_seeds(c, TRIALS)]
            good = [c for value, c in choice.cases.items() if fails[value] is False]
            others += [other for c in good for other in _one_changed(c, but=name)]
            if name in contract_of(case.op).attrs:  # layouts of larger tensors are others
                others += [other for c in good for other in (grown(c), livelier(grown(c)))]
            if _none_fails(shrinker, others):
                found.append(rule)
    return tuple(found)


def _one_changed(case: Case, *, but: str) -> list[Case]:
    """Vary one other choice at a time: a kernel that takes no misaligned tensor fails with any of them."""
    rest = [choice for name, choice in choices_of(case).items() if name != but]
    return [c for choice in rest for value, c in choice.cases.items() if value != choice.own]


def _none_fails(shrinker: Shrinker, cases: list[Case]) -> bool:
    """Whether that is known; of large cases it is not, nor when time is over."""
    for case in cases:
        if case.elements > MAX_ELEMENTS or shrinker.expired():
            return False
        if any(shrinker.same(c.verdicts[shrinker.subject]) for c in shrinker.judge([case])):
            return False
    return True


def _fails(shrinker: Shrinker, choice: Choice) -> dict[str, bool | None]:
    """Values with which it fails, in whatever way; None where nobody knows: it is not taken or not settled."""
    told = {c.case.id: c.verdicts[shrinker.subject] for c in shrinker.judge(list(choice.cases.values()))}
    verdicts = {value: told.get(case.id) for value, case in choice.cases.items()}
    return {value: None if v is None or not v.kind.facts.decided else v.failed for value, v in verdicts.items()}


def explain_choice(name: str, fails: Mapping[str, bool | None]) -> str:
    """The rule, or an empty string if the value does not matter. None: nobody knows how it is with that value."""
    bad, good = ([value for value, failed in fails.items() if failed is wanted] for wanted in (True, False))
    if not bad or not good:
        return ""
    if len(bad) > len(good) == 1:  # the shorter way to say it, whatever the others are
        return f"fails only if {name} is not {good[0]}"
    *most, last = bad
    return f"fails only if {name} is {', '.join(most)}{' or ' if most else ''}{last}"


def choices_of(case: Case) -> dict[str, Choice]:
    """Attributes that are true or false or have a name, but for names of dtypes; layouts of inputs and outputs."""
    contract = contract_of(case.op)
    attrs, dims = contract.attrs_of(case), contract.dims_of(case)
    found = {}
    for name, values in contract.attrs.items():
        names_dtype = any(f"{{{name}}}" in output.dtype for output in contract.outputs.values())
        if isinstance(attrs[name], bool | str) and not names_dtype:
            some = dict.fromkeys((*values, attrs[name]))  # what is given by hand may have any value
            found[name] = Choice(str(attrs[name]), {str(v): with_attrs(case, {**attrs, name: v}, dims) for v in some})
    for name, recipe in case.tensors.items():
        layouts = _layouts(layouts_for(contract.inputs[name]), recipe)
        cases = {layout: with_tensor(case, name, layout=layout) for layout in layouts}
        found[f"{name}.layout"] = Choice(recipe.layout, cases)
    for name, spec in contract.output_specs(case).items():
        cases = {layout: with_output(case, name, layout) for layout in contract.outputs[name].layouts}
        found[f"{name}.layout"] = Choice(spec.layout, cases)
    return found


def _layouts(names: tuple[str, ...], recipe: TensorRecipe) -> list[str]:
    """Layouts that lie differently in memory, as rows of one element do not; its own among them.

    Without `broadcast`, which takes other values with it.
    """
    places = {_place(recipe.layout, recipe): recipe.layout}
    for name in names:
        if name != "broadcast":
            places.setdefault(_place(name, recipe), name)
    return [name for name in LAYOUTS if name in places.values()]


def _place(name: str, recipe: TensorRecipe) -> tuple[int, tuple[int, ...]]:
    placed = LAYOUTS[name](recipe.shape)
    return placed.offset, tuple(s for s, n in zip(placed.strides, recipe.shape, strict=True) if n > 1)
