"""References of users: each runs in a process of its own, and becomes a contract like any other.

That process may die, hang or scribble on what it is given; what it says is read as numbers. The judge asks it about
whole batches of cases at once.
"""

from __future__ import annotations

import atexit
import math
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.inputs.arguments import Argument
from kernel_assay.corpus.inputs.gradients import NEEDED
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.reference_place import ReferencePlace, Target
from kernel_assay.corpus.model.subject import EVERY, INPUT, Numerics
from kernel_assay.corpus.process.channel import Message
from kernel_assay.corpus.process.child import ChildProcess, GoneError
from kernel_assay.corpus.process.forked_child import ForkedChild
from kernel_assay.corpus.process.import_limit import IMPORT_SECONDS
from kernel_assay.corpus.storage.protocol import RunStore
from kernel_assay.oracles.catalog import builtin_ops, contract_of, enter, load_contracts, origin_of
from kernel_assay.oracles.references.contract import contract_from
from kernel_assay.oracles.spec.contract import Contract, Input
from kernel_assay.oracles.spec.elsewhere import OutsideError

_MODULE = "oracles.references.process"
_FOLLOWING = "kernel_assay.oracles.references.torch.following"
"""What it imports of ours where a reference is made of torch; torch with it."""
START_SECONDS, ANSWER_SECONDS = IMPORT_SECONDS + 25.0, 10.0
"""For loading and describing a reference, and for its answer to one case."""
KEPT = 1 << 27
"""Bytes of answers that are remembered."""
NOT_BUILT_IN = "_reference"
"""What stands behind the name of an op that is called like a built-in one."""
_VAGUE = frozenset({"Model", "model", "reference", "ref", "forward", "fn", "f", "run", "main"})
"""Names that say nothing about an op; it is then called after its file."""
_ANYBODYS = frozenset({"model", "reference"})
"""Names of files that say nothing, either; it is then called after its folder."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer for one case; of one that is refused only the reason."""

    refused: str = ""
    outputs: Mapping[str, tuple[Array, Array, Array, Array]] | None = None
    """Wanted, value, low and high."""
    positions: Mapping[str, tuple[int, Array, Array]] | None = None
    """Of outputs that hold such: the axis, and limits of the numbers that stand there."""

    @property
    def size(self) -> int:
        return sum(x.nbytes for four in (self.outputs or {}).values() for x in four)


