"""Every input there is, where an op takes elements of at most 16 bits one by one: the prover of finite domains.

Of packed blocks it is every scale with every quant; where a block has a min, too, with some of the mins. On a GPU the
domains of 2**32 inputs come in addition (fuzz/exhaustive/sweep.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from kernel_assay.corpus.blocks import ELEMENTS
from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.exhaustive_result import Proof, Sweep
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.exhaustive.sweep import Sweeper, domains
from kernel_assay.fuzz.triage.failures import now
from kernel_assay.kernels.environment import environment, gpus
from kernel_assay.oracles.spec.axes import Attrs, packed_format, shape_of
from kernel_assay.oracles.spec.contract import Contract

BITS = 16
"""Of the widest type whose every pattern is tried."""
MINS = (0x0000, 0x3C00, 0xB801, 0x0001, 0xFBFF)
"""Patterns of float16 that are tried beside every scale: 0, 1, -0.50049, the least and the most negative number."""


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
    for values in product(*contract.attrs.values()):
        attrs = dict(zip(contract.attrs, values, strict=True))
        for recipe in _blocks(contract, name, attrs) if contract.inputs[name].packed else _numbers(dtype):
            yield Case(op=contract.name, tensors={name: recipe}, attrs=attrs)


def _numbers(dtype: str) -> Iterator[TensorRecipe]:
    shape = (256, 256) if format_of(dtype).bits == BITS else (1, 256)
    yield TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution="every_bits"))


def _blocks(contract: Contract, name: str, attrs: Attrs) -> Iterator[TensorRecipe]:
    """Blocks of every scale, in as many tensors as there are groups of 32 quants, and mins."""
    spec, dims = contract.inputs[name], dict.fromkeys(contract.dims, 256)
    fmt, shape = packed_format(spec.axes[-1], attrs), shape_of(spec.axes, dims, attrs)
    for second in MINS if fmt.second == "min" else MINS[:1]:
        for start in range(0, 1 << fmt.bits, ELEMENTS):
            params = {**spec.params(dims, attrs), "start": start, "second": second}
            yield TensorRecipe(shape=shape, dtype="uint8", fill=Fill(distribution="every_blocks", params=params))


def prove(contract: Contract, subject: Subject, *, timeout: float, memory_mb: int, closed: bool = True) -> Proof:
    """Judge a subject on every input of its narrow dtypes, and on a GPU on 2**32 that are wider or come in pairs.

    timeout: seconds for one case, or one part of a wide domain.
    Raises UsageError as cases_of does, and for a subject that cannot be loaded.
    """
    wide = domains(contract, subject) if subject.device != "cpu" else []
    cases = _narrow(contract, subject) if wide else cases_of(contract, subject)
    checked = _checked(cases, subject, timeout, memory_mb, closed=closed) if cases else []
    if wide:
        with Sweeper(subject, timeout=max(timeout, PART_SECONDS), closed=closed) as sweeper:
            checked += [sweeper.sweep(case).sweep for case in wide]
    devices = tuple(f"{name}, driver {driver}" for name, driver in gpus()) if subject.device != "cpu" else ()
    return Proof(subject=subject, environment=environment().but(devices=devices), at=now(), checked=tuple(checked))


PART_SECONDS = 60.0
"""For 2**28 inputs, at least: a first launch may compile."""


def _narrow(contract: Contract, subject: Subject) -> list[Case]:
    """The cases of cases_of; none where there is nothing narrow."""
    try:
        return cases_of(contract, subject)
    except UsageError:
        return []


def _checked(cases: list[Case], subject: Subject, timeout: float, memory_mb: int, *, closed: bool) -> list[Sweep]:
    with Examiner([subject], timeout=timeout, memory_mb=memory_mb, closed=closed) as examiner:
        # One by one: all of them at once would take gigabytes.
        verdicts = [(c, examiner.check([CheckRequest(c, (subject.key,))])[0].verdicts[subject.key]) for c in cases]
    return [Sweep(case=case, kind=v.kind, rho=v.rho, message=v.message) for case, v in verdicts]


def lines(proof: Proof) -> Iterator[tuple[str, str, str, str]]:
    """Rows for people: dtype and attributes, inputs, verdict, budget used or what is wrong."""
    for c in proof.checked:
        attrs = " ".join(f"{name}={value}" for name, value in c.case.attrs.items())
        part, count = _part(next(iter(c.case.tensors.values())))
        said = f"budget used {c.rho:.2f}" if c.kind is Kind.PASS else c.message
        yield f"{c.case.dtype} {attrs}{part}".strip(), f"{count:,}", c.kind.value, said


def _part(recipe: TensorRecipe) -> tuple[str, int]:
    """The part of all inputs that a tensor holds, where it holds only one, and how many they are."""
    params = recipe.fill.params
    if "start" not in params:
        return "", recipe.size
    least = f" min=0x{params['second']:04x}" if params["scales"] == 2 else ""
    return f" q={params['start']}..{least}", recipe.size // int(params["block"]) * ELEMENTS
