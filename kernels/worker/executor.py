"""The one way to run a subject: twice in guarded memory, with all that can be told from its two runs.

Where it runs is another matter: a Setting holds the case in memory (of the host, or of a device), and an Access knows
how subjects of a backend are loaded, called and read there.
"""

from __future__ import annotations

import gc
import math
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.execution import GuardDamage
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject, TensorSpec
from kernel_assay.kernels.backends.support.base import Loader, Returned
from kernel_assay.kernels.backends.support.free_memory import BYTES
from kernel_assay.kernels.backends.support.guard import POISONS
from kernel_assay.kernels.backends.support.signature import Bound, Interface, bind, unbound
from kernel_assay.kernels.boundary.output_transfer import bytes_of
from kernel_assay.kernels.boundary.protocol import Round
from kernel_assay.kernels.catalog import resolve
from kernel_assay.kernels.worker.exceptions import SubjectError, as_tuple, raised, timed

PIECE = 1 << 24
"""Elements of an output that are compared at once."""
OTHER_STREAM = (
    "its result is another one when its inputs arrive late on the current stream: it works on another stream than "
    "that, or does not wait for one of its own"
)
Head = dict[str, Any]
"""A message about what happened."""


class Memory(Protocol):
    """Memory that holds the inputs and outputs of a case."""

    def tensors(self) -> tuple[dict[str, Any], list[Any]]:
        """The inputs by name and the outputs in order, as an Access takes them."""

    def reset(self, run: int) -> None:
        """Make all of it as it must be before run 0 or 1: outputs poisoned, each time with another byte."""

    def damage(self, run: int) -> tuple[list[GuardDamage], list[str]]:
        """Find what was written where nothing may be: red zones and gaps, and the names of changed inputs."""

    def holds(self, address: int) -> str:
        """The name of the tensor an address points into, or an empty string."""


class Access(ABC):
    """How subjects of a backend are loaded, called and read where they run."""

    streamed = False
    """Whether the last call was to work on a stream of its own, on which its inputs arrived late."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    @abstractmethod
    def load(self, subject: Subject) -> Callable[..., Any]:
        """The function. Raises UsageError."""

    @abstractmethod
    def given(self, tensor: Any) -> Any:
        """What a subject is called with, for a tensor of the memory: a view of its own for every call."""

    def form(self, given: Any) -> Any:
        """What a subject must leave as it is of a tensor that it was given, besides its values."""
        del given

    @abstractmethod
    def returned(self, result: Any) -> Returned:
        """What a subject returned. Raises TypeError for what is no tensor."""

    @abstractmethod
    def written(self, tensor: Any) -> Returned:
        """An output in the memory, as it is now."""

    def kept(self, result: Returned, *, large: bool) -> Returned:
        """The same where the next run does not reach it."""
        del large
        return result

    def is_alike(self, first: Returned, second: Returned) -> bool:
        """Whether two results of one form are the same to the bit, where that is seen cheaply."""
        del first, second
        return False

    @abstractmethod
    def same(self, first: Any, second: Any) -> bool:
        """Whether two arrays of bits are the same."""

    @abstractmethod
    def bits(self, values: Returned) -> Any:
        """The elements as a flat array of integers of the same width."""

    @abstractmethod
    def is_nan(self, bits: Any, dtype: str) -> Any:
        """A mask of the elements that are NaN."""

    @abstractmethod
    def first(self, mask: Any) -> int:
        """Index of the first element that is set."""

    @abstractmethod
    def payload(self, values: Returned) -> Any:
        """The bytes, as they are handed over (boundary/output_transfer.py)."""

    def told_apart(self, first: Returned, second: Returned, at: int) -> Head:
        """More about two results that differ at an element."""
        del first, second, at
        return {}

    def free_memory(self, specs: dict[str, TensorSpec], run: int) -> AbstractContextManager[None]:
        """Let what a subject allocates for its outputs be full of a byte, another one for each run."""
        sizes = [math.prod(spec.shape) * format_of(spec.dtype).dtype.itemsize for spec in specs.values()]
        return self.loader.free_memory(sizes, run)

    def prepare(self, memory: Any, case: Case, run: int, order: int) -> None:
        """Told before each call; order: a number that chooses in which order threads run."""
        del memory, case, run, order

    def settle(self, memory: Any) -> None:
        """Have all of the memory where it is read at once."""
        del memory

    def hide(self, memory: Any) -> None:
        """Have the inputs be others until the next reset: threads of a subject that look at them see nothing yet."""
        del memory

    def call(self, function: Callable[[], Any]) -> Any:
        """Call, up to its end where it runs."""
        return function()

    @abstractmethod
    def timed_round(self, make: Callable[[int], Callable[[], Any]], asked: Round) -> tuple[Any, int]:
        """Time calls, each prepared by its number; what the last one returned, and the sum in nanoseconds."""

    def bound(self, subject: Subject, face: Interface) -> Bound:
        """The subject, so that it may be called. Raises UsageError."""
        return bind(self.load(subject), face, f"{subject.path}:{subject.function}")


def loaded_by(load: Callable[..., Any], subject: Subject) -> Callable[..., Any]:
    """The function of a subject, by a loader's way to load it."""
    function: Callable[..., Any] = load(resolve(subject), subject.function, subject.launch)
    return function


