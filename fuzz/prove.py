"""Every input there is, where an op takes elements of at most 16 bits one by one: the prover of finite domains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from corpus.errors import UsageError
from corpus.formats import format_of
from corpus.proof import Proof, Sweep
from corpus.records import Case, Fill, Kind, Subject, TensorRecipe
from fuzz.check import Examiner, Inquiry
from fuzz.filing import now
from kernels.environment import environment
from oracles.contract import Contract

BITS = 16
"""Of the widest type whose every pattern is tried."""


def cases_of(contract: Contract, subject: Subject) -> list[Case]:
    """One case for each narrow dtype and each combination of attributes, holding every bit pattern of the input.

    Raises UsageError if the op has another domain: several inputs, rows that matter, or wide types only.
    """
    if not contract.elementwise:
        raise UsageError(f"{contract.name} is not elementwise with one input, so its inputs cannot be counted out")
    name = next(iter(contract.inputs))
    dtypes = [t for t in dict.fromkeys(v[name] for v in contract.variants) if format_of(t).bits <= BITS]
    dtypes = [t for t in dtypes if not subject.dtypes or t in subject.dtypes]
    if not dtypes:
        raise UsageError(f"{contract.name} by {subject.name} takes no type of at most {BITS} bits to count out")
    return [case for dtype in dtypes for case in _cases(contract, name, dtype)]


def _cases(contract: Contract, name: str, dtype: str) -> Iterator[Case]:
    shape = (256, 256) if format_of(dtype).bits == BITS else (1, 256)
    recipe = TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution="every_bits"))
    for values in product(*contract.attrs.values()):
        yield Case(op=contract.name, tensors={name: recipe}, attrs=dict(zip(contract.attrs, values, strict=True)))


def prove(contract: Contract, subject: Subject, *, timeout: float, memory_mb: int) -> Proof:
    """Judge a subject on every input of its narrow dtypes.

    Raises UsageError as cases_of does, and for a subject that cannot be loaded.
    """
    cases = cases_of(contract, subject)
    with Examiner([subject], timeout=timeout, memory_mb=memory_mb) as examiner:
        done = examiner.check([Inquiry(case, (subject.key,)) for case in cases])
    verdicts = [(c.case, c.verdicts[subject.key]) for c in done]
    return Proof(
        subject=subject,
        environment=environment(),
        at=now(),
        checked=tuple(Sweep(case=case, kind=v.kind, rho=v.rho, message=v.message) for case, v in verdicts),
    )


def lines(proof: Proof) -> Iterator[tuple[str, str, str, str]]:
    """Rows for people: dtype and attributes, inputs, verdict, budget used or what is wrong."""
    for c in proof.checked:
        attrs = " ".join(f"{name}={value}" for name, value in c.case.attrs.items())
        said = f"budget used {c.rho:.2f}" if c.kind is Kind.PASS else c.message
        yield f"{c.case.dtype} {attrs}".strip(), f"{c.case.elements:,}", c.kind.value, said
