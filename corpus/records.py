"""The nouns. Every type that is written to disk or crosses a process, and nothing that runs.

How an experiment can end, and whom each end speaks about:

    Status (what happened, said by the sandbox)      Kind (what it means, said by the judge)
    ├── ok ───────────────┬── as it should ───────── pass
    │                     ├── values ─────────────── mismatch | nonfinite
    │                     ├── form ───────────────── wrong_shape | wrong_dtype | wrong_layout | aliased
    │                     ├── memory ─────────────── out_of_bounds | unwritten | input_mutated
    │                     └── two runs differ ────── nondeterministic
    ├── faulted ── race | uninitialized | divergent | out_of_bounds | input_mutated | crashed
    ├── raised ──────────────────────────────────── raised
    ├── timeout ─────────────────────────────────── timeout
    ├── crashed | launch_failed ─────────────────── crashed
    ├── out_of_memory ───────────────────────────── out_of_memory
    ├── build_failed ────────────────────────────── build_failed
    ├── any of these after other cases, and not alone ── stateful    (said by whoever looks into it)
    └── unsupported ─────────────────────────────── unsupported     (about the question)
                                                     inconclusive    (about the question)
    trouble of our own is corpus.errors.InternalError, never a record
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from enum import StrEnum
from functools import cached_property
from operator import not_
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt

from corpus.errors import UsageError
from corpus.formats import spelled
from corpus.record import GENERATOR_VERSION, Record, Scalar, unnamed
from corpus.share import Share


class Fill(Record):
    """How a tensor gets its values."""

    distribution: str = "zeros"
    """Name of a function in corpus/distributions.py."""
    seed: int = 0
    """Which of the 2**64 random fields the tensor is a window on."""
    scale: float = 1.0
    """Every value is multiplied by this before it is rounded to the dtype."""
    params: dict[str, int | float] = {}
    """`below`: values are integers in [0, below); `bound`: see exact_integers; `shift`: added to every value;
    `flip`: the axis along which the tensor is reversed at last, special values and all."""


class Special(Record):
    """One special value at one named place."""

    value: str
    """Name in corpus/specials.py VALUES: nan, inf, -inf, -0, subnormal, max, ..."""
    place: str
    """Name in corpus/specials.py PLACES: first, last, tile_tail, one_lane, one_row, ..."""


class TensorRecipe(Record):
    """One tensor as a recipe: a window on a random field, laid out in memory, with exceptions written in."""

    shape: tuple[NonNegativeInt, ...]
    dtype: str
    origin: tuple[NonNegativeInt, ...] = ()
    """Where the window starts on the field, one per axis; () means all zero."""
    layout: str = "contiguous"
    """Name of a function in corpus/layouts.py."""
    fill: Fill = Fill()
    specials: tuple[Special, ...] = ()
    pokes: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] = ()
    """(flat index in C order, bit pattern of the element); applied last."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


POKES = 4
"""Written-out elements that a label names."""
TOKEN = "case:"  # noqa: S105  (no password)
"""What the word for a case begins with."""


class Case(Record):
    """One experiment as a recipe. Never tensors."""

    schema_version: Literal[1] = 1
    generator_version: int = GENERATOR_VERSION
    op: str
    tensors: dict[str, TensorRecipe]
    """Inputs in the order the op takes them."""
    attrs: dict[str, Annotated[Scalar, BeforeValidator(unnamed)]] = {}
    outputs: dict[str, str] = Field({}, exclude_if=not_)
    """Layouts of outputs that are not contiguous from an aligned address on; left out where there are none."""
    contracted: bool = Field(False, exclude_if=not_)
    """Whether a kernel in CUDA C++ that is emulated is compiled with a * b + c rounded once; left out where not."""

    @property
    def elements(self) -> int:
        """Number of elements of all inputs."""
        return sum(t.size for t in self.tensors.values())

    @property
    def dtype(self) -> str:
        """The dtype the case is filed under: that of its first input."""
        return next(iter(self.tensors.values())).dtype if self.tensors else "none"

    @cached_property
    def number(self) -> int:
        """What decides how it is run (order of threads, check mode, streams): 0 if all its seeds are 0, else any."""
        seeds = [t.fill.seed for t in self.tensors.values()]
        return zlib.crc32(repr(seeds).encode()) if any(seeds) else 0

    @cached_property
    def label(self) -> str:
        """One line that says what the case is, e.g. `softmax float32 x=33x65:normal*100/transposed+nan@last`."""
        words = [self.op, self.dtype, *(_tensor_label(name, t, self.dtype) for name, t in self.tensors.items())]
        words += [f"{k}={v}" for k, v in self.attrs.items()]
        words += [f"{name}/{layout}" for name, layout in self.outputs.items()]
        words += ["contracted"] if self.contracted else []
        return " ".join(words)

    @property
    def token(self) -> str:
        """The whole case as one word, `case:...`, which every command takes; it fits into a line of a log."""
        data = self.model_dump(mode="json", exclude_defaults=True) | {"generator_version": self.generator_version}
        text = json.dumps(data, separators=(",", ":"))
        return TOKEN + base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode("ascii").rstrip("=")

    def refuse_drifted(self, where: str) -> None:
        """Raise UsageError for a recipe of another generator: this one would make other inputs of it in silence."""
        if self.generator_version != GENERATOR_VERSION:
            made = f"{where} was generated by recipe version {self.generator_version}"
            raise UsageError(f"{made}, this one makes version {GENERATOR_VERSION}: its inputs would differ")

    def __repr__(self) -> str:
        """What a failing test prints: the label, and a word that brings the case back."""
        return f"<{self.label} | {self.token}>"