class Setting:
    """One case in memory; shared by all subjects that run it there."""

    large = False
    """Whether the judge makes some rows of the inputs only, so that only their digest can be compared."""
    digest = rows = ""
    """Of all inputs; of the rows that a judge of a large case makes."""

    def __init__(self, case: Case, specs: dict[str, TensorSpec], memory: Memory | None = None) -> None:
        """memory: None where it is made when it is first wanted."""
        self.case, self.specs, self._memory = case, specs, memory
        self._kept: dict[str, tuple[list[Any], dict[str, Any]]] = {}
        """Arguments that are not touched, by backend."""

    @property
    def memory(self) -> Memory:
        """The memory that holds it."""
        assert self._memory is not None
        return self._memory

    def arguments(self, access: Access, extra: Collection[str], *, returns: bool) -> tuple[list[Any], dict[str, Any]]:
        """The tensors to call with, outputs first unless the subject returns them; the extra inputs by name.

        Views of its own for every call, if a subject may reshape or transpose what it is given in place.
        """
        if not access.loader.keeps_views:
            return self._arguments(access, extra, returns=returns)
        if access.loader.name not in self._kept:
            self._kept[access.loader.name] = self._arguments(access, extra, returns=returns)
        return self._kept[access.loader.name]

    def _arguments(self, access: Access, extra: Collection[str], *, returns: bool) -> tuple[list[Any], dict[str, Any]]:
        tensors, outputs = self.memory.tensors()
        inputs = [access.given(tensor) for name, tensor in tensors.items() if name not in extra]
        named = {name: access.given(tensor) for name, tensor in tensors.items() if name in extra}
        return inputs if returns else [access.given(tensor) for tensor in outputs] + inputs, named


@dataclass(slots=True)
class Run:
    """One call: how long, what came back, what was damaged."""

    nanoseconds: int
    answer: Any
    """What came back itself, which is kept so that the next result cannot lie in its place by right."""
    results: list[Returned]
    damage: list[Head]
    mutated: list[str]
    warnings: list[str]

    @property
    def did_harm(self) -> bool:
        """Whether something was written that was not to be."""
        return bool(self.damage or self.mutated)


class RaceError(Exception):
    """The two runs differ because the second one worked on a stream of its own."""