class ReferenceProcess:
    """The process of one reference, started when it is asked, and what it has answered (oracles.spec.elsewhere)."""

    def __init__(self, target: str, folder: Path) -> None:
        """Raises UsageError for a reference that cannot be used."""
        self.target, self.folder = target, folder
        self.note = ""
        """A sentence about the reference that a person should read."""
        self.rounds: frozenset[str] = frozenset()
        """Dtypes in which a kernel may round what the reference itself, as it is written, rounds in between."""
        self._owner = 0
        self._process: ChildProcess | None = None
        self._memory = -1
        self._known: OrderedDict[tuple[int, str], tuple[Case, _Answer]] = OrderedDict()
        self._bytes = 0
        self.said: Message = self._start()
        self._unfollowed = set(self.said["unfollowed"])
        self._elements = self._unjudged = 0

    def _start(self) -> Message:
        if self._process is not None:  # of the process that has forked this one
            _INHERITED.append(self._process)
        self._owner = os.getpid()
        self._memory = os.memfd_create("reference")
        settings = {"place": self.target, "folder": str(self.folder)}
        self._process = ForkedChild(_MODULE, self._memory, settings, _libraries(self.target, self.folder))
        load_contracts()  # they take a while to import, as what that process needs does
        try:
            said = self._process.hear(START_SECONDS, self.target)
        except GoneError as gone:
            self.close()
            raise UsageError(f"the reference {self.target} cannot be loaded: {gone}") from gone
        if "refused" in said:
            self.close()
            raise UsageError(said["refused"])
        atexit.register(self.close)
        return said

    def close(self) -> None:
        """End the process, if it is one of this process's own; it is started again where something is asked."""
        atexit.unregister(self.close)
        process, memory = self._process, self._memory
        self._process, self._memory = None, -1
        if self._owner != os.getpid():
            return
        if process is not None:
            process.close()
        if memory >= 0:
            os.close(memory)

    @property
    def usual_op(self) -> str:
        """The name of its op where nobody gives another."""
        name = self.said["stem"] if self.said["name"] in _VAGUE else self.said["name"]
        name = Path(self.said["file"]).parent.name if name in _ANYBODYS else name
        return (op_name(name) or "op_") + ("_grad" if self.said["gradient"] else "")

    @property
    def unjudged(self) -> float:
        """Share of the elements of a gradient that were not judged, as it has no value there, or jumps."""
        return self._unjudged / self._elements if self._elements else 0.0

    @property
    def unfollowed(self) -> tuple[str, ...]:
        """What of it no estimate can follow, by name."""
        return tuple(sorted(self._unfollowed))

    @property
    def source(self) -> str:
        """Where it stands: `FILE:NAME`, with a whole path."""
        return f"{self.said['file']}:{self.said['name']}"

    @property
    def backend(self) -> str:
        """What it is written in: `torch` or `numpy`."""
        return str(self.said["library"])

    @property
    def launch(self) -> str:
        """What a kernel must know: what arguments are made of, and of a module how it is made."""
        arguments = {"arguments": self.said["arguments"]}
        if self.differentiated:
            arguments["gradient"] = self.said["gradient"]
        if not self.said["mode"]:
            return to_json(arguments).decode() if self.rearranged else ""
        keys = ("init", "init_dims", "mode")
        tensors = [
            [t["name"], t["weight"], t["axes"]] for t in self.said["tensors"] if t["name"] not in self.cotangents
        ]
        of_modules = {**{k: self.said[k] for k in keys}, "tensors": tensors, "attrs": [*self.said["attrs"]]}
        if optional := [name for name in self.said["optional"] if name not in self.said["attrs"]]:
            of_modules["optional"] = optional
        return to_json({**of_modules, **arguments}).decode()

    @property
    def rearranged(self) -> bool:
        """Whether arguments are other than the tensors of a case, or changed in place, or a gradient is asked for."""
        return bool(self.said["arguments"]) or self.differentiated

    @property
    def differentiated(self) -> bool:
        """Whether it is the gradient of a function."""
        return bool(self.said["gradient"])

    @property
    def weights(self) -> frozenset[str]:
        """Inputs that are weights of a module."""
        return frozenset(t["name"] for t in self.said["tensors"] if t["weight"])

    @property
    def cotangents(self) -> set[str]:
        """Inputs of the op that the function does not take, of a gradient."""
        return {*self.said["gradient"]["cotangents"].values()} if self.differentiated else set()

    def prepare(self, cases: Sequence[Case]) -> None:
        """Ask about cases under the usual arithmetic, all at once."""
        asked = {case.dtype: self._allowed(case, _USUAL) for case in cases}
        for dtype, numerics in asked.items():
            rest = [one for one in cases if one.dtype == dtype and (id(one), numerics.id) not in self._known]
            self._ask(rest, numerics)

    def _allowed(self, case: Case, numerics: Numerics) -> Numerics:
        """The arithmetic, with what the reference itself rounds."""
        if case.dtype not in self.rounds:
            return numerics
        return numerics.but(intermediates={EVERY: INPUT, **numerics.intermediates})

    def is_off(self, case: Case) -> bool:
        """Whether an output of the reference itself is further from the truth than a kernel's may be."""
        try:
            limits, native = self.limits(case, _USUAL), self.native(case)
        except OutsideError:
            return False
        for name, x in native.items():
            fmt, (_, *ends) = format_of(self.said["outputs"][name]), limits[name]
            with np.errstate(all="ignore"):
                low, high = (end.astype(fmt.dtype) for end in ends)
            if fmt.is_float and bool(((x < low) | (x > high)).any()):
                return True
        return False

    def differences(self, case: Case) -> Message:
        """Compare its gradients with finite differences (oracles/references/differences.py), or say why it cannot."""
        try:
            (found,) = self._told({"differences": [case.model_dump(mode="json")]}, ANSWER_SECONDS)["found"]
        except GoneError as gone:
            self.close()
            return {"refused": str(gone)}
        return dict(found)

    def native(self, case: Case) -> Mapping[str, Array]:
        """The outputs of the reference itself in the dtypes of the case's inputs; none, if it fails there."""
        if self.differentiated:
            return {}
        try:
            said = self._told({"native": case.model_dump(mode="json")}, ANSWER_SECONDS)
        except GoneError:
            self.close()
            return {}
        found, at = {}, 0
        for name, shape in said.get("shapes", {}).items():
            (found[name],), at = self._arrays(shape, at, 1)
        return found

    def shapes(self, case: Case) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the outputs. Raises OutsideError."""
        return {name: four[0].shape for name, four in self._outputs(case, _USUAL).items()}

    def want(self, case: Case) -> Mapping[str, Array]:
        """The exact outputs. Raises OutsideError."""
        return {name: four[0] for name, four in self._outputs(case, _USUAL).items()}

    def positions(self, case: Case) -> Mapping[str, tuple[int, Array, Array]]:
        """Each output that holds positions, and of what numbers. Raises OutsideError."""
        return self._answered(case, _USUAL).positions or {}

    def limits(self, case: Case, numerics: Numerics) -> Mapping[str, tuple[Array, Array, Array]]:
        """Limits under an arithmetic. Raises OutsideError."""
        return {name: four[1:] for name, four in self._outputs(case, numerics).items()}

    def _outputs(self, case: Case, numerics: Numerics) -> Mapping[str, tuple[Array, Array, Array, Array]]:
        return self._answered(case, numerics).outputs or {}

    def _answered(self, case: Case, numerics: Numerics) -> _Answer:
        numerics = self._allowed(case, numerics)
        key = id(case), numerics.id
        if key not in self._known:
            self._ask([case], numerics)
        _, answer = self._known[key]
        if answer.outputs is None:
            raise OutsideError(f"unsupported by the reference: {answer.refused}")
        return answer

    def _ask(self, cases: Sequence[Case], numerics: Numerics) -> None:
        """Ask about cases; one by one, if the process did not survive all of them."""
        if not cases:
            return
        try:
            answers = self._answers(cases, numerics)
        except GoneError as gone:
            self.close()
            if len(cases) > 1:
                for case in cases:
                    self._ask([case], numerics)
                return
            answers = [_Answer(refused=str(gone))]
        for case, answer in zip(cases, answers, strict=True):
            self._remember(case, numerics, answer)

    def _told(self, message: Message, seconds: float) -> Message:
        """What the process answers, which is started if there is none. Raises GoneError."""
        if self._process is None or self._owner != os.getpid():
            self._start()
        assert self._process is not None
        try:
            return self._process.ask(message, seconds)
        except BaseException:  # the end of a run, too: what it has not answered yet is no answer to the next question
            self.close()
            raise

    def _answers(self, cases: Sequence[Case], numerics: Numerics) -> list[_Answer]:
        """Raises GoneError."""
        asked = {"cases": [c.model_dump(mode="json") for c in cases], "numerics": numerics.model_dump(mode="json")}
        said = self._told(asked, ANSWER_SECONDS * math.sqrt(len(cases)))
        try:
            self._unfollowed.update(said["unfollowed"])
            found = [self._read(one) for one in said["answers"]]
        except (KeyError, ValueError) as error:
            what = "does it fork, or write to descriptors that it has not opened?"
            raise UsageError(f"the process of the reference {self.target} answers out of form: {what}") from error
        if self.differentiated:
            self._unjudged += sum(one.get("unjudged", 0) for one in said["answers"])
            self._elements += sum(x[0].size for one in found for x in (one.outputs or {}).values())
        return found

    def _read(self, said: Mapping[str, Any]) -> _Answer:
        if "refused" in said:
            return _Answer(refused=said["refused"])
        found, at = {}, said["at"]
        for name, shape in said["shapes"].items():
            (want, value, low, high), at = self._arrays(shape, at, 4)
            found[name] = want, value, low, high
        places = {name: self._positions(one) for name, one in said["positions"].items()}
        return _Answer(outputs=found, positions=places)

    def _positions(self, said: Mapping[str, Any]) -> tuple[int, Array, Array]:
        (low, high), _ = self._arrays(said["shape"], said["at"], 2)
        return int(said["axis"]), low, high

    def _arrays(self, shape: Sequence[int], at: int, several: int) -> tuple[list[Array], int]:
        """Arrays of one shape that the process has left behind one another, and where the next one begins."""
        size = 8 * math.prod(shape)
        parts = [os.pread(self._memory, size, at + i * size) for i in range(several)]
        return [np.frombuffer(part).reshape(shape) for part in parts], at + several * size

    def _remember(self, case: Case, numerics: Numerics, answer: _Answer) -> None:
        """The latest answers, by the case itself, which lives as long as its answer does."""
        self._known[id(case), numerics.id] = case, answer
        self._bytes += answer.size
        while len(self._known) > 1 and (self._bytes > KEPT or len(self._known) > 1 << 12):
            _, (_, old) = self._known.popitem(last=False)
            self._bytes -= old.size


def _libraries(target: str, folder: Path) -> list[str]:
    """Modules that a reference is likely to need."""
    where, _, _, grad = Target.read(target)
    file = folder / (where if where.endswith(".py") else f"{where.replace('.', '/')}.py")
    needs = [_FOLLOWING, *([NEEDED] if grad else [])]
    return needs if file.is_file() and b"torch" in file.read_bytes() else []


_USUAL = Numerics()
_INHERITED: list[ChildProcess] = []
"""Kept for good: whoever drops one closes files by numbers that mean others by now (campaign/parallel.py)."""


def add_reference(
    text: str,
    folder: Path | None = None,
    *,
    op: str = "",
    grad: bool = False,
    named: Callable[[str], str] = lambda _: "",
) -> Contract:
    """Make a reference known as the contract of an op, which is called after it.

    text: `FILE[:NAME]` or `module:NAME`, and maybe examples of its inputs: `FILE:NAME(float32[4, 8], 0.5)`; folder:
    where a module is looked for; None: here. op: its name; empty: that of the function, or of its file. grad: its
    gradient is meant, as it is by a NAME that ends in `.grad`. named: tells what is called by a name already, which
    stays; this one then gets a number behind its name. The same reference again is loaded again. Raises UsageError for
    one that cannot be used.
    """
    target = Target.read(text)
    target = target._replace(grad=grad or target.grad)
    if target.is_file:
        target = target._replace(where=os.path.realpath(target.where))
    process = ReferenceProcess(str(target), folder or Path.cwd())
    said = process.said
    if target.is_file:
        target = target._replace(name=said["name"])
    place = ReferencePlace(str(target), "" if target.is_file else str(folder or Path.cwd()), said["digest"])
    op = op or process.usual_op
    names = (op if n == 1 else f"{op}_{n}" for n in count(1))
    op = next(name for name in names if not named(name) or _is_at(named(name), place))
    made = contract_from(op, said, _nobody, elsewhere=process, origin=str(place))
    return enter(made)


@contextmanager
def lent_references(texts: Sequence[str], *, grad: bool, named: Callable[[str], str]) -> Iterator[tuple[str, ...]]:
    """Make references known, and end their processes in the end; their ops. Raises as add_reference does."""
    with ExitStack() as stack:
        ops = []
        for text in texts:
            contract = add_reference(text, grad=grad, named=named)
            assert isinstance(contract.elsewhere, ReferenceProcess)
            stack.enter_context(closing(contract.elsewhere))
            ops.append(contract.name)
        yield tuple(ops)


def _is_at(origin: str, place: ReferencePlace) -> bool:
    """Whether an origin is of the reference at a place, or of one whose file is gone, which may have moved there."""
    known = ReferencePlace.read(origin)
    if known is None:
        return False
    same = (known.target, known.folder) == (place.target, place.folder)
    return same or (not known.folder and not Path(Target.read(known.target).where).is_file())


def named_in(store: RunStore) -> Callable[[str], str]:
    """What tells by which reference the findings of an op in a corpus were judged; empty: there are none."""
    return cache(lambda op: next((f.contract for f in store.findings(op) if f.contract), ""))


def op_name(text: str) -> str:
    """A name for an op, empty if nothing is left; that of a built-in op is another one, whatever it computes."""
    said = re.sub(r"\W+", "_", text).strip("_").lower()
    if not said:
        return ""
    said = said if said[0].isalpha() else f"op_{said}"
    return f"{said}{NOT_BUILT_IN}" if said in builtin_ops() else said


def _nobody(**_: Any) -> Mapping[str, Array]:
    raise InternalError("a reference of a user's runs in its own process only")


def know_reference(op: str, place: ReferencePlace, whose: str, recorded: Collection[str]) -> None:
    """Load the reference a record was made under. Raises UsageError if it is gone; says so if it has changed.

    recorded: ops of records; the only other one stands for a reference that is gone, for it may be called otherwise.
    """
    where = Target.read(place.target).where
    gone = not place.folder and not Path(where).is_file()
    given = [c for c in load_contracts().values() if c.elsewhere is not None and c.name not in recorded]
    if gone and len(given) == 1:
        enter(replace(given[0], name=op))
        return
    if gone:
        raise UsageError(f"the reference of {whose} is gone: {where} does not exist; name it with --reference")
    process = add_reference(place.target, Path(place.folder) if place.folder else None, op=op).elsewhere
    assert isinstance(process, ReferenceProcess)
    if process.said["digest"] != place.digest:
        process.note = f"the reference of {whose} has changed since: {process.said['file']}"


def described(op: str) -> str:
    """What a reference was found to be, in a line."""
    contract = contract_of(op)
    dtypes = contract.variants[0]
    said = contract.elsewhere.said if isinstance(contract.elsewhere, ReferenceProcess) else {}
    kinds = {name: a for a in map(Argument.read, said.get("arguments", [])) for name in a.tensors}
    inputs = {name: _words(name, dtypes[name], i, kinds.get(name)) for name, i in contract.inputs.items()}
    shown = [f"[{text}]" if name in contract.optional else text for name, text in inputs.items()]
    attrs = [f"{name}={values[0]}" for name, values in contract.attrs.items()]
    untold = said.get("untold", [])
    rest = f"; {', '.join(untold)} left out, for nothing says what it is" if untold else ""
    return f"{contract.summary}: {', '.join([*shown, *attrs])}{rest}"


def _words(name: str, dtype: str, spec: Input, argument: Argument | None) -> str:
    """An input as its author writes it."""
    if argument is not None and argument.kind == "mask":
        return f"{name} bool[{', '.join(spec.axes)}]"
    if argument is not None and argument.kind == "offsets":
        return f"{name} {dtype}[{spec.axes[0]}+1] offsets of {spec.upto}"
    structure = f" {spec.structure}" if spec.structure else ""
    inout = " inout" if argument is not None and argument.inout else ""
    return f"{name} {dtype}[{', '.join(spec.axes)}]{_range(spec)}{structure}{inout}"


def _range(spec: Input) -> str:
    if spec.below or spec.low is None:
        return f" < {spec.below}" if spec.below else ""
    return f" of {spec.low:g}, {spec.high:g}" if spec.distributions else f" {spec.low:g}..{spec.high:g}"


def unfollowed_of(ops: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What of the references of ops no estimate follows, as far as that is known by now."""
    found = {op: contract_of(op).elsewhere for op in ops if origin_of(op)}
    return {op: one.unfollowed for op, one in found.items() if one is not None and one.unfollowed}


def unjudged_of(ops: Sequence[str]) -> dict[str, float]:
    """Share of the elements of gradients that were not judged, of the references of ops, where there are such."""
    found = {op: contract_of(op).elsewhere for op in ops if origin_of(op)}
    return {op: one.unjudged for op, one in found.items() if isinstance(one, ReferenceProcess) and one.unjudged}


def notes_of(ops: Sequence[str]) -> list[str]:
    """Sentences about the references of ops that a person should read."""
    found = [contract_of(op).elsewhere for op in dict.fromkeys(ops) if origin_of(op)]
    return [one.note for one in found if isinstance(one, ReferenceProcess) and one.note]
