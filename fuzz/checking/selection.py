"""The choice of who takes part: built-in implementations, a user's, and their peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.model.interpreter_mends import AS_IS, INTERPRETED
from kernel_assay.corpus.model.subject import EVERY, Numerics, Subject
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.kernels.backend_registry import loader_of, on_gpu
from kernel_assay.kernels.backends.support.edits import CUDA
from kernel_assay.kernels.boundary.devices import places_of
from kernel_assay.kernels.catalog import (
    hidden_on_gpu,
    is_function,
    resolve,
    says_no_backend,
    shown_on_gpu,
    source_digest,
    subjects_of,
    user_subject,
)
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.spec.contract import Contract

DEFAULT_PEERS = ("torch", "numpy")
"""Backends of which one subject each runs beside a user's own."""


REARRANGED = ("torch", "numpy", "triton")
"""Those whose functions may take other arguments than the tensors of a case."""
DIFFERENTIATED = ("torch", "triton")
"""Those whose functions the autograd of torch can go through."""


@dataclass(frozen=True, slots=True)
class UserKernels:
    """A person's own kernels, as a command line names them."""

    files: Sequence[str] = ()
    """`FILE[:NAME]`."""
    launch: Sequence[str] = ()
    """Lines of front matter for the CUDA files among them."""
    python: str = ""
    """The interpreter of those that name none; empty: the tool's own."""
    held: Sequence[str] = ()
    """The op of each; empty: it says so itself, or there is but one."""

    def __post_init__(self) -> None:
        """Raises UsageError for lines that are for nobody."""
        if self.launch and not any(Path(text.partition(":")[0]).suffix in CUDA for text in self.files):
            raise UsageError("--launch says how a CUDA file is launched, but no --subject is one")
        if self.python and not self.files:
            raise UsageError("--python is the interpreter of a --subject, but none is named")

    def subjects(self, ops: Sequence[str]) -> list[Subject]:
        """One for each file that is held to one of these ops, or to whichever.

        Raises UsageError as user_subject does, if its op is none, and for two of one name.
        """
        named = [(text, self.held[n] if self.held else "") for n, text in enumerate(self.files)]
        unsaid = () if self.held else tuple(ops)  # where others say theirs, it is what the file says, whatever that is
        asked = [(text, (op,) if op else unsaid) for text, op in named if not op or op in ops]
        found = [user_subject(text, its, "\n".join(self.launch), self.python) for text, its in asked]
        for subject in found:
            with about(subject.path):  # an op of the command line is known by now: this one stands in the file
                _can_take(contract_of(subject.op), subject)
                can_claim(contract_of(subject.op), subject.numerics)
        return _unique([_told(subject) for subject in found])


def _told(subject: Subject) -> Subject:
    """A kernel in Python, told what the module that is its reference needs to be made, and what its arguments are.

    Raises UsageError for a kernel that takes nothing but tensors, where its reference has other arguments.
    """
    reference = contract_of(subject.op).elsewhere
    if reference is not None and reference.backend != subject.backend and says_no_backend(subject):
        subject = subject.but(backend=reference.backend)  # methods of tensors need no import
    if reference is None or not reference.launch or subject.launch:
        return subject
    if is_function(subject) and not reference.rearranged:
        return subject
    if reference.differentiated and subject.backend not in DIFFERENTIATED:
        raise UsageError(
            f"{subject.path}: {subject.op} is a gradient, which a kernel in {subject.backend} does not give by itself; "
            'call it in a torch.autograd.Function; if it is made of torch, write BACKEND = "torch" into the file'
        )
    if subject.backend not in REARRANGED:
        what = "arguments that are changed in place, or are lists, masks or offsets"
        raise UsageError(f"{subject.path}: {subject.op} has {what}, which a kernel in {subject.backend} cannot take")
    return subject.but(launch=reference.launch, source_digest=source_digest(resolve(subject), reference.launch))


def _can_take(contract: Contract, subject: Subject) -> None:
    """Raise UsageError if no case has a dtype that the subject takes."""
    first = next(iter(contract.inputs))
    there = tuple(dict.fromkeys(variant[first] for variant in contract.variants))
    if subject.dtypes and not set(subject.dtypes) & set(there):
        key = "dtypes" if subject.backend == "cuda" else "DTYPES"
        said = f"takes {' and '.join(subject.dtypes)} only, but {first} of {subject.op} is {' or '.join(there)}"
        raise UsageError(f'it {said}; name what it takes, as {key} = ["{there[0]}"]')


def can_claim(contract: Contract, numerics: Numerics) -> None:
    """Raise UsageError for an intermediate result that the op has not.

    A budget that is estimated has no names: the coarsest type counts for all.
    """
    names = (*contract.intermediates, EVERY)
    unknown = next((name for name in numerics.intermediates if name not in names), None)
    if unknown is not None and not contract.estimated:
        raise UsageError(
            f"it claims the intermediate result {unknown!r}, which {contract.name} has not: it has {', '.join(names)}"
        )