@dataclass(frozen=True, slots=True)
class Executor:
    """A subject in a setting."""

    setting: Setting
    access: Access
    bound: Bound
    extra: Collection[str] = ()
    """Names of inputs that are given by keyword."""

    @property
    def declined(self) -> str:
        """The reason why the subject does not claim to do this case; empty if it does."""
        return self.bound.declines(self.setting.case.attrs, self.setting.case.tensors)

    def call(self, run: int, order: int, given: list[Any] | None = None) -> tuple[Any, int]:
        """Call it once: what came back, and how many nanoseconds it took. Raises SubjectError.

        given: is filled with what it was called with, and the forms of that: as of any caller's, it lasts beyond the
        call.
        """
        setting, access, bound = self.setting, self.access, self.bound
        setting.memory.reset(run)
        access.prepare(setting.memory, setting.case, run, order)
        try:
            arguments, named = setting.arguments(access, self.extra, returns=bound.returns)
            if given is not None:
                given += [(one, access.form(one)) for one in (*arguments, *named.values())]
            attributes = bound.attributes(setting.case.attrs)
            with access.free_memory(setting.specs if bound.returns else {}, run):
                return timed(lambda: access.call(lambda: bound.call(*arguments, **named, **attributes)))
        except BaseException as error:
            raise SubjectError(error) from error

    def once(self, run: int, order: int) -> Run:
        """Call it once, and look at all that it has left, before anything is collected. Raises SubjectError."""
        collects = gc.isenabled()
        gc.disable()
        try:
            return self._once(run, order)
        finally:
            if collects:
                gc.enable()

    def _once(self, run: int, order: int) -> Run:
        given: list[Any] = []
        answer, took = self.call(run, order, given)
        setting, access = self.setting, self.access
        try:
            count = len(setting.specs)
            results = [access.returned(r) for r in as_tuple(answer, count)] if self.bound.returns else []
        except NotImplementedError as error:  # of whatever was returned: nothing was declined
            raise SubjectError(TypeError(f"it returned what cannot be read: {error}")) from error
        except BaseException as error:
            raise SubjectError(error) from error
        damage, mutated = setting.memory.damage(run)
        mutated += [name for name in self._reshaped(given) if name not in mutated]
        if not self.bound.returns:
            results = [access.written(tensor) for tensor in setting.memory.tensors()[1]]
        if run == 0:
            results = [access.kept(result, large=setting.large) for result in results]
        kept = None if setting.large else answer
        return Run(took, kept, results, [d.model_dump() for d in damage], mutated, access.loader.warnings())

    def _reshaped(self, given: list[tuple[Any, Any]]) -> list[str]:
        """Names of inputs that are of another form now, or of other memory."""
        names = list(self.setting.case.tensors)
        names = [name for name in names if name not in self.extra] + [name for name in names if name in self.extra]
        pairs = zip(reversed(names), reversed(given), strict=False)
        return [name for name, (one, form) in pairs if self.access.form(one) != form]

    def twice(self, order: int) -> tuple[Run, Run]:
        """Call it twice. Raises SubjectError, and RaceError if only another stream makes a difference."""
        first, second = self.once(0, order), self.once(1, order)
        if self.access.streamed and self._differ(first, second):
            second = self.once(1, 0)
            if not self._differ(first, second):
                raise RaceError(OTHER_STREAM)
        return first, second

    def _differ(self, first: Run, second: Run) -> bool:
        pairs = zip(first.results, second.results, strict=True)
        return any("differing" in compared(self.access, "", a, b) for a, b in pairs)

    def report(self, first: Run, second: Run) -> tuple[Head, list[Any]]:
        """Describe two runs: the head of a message, and the first run's bytes."""
        setting = self.setting
        pairs = list(zip(setting.specs, first.results, second.results, strict=True))
        reports = [compared(self.access, *pair) for pair in pairs]
        for report, (_, one, other) in zip(reports, pairs, strict=True):
            some = bool(math.prod(one.array.shape))
            shared = range(max(one.place.start, other.place.start), min(one.place.stop, other.place.stop))
            report["alias_of"] = setting.memory.holds(one.address) if self.bound.returns and some else ""
            report["reused"] = bool(shared) and some and not setting.large
            alike = (one.array.shape, one.dtype) == (other.array.shape, other.dtype)
            if "differing" in report and alike and not setting.large:
                report["again"] = b64encode(bytes_of(self.access.payload(other))).decode()
        payload = [self.access.payload(r) if r.dtype in FORMATS else _FOREIGN for r in first.results]
        head = {
            "nanoseconds": first.nanoseconds,
            "outputs": reports,
            "damage": first.damage or second.damage,
            "mutated": first.mutated or second.mutated,
            "warnings": first.warnings or second.warnings,
        }
        return head, payload

    def not_returned(self, error: BaseException) -> Head:
        """Describe a call that raised: the subject did, unless the call did not get to it."""
        reason = unbound(self.bound, error)
        return {"status": Status.UNSUPPORTED, "message": reason} if reason else raised(error, self.access.loader)