def _tensor_label(name: str, t: TensorRecipe, usual: str) -> str:
    text = f"{name}={'x'.join(map(str, t.shape)) or 'scalar'}"
    text += f":{t.fill.distribution}" + (f"*{t.fill.scale:g}" if t.fill.scale != 1 else "")
    text += f"#{t.fill.seed}" if t.fill.seed else ""
    text += f":{t.dtype}" if t.dtype != usual else ""
    text += f"/{t.layout}" if t.layout != "contiguous" else ""
    text += "".join(f"+{s.value}@{s.place}" for s in t.specials)
    text += "".join(f"+{spelled(pattern, t.dtype)}@{at}" for at, pattern in t.pokes[:POKES])
    return text + (f"+{len(t.pokes) - POKES} more" if len(t.pokes) > POKES else "")


class TensorSpec(Record):
    """Shape, dtype and layout of an output."""

    shape: tuple[int, ...]
    dtype: str
    layout: str = "contiguous"


_CORES = ("volta", "ampere", "hopper", "blackwell", "fp8_hopper")
ACCUMULATORS = ("float32", "float64", "float16", "bfloat16", "int32", *_CORES)
"""In what a subject can say that it sums."""


INPUT = "input"
"""Of an intermediate result: the dtype of the first input."""
EVERY = "all"
"""As the name of an intermediate result: the result of every operation, as eager PyTorch rounds it."""


class Numerics(Record):
    """The arithmetic a subject says it uses; the error budget follows it, and reports show it."""

    accumulate: str = "float32"
    """One of ACCUMULATORS."""
    tf32: Literal["none", "rn", "rz"] = "none"
    """Operands of a float32 product rounded to tf32, to nearest or towards zero."""
    intermediates: dict[str, str] = {}
    """Named intermediate results that are rounded to a narrower type, e.g. {"p": "bfloat16"}; or to INPUT.

    The names are those of the op's contract, and EVERY."""
    exp: Literal["accurate", "fast", "poly3"] = "accurate"
    tanh: Literal["accurate", "approx"] = "accurate"
    store: Literal["nearest", "saturate"] = "nearest"
    ftz: bool = True
    """Subnormal intermediates may be flushed to zero; budgets allow it by default."""
    fast_math: bool = False
    """What nvcc's -use_fast_math makes of float32: fast exp, approximate tanh, sines, powers and quotients, and ftz."""

    def spelled_out(self, dtype: str) -> Numerics:
        """With what fast_math stands for in other keys, for inputs of this dtype; it does nothing to float64."""
        if not self.fast_math:
            return self
        if dtype == "float64":
            return self.but(fast_math=False)
        return self.but(exp="fast" if self.exp == "accurate" else self.exp, tanh="approx", ftz=True)

    def intermediate(self, name: str, dtype: str, *, alone: bool = False) -> str:
        """The type that a named intermediate result is rounded to, for inputs of this dtype; "" if to none.

        alone: where it says that all are, this one is not meant.
        """
        said = self.intermediates.get(name) or ("" if alone else self.intermediates.get(EVERY, ""))
        return dtype if said == INPUT else said


class Subject(Record):
    """The identity of one implementation; the implementation itself is a file."""

    op: str
    name: str
    backend: str
    device: str = "cpu"
    path: str = ""
    function: str = "run"
    line: int = 1
    """Of the function in the file."""
    source_digest: str = ""
    numerics: Numerics = Numerics()
    dtypes: tuple[str, ...] = ()
    """Dtypes of the first input it is tried on; () means all."""
    planted: str = ""
    """For a bug planted on purpose: the verdict it must earn."""
    summary: str = ""
    launch: str = ""
    """Of a CUDA file: keys of front matter that were given beside it, as TOML; they replace those in the file."""

    @property
    def key(self) -> str:
        """`op/name`, unique in a run."""
        return f"{self.op}/{self.name}"

    @property
    def loader(self) -> str:
        """Its backend, and its device unless that is the CPU."""
        return self.backend if self.device == "cpu" else f"{self.backend}@{self.device}"


