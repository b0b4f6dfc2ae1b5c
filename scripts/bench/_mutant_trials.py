"""One trial of a mutant: is it found, how soon, by which verdict; and of one that is not, does it matter at all?"""

import ast
import re
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from _hunt import hunt
from _ideas import IDEAS
from _mutation import UNCHANGED, Mutant, edit_of, language_of, operators, source_of, write

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.extents import limits
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.exhaustive.prove import BITS, cases_of
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import propose
from kernel_assay.fuzz.planning.plan import fitted, new_campaign, targets
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.kernels.sandbox.batch import Outcome

DETECTED, SURVIVES, STILLBORN = "detected", "survives", "cannot run"
PATIENCE = 20.0
"""Seconds that an execution may take: on a busy machine a right kernel that is emulated takes more than 5."""
COMPARED = 256
"""Cases on which a mutant that is not found is compared with the kernel it was made of, to the bit."""
LOOKED = 40.0
"""Seconds that may take, and as many whether the changed line is ever run, and a proof."""
WARNED = "warning of a larger size"
"""What found a mutant that no case had: blocks at the ends of a grid that is never run (fuzz/checking/extents.py)."""
BY_HAND = Path(__file__).with_name("mutants_equivalent.toml")


class Trial(Record):
    """What came of one trial, as it is kept."""

    mutant: str
    """Its id; of a kernel that is unchanged its key."""
    kernel: str
    operator: str
    old: str
    new: str
    seed: int
    without: str = ""
    """The idea that the search did without."""
    limit: float
    """Seconds it had."""
    fate: str
    verdict: str = ""
    """Which kind found it, or why it cannot run."""
    seconds: float = 0.0
    cases: int = 0
    reached: bool | None = None
    """Whether the changed line is ever run; None: nobody knows."""
    triggered: bool | None = None
    """Whether any output differs from the original's, in any bit, or it was found."""
    compared: int = 0
    """Cases that this was looked for on, if it was not found."""
    proved: bool = False
    """Whether all inputs there are give the same bits as the original."""

    @property
    def key(self) -> tuple[str, int, str, float]:
        """What makes two trials the same."""
        return self.mutant, self.seed, self.without, self.limit


class Task(NamedTuple):
    """One trial to be made, and until when (time.monotonic) it may begin."""

    mutant: Mutant
    seed: int
    limit: float
    until: float
    without: str = ""

    @property
    def trial(self) -> Trial:
        """As long as nothing has come of it."""
        mutant = self.mutant
        is_changed = mutant.operator != UNCHANGED
        old, new = mutant.difference if is_changed else ("", "")
        return Trial(
            mutant=mutant.id if is_changed else mutant.of.key,
            kernel=mutant.of.key,
            operator=mutant.operator,
            old=old,
            new=new,
            seed=self.seed,
            without=self.without,
            limit=self.limit,
            fate=SURVIVES,
        )


def attempt(task: Task) -> Trial | None:
    """Look for what is wrong with one; None if it is too late to begin."""
    if time.monotonic() > task.until:
        return None
    if task.without:
        IDEAS[task.without]()
    mutant, trial = task.mutant, task.trial
    mutant.write()
    try:
        subject = user_subject(str(mutant.path), (mutant.of.op,))
        with Examiner([subject], timeout=PATIENCE) as examiner:
            if why := never_runs(examiner, subject, task.seed):
                return trial.but(fate=STILLBORN, verdict=why)
            judged: list[int] = []
            caught = hunt(examiner, subject, task.seed, task.limit, judged=judged.append)
            if caught is None and (told_later := warned(trial.but(cases=sum(judged)), examiner, subject)):
                return told_later
    except (InternalError, UsageError) as error:
        return trial.but(fate=STILLBORN, verdict=" ".join(str(error).split()))
    if caught is None:
        return trial if task.without or mutant.operator == UNCHANGED else looked_into(trial, mutant, subject)
    kind = caught.failure.verdict.kind.value
    return trial.but(
        fate=DETECTED, verdict=kind, seconds=caught.seconds, cases=caught.proposal.index + 1,
        reached=True, triggered=True,
    )  # fmt: skip


def warned(trial: Trial, examiner: Examiner, subject: Subject) -> Trial | None:
    """Look at sizes that nobody runs, as the end of a search does; None if there is nothing wrong."""
    began = time.monotonic()
    said = next(limits(examiner, subject, began + PATIENCE), "")
    if not said:
        return None
    seconds = trial.limit + time.monotonic() - began
    words = f": {said}" if trial.operator == UNCHANGED else ""
    return trial.but(fate=DETECTED, verdict=WARNED + words, seconds=seconds, reached=True, triggered=True)


def never_runs(examiner: Examiner, subject: Subject, seed: int) -> str:
    """Why a mutant is none, as one that does not compile: it cannot be loaded, or its first call misses a name."""
    if problems := examiner.sandbox.probe():
        return " ".join(problems.values())
    found = targets(fitted(new_campaign("bench", seed, "conjecture", [subject]), examiner.sandbox))
    checked = examiner.check([CheckRequest(propose(found, seed, 0, Elites()).case, (subject.key,))])
    message = checked[0].verdicts[subject.key].message
    return message if "raised NameError" in message else ""