def execute(
    executor: Executor, head: Head, *, order: int = 0, then: Callable[[Run, Run], None] | None = None
) -> tuple[Head, list[Any]]:
    """Run a subject twice and describe what happened: the head of a message, and the first run's bytes.

    head: what is said in any case; then: done with both runs before they are compared.
    """
    if reason := executor.declined:
        return {**head, "status": Status.UNSUPPORTED, "message": reason}, []
    try:
        runs = executor.twice(order)
        if then is not None:
            then(*runs)
    except RaceError as race:
        return {**head, "status": Status.FAULTED, "fault": Kind.RACE, "message": str(race)}, []
    except SubjectError as error:
        return {**head, **executor.not_returned(error.cause)}, []
    try:
        found, payload = executor.report(*runs)
    except MemoryError:
        message = "its results are too large to be read back within the memory limit"
        return {**head, "status": Status.OUT_OF_MEMORY, "message": message}, []
    return {**head, **found}, payload


_FOREIGN = b""
"""The payload of a result in a dtype that is none of ours: nobody could read it."""


def compared(access: Access, name: str, first: Returned, second: Returned) -> Head:
    """Compare two runs of one output: which elements kept both poisons, and which others differ."""
    form = {"name": name, "shape": tuple(first.array.shape), "dtype": first.dtype, "contiguous": first.contiguous}
    if (first.array.shape, first.dtype) != (second.array.shape, second.dtype):
        return {**form, "differing": max(math.prod(r.array.shape) for r in (first, second)), "first_differing": 0}
    if first.dtype not in FORMATS or access.is_alike(first, second):
        return form
    found: Head = {}
    for start, masks in _masks(access, first, second):
        for word, mask in masks.items():
            if count := int(mask.sum()):
                found[word] = found.get(word, 0) + count
                found.setdefault(f"first_{word}", start + access.first(mask))
    more = access.told_apart(first, second, found["first_differing"]) if "differing" in found else {}
    return {**form, **found, **more}


def _masks(access: Access, first: Returned, second: Returned) -> Iterator[tuple[int, dict[str, Any]]]:
    """Masks of two runs' elements, piece by piece, and the index where each piece begins."""
    fmt = format_of(first.dtype)
    one, other = access.bits(first), access.bits(second)

    given, own, again = (
        int.from_bytes(bytes([byte]) * fmt.dtype.itemsize, "little", signed=True)
        for byte in (POISONS[0], BYTES[0], POISONS[1])
    )
    for start in range(0, len(one), PIECE):
        x, y = one[start : start + PIECE], other[start : start + PIECE]
        if access.same(x, y):
            continue
        unwritten = ((x == given) | (x == own)) & (y == again)
        differing = (x != y) & ~unwritten
        if fmt.is_float:  # which NaN it is, is up to the compiler
            differing &= ~(access.is_nan(x, first.dtype) & access.is_nan(y, first.dtype))
        yield start, {"unwritten": unwritten, "differing": differing}
