"""The meaning of an execution: the verdict, how far the output was off, and what makes two failures alike."""

from __future__ import annotations

from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.kinds import Kind


class Measurement(Record):
    """A metric's value, its limit if it decides, and where."""

    metric: str
    value: float
    limit: float | None = None
    index: tuple[int, ...] | None = None
    got: float | None = None
    wanted: float | None = None


class Signature(Record):
    """The features that make two failures the same bug."""

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
        """The part that shrinking must keep: op, subject, kind and dtype."""
        return (self.op, self.subject, self.kind.value, self.dtype)


class Verdict(Record):
    """The oracle's word on one execution."""

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
        return self.kind.facts.fails