def looked_into(trial: Trial, mutant: Mutant, subject: Subject) -> Trial:
    """Say of a survivor whether its line is run, whether it differs in any bit, and whether it ever can."""
    triggered, compared = differs(mutant.of, subject, drawn(mutant.of, trial.seed), COMPARED)
    trial = trial.but(triggered=triggered, compared=compared, reached=triggered or is_reached(mutant, trial.seed))
    values = operators()[mutant.operator].about == "values"
    return trial.but(proved=values and not triggered and proved(mutant.of, subject))


def why_equivalent(trial: Trial) -> str:
    """Why a survivor is no bug: by a person's word, by proof or by the record; empty: it is one."""
    if trial.fate != SURVIVES:
        return ""
    if reason := noted(trial, "equivalent"):
        return f"by hand: {reason}"
    if trial.proved:
        return "by proof: the same bits on every input"
    if trial.reached is False and not trial.triggered:
        return "by the record: the changed line is never run"
    silent = operators()[trial.operator].about in {"threads", "sizes"} or trial.compared < COMPARED // 2
    return "" if trial.triggered is not False or silent else f"by the record: the same bits on {trial.compared} cases"


def drawn(subject: Subject, seed: int) -> Iterator[Case]:
    """The cases of a search that nothing steers, without end."""
    with Examiner([subject], timeout=PATIENCE) as examiner:
        found = targets(fitted(new_campaign("bench", seed, "conjecture", [subject]), examiner.sandbox))
    index = 0
    while True:
        if not (proposal := propose(found, seed, index, Elites())).is_long:
            yield proposal.case
        index += 1


def differs(original: Subject, changed: Subject, cases: Iterator[Case], most: int) -> tuple[bool, int]:
    """Whether two kernels give different bits, or end differently, on any of so many cases; how many were looked at."""
    until, seen = time.monotonic() + LOOKED, 0
    with Examiner([original, changed], timeout=PATIENCE) as examiner:
        while seen < most and time.monotonic() < until:
            asked = [CheckRequest(case, (original.key, changed.key)) for case in islice(cases, 16)]
            for outcomes in examiner.collect(examiner.launch(asked)):
                if told(outcomes[original.key]) != told(outcomes[changed.key]):
                    return True, seen
                seen += 1
            if not asked:
                break
    return False, seen


def told(outcome: Outcome) -> tuple[object, ...]:
    """How a run ended, and every bit that it left."""
    return outcome.execution.status, *((name, array.tobytes()) for name, array in outcome.outputs.items())


def proved(original: Subject, changed: Subject) -> bool:
    """Whether both give the same bits on every input there is; only where all types are narrow enough to count out."""
    with Examiner([original]) as examiner:
        contract = examiner.contracts[original.op]
    name = next(iter(contract.inputs))
    taken = {v[name] for v in contract.variants if not original.dtypes or v[name] in original.dtypes}
    if any(format_of(dtype).bits > BITS for dtype in taken):
        return False
    with suppress(UsageError):
        cases = cases_of(contract, original)
        differ, seen = differs(original, changed, iter(cases), len(cases))
        return not differ and seen == len(cases)
    return False


def is_reached(mutant: Mutant, seed: int) -> bool | None:
    """Whether the statement of a change is ever run: a kernel that stops there fails at once. None: nobody knows."""
    text, language = source_of(mutant.of), language_of(mutant.of)
    place = _statement(text, mutant.begin, language)
    if place is None:
        return None
    stop = "__trap();" if language == "cuda" else "raise RuntimeError('reached')"
    indent = re.match(r" *", text[place:])[0]  # type: ignore[index]
    path = mutant.path.with_name(f"r{mutant.path.name}")
    write(mutant.of, path, edit_of(text, place, place, f"{indent}{stop}\n"))
    try:
        stopped = user_subject(str(path), (mutant.of.op,))
        differ, seen = differs(mutant.of, stopped, drawn(mutant.of, seed), COMPARED)
    except (InternalError, UsageError):
        return None
    return True if differ else False if seen >= COMPARED // 2 else None


def _statement(text: str, at: int, language: str) -> int | None:
    """Where the line begins with which the statement around a place begins; None: it is in no function."""
    lines = text.splitlines(keepends=True)
    number = text.count("\n", 0, at)
    if language == "cuda":
        while number and not re.search(r"[;{}:]\s*(//[^\n]*)?$|^\s*$", lines[number - 1]):
            number -= 1
        return len("".join(lines[:number])) if lines[number][:1] == " " else None
    inside = [
        node
        for function in ast.walk(ast.parse(text)) if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function
        if node.lineno <= number + 1 <= (node.end_lineno or 0)
    ]  # fmt: skip
    smallest = min(inside, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)
    return None if smallest is None else len("".join(lines[: smallest.lineno - 1]))


def noted(trial: Trial, table: str) -> str:
    """What the file of people's words says of a mutant; empty: nothing."""
    return by_hand(trial.kernel, trial.operator, trial.old, trial.new, table)


def by_hand(kernel: str, operator: str, old: str, new: str, table: str = "equivalent") -> str:
    """The same of a mutant that nobody has tried yet."""
    said = {"operator": operator, "old": old, "new": new}
    for one in _by_hand().get(table, []):
        if fnmatchcase(kernel, one["kernel"]) and all(one.get(k, v) == v for k, v in said.items()):
            return str(one["reason"])
    return ""


@cache
def _by_hand() -> dict[str, list[dict[str, str]]]:
    return tomllib.loads(BY_HAND.read_text("utf-8"))