class Status(StrEnum):
    """What happened to one execution; the sandbox says it."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    BUILD_FAILED = "build_failed"
    FAULTED = "faulted"
    RAISED = "raised"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    LAUNCH_FAILED = "launch_failed"
    OUT_OF_MEMORY = "out_of_memory"


class Kind(StrEnum):
    """What an execution means; the judge says it."""

    PASS = "pass"  # noqa: S105 (a verdict, no password)
    MISMATCH = "mismatch"
    NONFINITE = "nonfinite"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_LAYOUT = "wrong_layout"
    ALIASED = "aliased"
    NONDETERMINISTIC = "nondeterministic"
    STATEFUL = "stateful"
    OUT_OF_BOUNDS = "out_of_bounds"
    UNWRITTEN = "unwritten"
    INPUT_MUTATED = "input_mutated"
    RACE = "race"
    UNINITIALIZED = "uninitialized"
    DIVERGENT = "divergent"
    RAISED = "raised"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    BUILD_FAILED = "build_failed"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"


BLAMELESS = frozenset({Kind.PASS, Kind.UNSUPPORTED, Kind.INCONCLUSIVE})
"""Kinds that are no finding about a subject."""


class OutputReport(Record):
    """What the worker saw of one output; its bytes travel beside the record."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    contiguous: bool = True
    alias_of: str = ""
    """Name of the input whose memory was handed back as the result."""
    reused: bool = False
    """Whether the second run's result lies in the memory of the first one's, which was still held."""
    unwritten: int = 0
    """Elements that kept the poison in both runs."""
    first_unwritten: int = -1
    differing: int = 0
    """Elements whose bits differ between the two runs."""
    first_differing: int = -1
    digest: str = ""
    """blake2b-128 of the bytes of the first run, in C order."""
    digest_again: str = ""
    """Of the second run; both are noted where they differ."""
    differing_bits: tuple[int, ...] = ()
    """Of the first element that differs: what it was in each run."""


class GuardDamage(Record):
    """Bytes written outside a buffer."""

    buffer: str
    offset: int
    """In bytes from the start of the buffer; negative is before it, size and above is after it."""
    count: int
    """Number of damaged bytes on that side."""


class Execution(Record):
    """What happened when one subject ran one case (twice)."""

    status: Status
    subject: str
    fault: Kind | None = None
    """For faulted: the verdict that stands for what the backend saw."""
    message: str = ""
    """For raised: the exception; for crashed: the signal or exit code; for unsupported: why."""
    detail: str = ""
    """Tail of the traceback, or of what the subject wrote to stdout and stderr before it died."""
    input_digest: str = ""
    """Of all bytes of the inputs (corpus.materialize.digest); of a large case empty."""
    input_rows: str = ""
    """Of a large case: of a few rows of them (corpus/rows.py)."""
    outputs: tuple[OutputReport, ...] = ()
    damage: tuple[GuardDamage, ...] = ()
    mutated: tuple[str, ...] = ()
    """Names of inputs whose bytes changed."""
    warnings: tuple[str, ...] = ()
    """What the backend saw and does not call a fault."""
    nanoseconds: int = 0
    """Wall time of the first run."""


class Measurement(Record):
    """A metric's value, its limit if it decides, and where."""

    metric: str
    value: float
    limit: float | None = None
    index: tuple[int, ...] | None = None
    got: float | None = None
    wanted: float | None = None


class Signature(Record):
    """What makes two failures the same bug."""

    op: str
    subject: str
    kind: Kind
    rule: str
    dtype: str
    index_pattern: str = "none"
    error_pattern: str = "none"

    @property
    def key(self) -> str:
        """The whole signature as one string, also a file name."""
        parts = (self.op, self.subject, self.kind, self.rule, self.dtype, self.index_pattern, self.error_pattern)
        return "-".join(p.replace("/", "_") for p in parts)

    @property
    def coarse(self) -> tuple[str, str, str, str]:
        """What shrinking must keep: op, subject, kind and dtype."""
        return (self.op, self.subject, self.kind.value, self.dtype)


class Verdict(Record):
    """The judge's word on one execution."""

    kind: Kind
    rule: str = ""
    """Which rule decided: structure, guard, class, exact, rho, z, law:NAME, ..."""
    message: str = ""
    """One sentence that says what is wrong, with place and numbers."""
    output: str = ""
    """Which output."""
    measurements: tuple[Measurement, ...] = ()
    signature: Signature | None = None
    blame: str = ""
    """With several subjects: who is alone against whom, or `oracle split`."""
    rho: float = 0.0
    """Largest excess over budget of any finite element; 1 is the line."""
    ulps: int = 0
    """Of an output that passes: the most representable steps between it and the rounded reference."""
    symptom: Kind | None = None
    """Of a stateful failure: what is wrong with its last case."""
    digests: tuple[str, ...] = ()
    """Of two runs that differ: of what each of them left."""
    shares: tuple[Share, ...] = ()
    """Of a large case: how much of each output was judged, and by what."""

    @property
    def law(self) -> str:
        """The name of the law that decided, or an empty string."""
        prefix, _, name = self.rule.partition(":")
        return name if prefix == "law" else ""

    @property
    def failed(self) -> bool:
        """Whether this is a finding about the subject."""
        return self.kind not in BLAMELESS
