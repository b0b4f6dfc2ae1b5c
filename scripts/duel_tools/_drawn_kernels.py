"""The kernels of a duel: which take part, under which names tools get them, and which mutants are bugs."""

import argparse
import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import TypeVar

import _bench
import numpy as np
from _answers import Answer, Kernel
from _hunt import hunt
from _mutant_trials import DETECTED, PATIENCE, STILLBORN, SURVIVES, never_runs
from _mutation import LANGUAGES, mutants
from _problem import always, case_of, forms_of, is_free

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Special
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.storage.reading import case_of as case_of_token
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import select
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.kernels.backends.support.edits import read_source
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.domain import outside

T = TypeVar("T")
POOL = 4
"""So many mutants are drawn for each that takes part, so that ops can take turns."""
TELLING = (
    re.compile(r'\A(?:r?"""(?s:.*?)"""\n|(?<=\A)/\*\n(?s:(?:(?!\*/).)*?)(?=^---$))', re.MULTILINE),
    re.compile(r"^(?:// ?)?(?:PLANTED|SHOWS|planted|shows|summary) = .*\n", re.MULTILINE),
)
"""What a file says of itself: its head, and what it is seeded with."""
AGAIN = 3
"""Runs of a case among which a failure must come again."""
LARGEST = 1 << 22
"""Elements of a tool's case, at most."""


def subjects_of(ops: list[str]) -> list[Subject]:
    """All built-in ones that there are, seeded bugs too."""
    return [s for s in select(ops, planted=True) if s.backend in LANGUAGES]


def chosen(args: argparse.Namespace, folder: Path) -> list[Kernel]:
    """The kernels: in each kind ops take turns, then languages, and then the seed chooses."""
    everyone = subjects_of(args.ops)
    draw, place = Random(args.seed), folder / "kernels"
    place.mkdir(parents=True, exist_ok=True)
    _bench.copy_headers(place)
    kernels = []
    for kind, count in (("seeded", args.seeded), ("right", args.right)):
        some = [s for s in everyone if bool(s.planted) == (kind == "seeded")]
        draw.shuffle(some)
        for s in in_turn(some, count, lambda s: s):
            path = handed(_bench.ROOT / s.path, s.op, place)
            kernels.append(Kernel(s.key, s.op, str(path), kind, claims_of(s) if kind == "right" else ""))
    right = [s for s in everyone if not s.planted]
    drawn = list(islice(mutants(right, folder / "mutants", args.seed), POOL * args.mutants))
    for mutant in in_turn(drawn, args.mutants, lambda m: m.of):
        mutant.path.parent.mkdir(parents=True, exist_ok=True)
        mutant.write()
        line = mutant.sources[0].count("\n", 0, mutant.begin) + 1
        name = f"{mutant.of.key}: {mutant.operator}, line {line} ({mutant.id})"
        kernels.append(Kernel(name, mutant.of.op, str(handed(mutant.path, mutant.of.op, place)), "mutant"))
    share = {id(k): i for some in ("seeded", "right", "mutant") for i, k in spread(kernels, some)}
    return sorted(kernels, key=lambda k: share[id(k)])  # so that a budget leaves some of every kind


def in_turn(some: Sequence[T], count: int, subject: Callable[[T], Subject]) -> list[T]:
    """So many of them: always the next whose op has had the fewest turns, then whose language has."""
    ops, languages, left, taken = Counter[str](), Counter[str](), list(some), list[T]()
    while left and len(taken) < count:
        one = min(left, key=lambda x: (ops[subject(x).op], languages[subject(x).backend]))
        left.remove(one)
        taken.append(one)
        ops[subject(one).op] += 1
        languages[subject(one).backend] += 1
    return taken


def spread(kernels: list[Kernel], kind: str) -> Iterator[tuple[float, Kernel]]:
    """Kernels of a kind, each with how many of its kind come before it, as a share."""
    some = [k for k in kernels if k.kind == kind]
    yield from ((i / len(some), k) for i, k in enumerate(some))


def handed(path: Path, op: str, folder: Path) -> Path:
    """Write the copy of a kernel that tools get: whole, and neither its name nor its head says whether it is right."""
    text = read_source(path).text
    for telling in TELLING:
        text = telling.sub(lambda m: "/*\n" if m[0].startswith("/*") else "", text)
    name = f"k{hashlib.sha256(text.encode()).hexdigest()[:12]}{'.py' if path.suffix == '.py' else '.cu'}"
    copy = folder / op / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text, "utf-8")
    return copy


def claims_of(subject: Subject) -> str:
    """Why only this project can know that a kernel is right; empty: anybody can."""
    if subject.numerics != Numerics():
        return "it declares its arithmetic"
    return "its op has several right answers" if has_several_answers(subject.op) else ""


@cache
def has_several_answers(op: str) -> bool:
    """Whether an implementation may choose, on any input, or whether a NaN among numbers makes NaN."""
    contract = contract_of(op)
    case = case_of(contract, next(forms_of(contract, (), always(4))), 0)
    spoiled = {
        name: t.but(specials=(Special(value="nan", place="first"),)) if is_free(contract.inputs[name], t.dtype) else t
        for name, t in case.tensors.items()
    }
    case = case.but(tensors=spoiled)
    budgets = Reference(contract, case, materialize_all(case)).budget(Numerics()).values()
    masks = [np.asarray(b.accept) for b in budgets if b.accept is not None]
    return contract.choices is not None or any((m & (m - 1)).any() for m in masks)


def fates(kernels: list[Kernel], answers: list[Answer], seconds: float, seed: int, until: float) -> dict[str, str]:
    """What came of each mutant that a tool says it has found; of none from `until` (monotonic) on."""
    found, cases = {a.kernel for a in answers if a.found}, dict[str, list[str]]()
    for a in answers:
        cases.setdefault(a.kernel, []).extend([a.case] if a.found and a.case else [])
    some = [k for k in kernels if k.kind == "mutant" and k.name in found]
    return {k.name: fate_of(k, cases[k.name], seconds, seed) for k in some if time.monotonic() < until}


def fate_of(kernel: Kernel, tokens: Sequence[str], seconds: float, seed: int) -> str:
    """Run a mutant on the cases of tools, and search as long as a tool has had; a failure must come again."""
    try:
        subject = user_subject(kernel.path, (kernel.op,))
        with Examiner([subject], timeout=PATIENCE) as examiner:
            if never_runs(examiner, subject, seed):
                return STILLBORN
            if any(_fails(examiner, subject, case) for case in _cases(tokens, subject)):
                return DETECTED
            caught = hunt(examiner, subject, seed, seconds)
            again = caught is not None and _fails(examiner, subject, caught.failure.case)
            return DETECTED if again else SURVIVES
    except (InternalError, UsageError):
        return STILLBORN


def _cases(tokens: Sequence[str], subject: Subject) -> Iterator[Case]:
    """What tools have said that they tried, as far as a kernel must take it."""
    for token in tokens:
        try:
            case = case_of_token(token)
        except UsageError:
            continue
        is_asked = case.op == subject.op and case.elements <= LARGEST and takes(subject, case.dtype)
        if is_asked and not outside(contract_of(case.op), case):
            yield case


def _fails(examiner: Examiner, subject: Subject, case: Case) -> bool:
    """Whether the judge refuses an output of a case, or sees a fault, more than once."""
    seen = 0
    for _ in range(AGAIN):
        try:
            checked = examiner.check([CheckRequest(case, (subject.key,))])[0]
        except (InternalError, UsageError):  # not a case of the op
            return False
        seen += checked.verdicts[subject.key].failed
    return seen > 1
