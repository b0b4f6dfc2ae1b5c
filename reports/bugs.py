"""Findings that are most likely one bug: what people are shown as one; programs are told of every record."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable
from functools import cache

from kernel_assay.corpus.formats import spelled
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Finding, State
from kernel_assay.corpus.model.kinds import Kind

GIVEN_AWAY = "; its bytes are "
"""What a message says before it tells what a value gives away."""
SIZES = range(513)
"""Sizes by which one condition is held against another: two of the longest tiles that conditions speak of."""
_CONDITION = "fails only if "
_ACCESS = re.compile(r" (?:reads|writes) (?:(?P<tensor>\w+)\[|\d+ bytes? at byte \d+ of (?P<shared>[\w ]+) \()")
_PLACE = re.compile(r"\(([^()]+, line \d+)\)")
_TERMS = (ast.Expression, ast.Compare, ast.BoolOp, ast.And, ast.BinOp, ast.Mod, ast.Name, ast.Load, ast.Constant)
_RELATIONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def grouped(findings: Iterable[Finding], news: Callable[[Finding], bool]) -> list[list[Finding]]:
    """One list for each bug, by subject: news first, and of them the kind that names a cause, then the smallest case.

    What may be noise of the reference itself comes last.
    """
    groups: dict[str, list[list[Finding]]] = {}
    for f in sorted(findings, key=lambda f: (not news(f), is_noise(f), *rank(f.verdict.kind), *_size(f))):
        bugs = groups.setdefault(f.subject.key, [])
        bug = next((bug for bug in bugs if same_bug(bug[0], f)), None)
        if bug is None:
            bugs.append(bug := [])
        bug.append(f)
    found = [bug for key in sorted(groups) for bug in groups[key]]
    return sorted(found, key=lambda bug: is_noise(bug[0]))


def rank(kind: Kind) -> tuple[bool, str]:
    """Kinds in the order in which they are told: first those that name a cause, of which others are symptoms."""
    return (not kind.facts.names_cause, kind)


def _in_values(kinds: Iterable[Kind]) -> bool:
    return all(kind.facts.in_values for kind in kinds)


def is_noise(f: Finding) -> bool:
    """Whether only an estimated budget speaks against a float64 output: the reference is no wider than that."""
    return f.signature.dtype == "float64" and f.verdict.rule == "rho" and "estimated" in f.verdict.message


def same_bug(first: Finding, other: Finding) -> bool:
    """Whether two findings of a subject have one cause, as far as is known.

    They have if both fail on one case, if one condition decides both, if their values give the same away, if one is a
    symptom of the other, or if they fail alike. They have not if one's case was seen to pass with the other's dtype, or
    if each has a condition of its own for the same dtype.
    """
    mine, theirs = first.subject, other.subject
    if (mine.key, mine.path) != (theirs.key, theirs.path) or _is_symptom(other, of=first):
        return (mine.key, mine.path) == (theirs.key, theirs.path)  # files of two folders may have one name
    seen, back = _seen(first, other), _seen(other, first)
    if _case(first.case) == _case(other.case) or seen is other.verdict.kind or back is first.verdict.kind:
        return True
    if Kind.PASS in {seen, back}:
        return False
    conditions = _condition(first), _condition(other)
    if all(conditions) and implied(*conditions):
        return True
    given_away = first.verdict.message.partition(GIVEN_AWAY)[2]
    if given_away and given_away == other.verdict.message.partition(GIVEN_AWAY)[2]:
        return True
    apart = first.signature.dtype == other.signature.dtype and all(conditions) and conditions[0] != conditions[1]
    return _alike(first, other) and not apart


def _is_symptom(other: Finding, *, of: Finding) -> bool:
    """Whether a finding says too little of its own.

    Of values that a race makes differ, of those that nobody had the time to look into, and of a statement that runs
    over an array's end and, before it, to where it goes in other threads: a race with itself.
    """
    kinds = of.verdict.kind, other.verdict.kind
    if of.verdict.kind.facts.names_cause and other.verdict.kind is Kind.NONDETERMINISTIC:
        return True
    if set(kinds) == {Kind.OUT_OF_BOUNDS, Kind.RACE} and _touched(of) & _touched(other):
        return True
    unshrunk = {State.NEW, State.CONFIRMED}
    return other.state in unshrunk and of.state not in unshrunk and _in_values(kinds)


def _touched(f: Finding) -> set[tuple[str, str]]:
    """The array and the statement of an access that check mode refused; of accesses by two statements nothing."""
    access, places = _ACCESS.search(f.verdict.message), set(_PLACE.findall(f.verdict.message))
    array = access and (access["tensor"] or access["shared"])
    return {(array, places.pop())} if array and len(places) == 1 else set()


def _alike(first: Finding, other: Finding) -> bool:
    """Whether they fail in one way, or with the same shapes in ways that one fault has; both on NaN, or neither.

    NaN in one of them tells nothing apart if both leave the same number in one place: the input was not read.
    """
    if _is_finite(first.case) is not _is_finite(other.case):
        return _shapes(first.case) == _shapes(other.case) and bool(_left(first) & _left(other))
    kinds = {first.verdict.kind, other.verdict.kind}
    if len(kinds) == 1 and first.verdict.rule == other.verdict.rule:
        return True
    races = first.verdict.kind.facts.hidden_on_gpu and _in_values({other.verdict.kind})  # values are its symptoms
    return (len(kinds) == 1 or _in_values(kinds) or races) and _shapes(first.case) == _shapes(other.case)


def _left(f: Finding) -> set[tuple[tuple[int, ...], float]]:
    """Finite numbers that it left in elements that fail, and where."""
    shown = f.exhibit.elements if f.exhibit is not None else ()
    return {(e.index, e.got) for e in shown if e.fails and math.isfinite(e.got)}


def _is_finite(case: Case) -> bool:
    """Whether nobody has written NaN or Inf into its inputs."""
    said = [spelled(pattern, t.dtype) for t in case.tensors.values() for _, pattern in t.pokes]
    said += [special.value for t in case.tensors.values() for special in t.specials]
    return not any("nan" in word or "inf" in word for word in said)


def implied(wide: str, narrow: str) -> bool:
    """Whether a case that meets the narrow condition meets the wide one: `n == 1` and `n % 4 != 0`."""
    if wide == narrow:
        return True
    (dim, sizes), (other, fewer) = _sizes(wide), _sizes(narrow)
    return bool(dim == other and fewer and fewer <= sizes)


@cache
def _sizes(condition: str) -> tuple[str, frozenset[int]]:
    """The dim of a condition on one size, and the sizes that meet it; nothing of any other."""
    try:
        tree = ast.parse(condition, mode="eval")
    except SyntaxError:
        return "", frozenset()
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    numbers = all(type(node.value) is int for node in nodes if isinstance(node, ast.Constant))
    if len(names) != 1 or not numbers or not all(isinstance(node, (*_TERMS, *_RELATIONS)) for node in nodes):
        return "", frozenset()
    (dim,), code = names, compile(tree, "<condition>", "eval")
    return dim, frozenset(n for n in SIZES if eval(code, {"__builtins__": {}}, {dim: n}))  # noqa: S307  only numbers are compared


def _condition(f: Finding) -> str:
    """All conditions under which it fails, as one condition."""
    return " and ".join(gate.removeprefix(_CONDITION) for gate in f.gates)


def _seen(first: Finding, other: Finding) -> Kind | None:
    """The verdict on the first's smallest case in the other's dtype; None if nobody has tried."""
    if first.signature.dtype == other.signature.dtype:
        return None
    mine = ((v.subject, v.dtype) for v in first.variants)
    kinds = dict(zip(mine, (v.kind for v in first.variants), strict=True))
    return kinds.get((first.subject.key, other.signature.dtype))


def _case(case: Case) -> tuple[object, ...]:
    """All that a case is but for dtypes."""
    tensors = [(name, t.but(dtype="", pokes=()).id, [at for at, _ in t.pokes]) for name, t in case.tensors.items()]
    return (tensors, case.attrs, case.outputs)


def _shapes(case: Case) -> list[tuple[int, ...]]:
    return [t.shape for t in case.tensors.values()]


def _size(f: Finding) -> tuple[int, int, str]:
    """Small cases first, of equally small ones what was seen most often."""
    return (f.case.elements, -f.count, f.id)