def select(
    ops: Sequence[str],
    *,
    files: Sequence[str] = (),
    held: Sequence[str] = (),
    backends: Sequence[str] = (),
    peers: Sequence[str] = (),
    planted: bool = False,
    launch: Sequence[str] = (),
    python: str = "",
) -> list[Subject]:
    """The subjects of a run, in order. Raises UsageError if something is not known or nothing is left.

    files: `FILE[:NAME]` of the user's own; held: their ops, where that is said; backends: only built-in ones of these;
    peers: names of the built-in ones that run beside a user's (`none`: nobody; none named: one torch and one numpy
    subject); launch: lines of front matter for the CUDA files among them; python: the interpreter of a user's.
    """
    for op in ops:
        contract_of(op)
    own = UserKernels(files, launch, python, held).subjects(ops)
    wanted = tuple(dict.fromkeys(s.op for s in own)) if own else tuple(ops) or tuple(load_contracts())
    for backend in backends:
        if why := _unavailable(backend):
            raise UsageError(f"backend {backend!r} is not available here, because {why}")
    alone = bool(own) and "none" in peers
    house = [s for op in wanted for s in runnable(op) if not backends or s.backend in backends] if not alone else []
    if own or peers:
        beside = [s for op in wanted for s in _peers([h for h in house if h.op == op], peers)]
    else:
        beside = [s for s in house if planted or not s.planted]
    _known_peers(peers, wanted)
    chosen = _unique([*own, *beside])
    if not chosen:
        limit, other = (f" with backend {', '.join(backends)}", ", or another --backend") if backends else ("", "")
        raise UsageError(f"no subject is left for {', '.join(wanted)}{limit}; name your own with --subject{other}")
    return chosen


def only_dtypes(subjects: Sequence[Subject], dtypes: Sequence[str]) -> list[Subject]:
    """The subjects that take one of these dtypes, for these only; all of them if none is named.

    Raises UsageError if a person's own does not, or nobody does.
    """
    if not dtypes:
        return list(subjects)
    there = {s.key: _dtypes_of(s) for s in subjects}
    left = [s.but(dtypes=both) for s in subjects if (both := tuple(t for t in there[s.key] if t in dtypes))]
    kept = {s.key for s in left}
    for subject in subjects:
        if subject.key not in kept and (subject.is_own or not left):
            raise UsageError(f"{subject.key} takes {', '.join(there[subject.key])}, not {' or '.join(dtypes)}")
    return left


def of_described_dtype(subject: Subject) -> Subject:
    """A kernel that does not say for which dtypes it is, for the one that its reference was described with."""
    contract = contract_of(subject.op)
    return subject if contract.elsewhere is None or subject.dtypes else subject.but(dtypes=contract.dtypes[:1])


def _dtypes_of(subject: Subject) -> list[str]:
    """Dtypes of its first input, by which cases are told apart."""
    return [t for t in contract_of(subject.op).dtypes if takes(subject, t)]


def placed(subjects: Sequence[Subject], device: str) -> list[Subject]:
    """The subjects on a device; on a GPU those that can run there, the others beside them on the CPU.

    Among the others are seeded bugs that a GPU hides: the emulator finds them. Of one that a GPU shows
    otherwise, that is the verdict it must earn. Raises UsageError if there is no such device.
    """
    kind = places_of(device)[0].device
    if kind == "cpu":
        made = [s.but(device=kind) for s in subjects]
    else:
        made = [s.but(device=kind, planted=shown_on_gpu(s)) if _runs_on_gpu(s) else s for s in subjects]
    left = [s for s in made if s.is_own or s.device != "cpu" or not loader_of(s.backend).unavailable()]
    if made and not left:
        why = loader_of(made[0].backend).unavailable()
        raise UsageError(f"backend {made[0].backend!r} is not available on device {device!r}, because {why}")
    return left


def on_device(subject: Subject, device: str) -> Subject:
    """The subject on a device. Raises UsageError if there is none, or if it does not run there."""
    found = placed([subject], device)[0]
    if places_of(device)[0].device != found.device:
        raise UsageError(f"{subject.key} does not run on device {device!r}")
    return found


def as_is(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects, those in Triton that are interpreted without what is mended of its interpreter."""
    return [s.but(backend=AS_IS) if (s.backend, s.device) == (INTERPRETED, "cpu") else s for s in subjects]


def _runs_on_gpu(subject: Subject) -> bool:
    return _is_on_gpu_here(subject.backend) and not hidden_on_gpu(subject)


def runnable(op: str) -> list[Subject]:
    """The built-in subjects of an op whose backend is available here, on the CPU or on a GPU."""
    return [s for s in subjects_of(op) if not _unavailable(s.backend)]


def _unavailable(backend: str) -> str:
    """Why a backend runs nowhere here, in half a sentence; empty if it does. Triton interprets in versions it knows."""
    why = loader_of(backend).unavailable()
    return "" if why and _is_on_gpu_here(backend) else why


def _is_on_gpu_here(backend: str) -> bool:
    loader = on_gpu().get(backend)
    return loader is not None and not loader.unavailable()


def claims(subject: Subject) -> bool:
    """Whether a subject claims other arithmetic than is usual."""
    return subject.numerics.id != Numerics().id


def _peers(house: list[Subject], names: Sequence[str]) -> list[Subject]:
    if "none" in names:
        return []
    if names:
        return [s for s in house if s.name in names]
    clean = sorted((s for s in house if not s.planted), key=claims)  # coarse arithmetic is judged mildly
    firsts = (next((s for s in clean if s.backend == b), None) for b in DEFAULT_PEERS)
    return [s for s in firsts if s is not None]


def _known_peers(names: Sequence[str], ops: Sequence[str]) -> None:
    wanted = [name for name in names if name != "none"]
    known = {s.name for op in ops for s in subjects_of(op)} | {"none"} if wanted else set()  # to read all takes a while
    for name in wanted:
        if name not in known:
            raise UsageError(f"peer {name!r} is not known for {', '.join(ops)}; there are {', '.join(sorted(known))}")


def _unique(subjects: list[Subject]) -> list[Subject]:
    """Refuses two subjects of one name, and says where they are."""
    seen: dict[str, Subject] = {}
    for subject in subjects:
        if subject.key in seen:
            first, second = seen[subject.key].path, subject.path
            places = f"{first} and {second}" if first != second else f"both are the same file, {first}; name it once"
            raise UsageError(f"subject {subject.key} stands twice: {places}")
        seen[subject.key] = subject
    return subjects
