"""Judge kept outputs again, under the contracts of today. Nothing is run."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assay.corpus.inputs.materialize import digest, materialize_all
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.corpus.storage.saved_outputs import Kept
from kernel_assay.oracles.catalog import contract_of
from kernel_assay.oracles.judging.judge import judge
from kernel_assay.oracles.judging.reference import Reference


@dataclass(frozen=True, slots=True)
class Analyzed:
    """An old verdict and what is said today."""

    kept: Kept
    verdict: Verdict | None
    """None: the recipe makes other inputs today, so that nothing can be said."""

    @property
    def changed(self) -> bool:
        """Whether the kind of the verdict is another one."""
        return self.verdict is not None and self.verdict.kind is not self.kept.verdict.kind

    @property
    def telling(self) -> bool:
        """Laws compare two runs, of which one was kept: what they said stands."""
        return self.verdict is not None and not self.kept.verdict.law


def analyze(kept: Kept) -> Analyzed:
    """The verdict on a kept execution under today's contract of its op. Raises UsageError if the op is unknown."""
    inputs = materialize_all(kept.case)
    if kept.execution.input_digest and kept.execution.input_digest != digest(inputs):
        return Analyzed(kept, None)
    if kept.verdict.law:
        return Analyzed(kept, kept.verdict)
    reference = Reference(contract_of(kept.case.op), kept.case, inputs)
    return Analyzed(kept, judge(reference, kept.subject, kept.execution, kept.outputs()))


def said(verdict: Verdict | None) -> str:
    """A verdict in a few words."""
    if verdict is None:
        return "inputs drifted"
    return f"{verdict.kind} (budget used {verdict.rho:.3g})" if verdict.kind is Kind.PASS else verdict.kind.value
