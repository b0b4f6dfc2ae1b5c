"""Criteria side by side: what each says of the same outputs, on inputs that people write and on ours."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from _problem import ROUND, always, case_of, forms_of, settled

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.subjects import fitting
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import propose
from kernel_assay.fuzz.planning.plan import fitted, new_campaign, targets
from kernel_assay.kernels.sandbox.batch import Outcome
from kernel_assay.oracles.judging.criteria import DTYPE_CLOSE, TINY_FLOATS, due_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.contract import Contract

PRODUCTS = frozenset({"gemm", "gemv", "qgemm", "qgemv", "attention"})
"""Ops that ggml's tests hold to 5e-4, as they do its products of matrices; all others to 1e-7."""
GPUCHECK = {"float64": (1e-10, 1e-7), "float16": (1e-2, 1e-2), "bfloat16": (5e-2, 5e-2)}
"""Its atol and rtol by dtype; of all others 1e-4 (float8: 0.125 and 0.25)."""
PERCENTILE, MARGIN = 95, 1.5
"""Of the errors of right kernels, what gpuemu makes a tolerance of."""
OURS, CALIBRATED = "this judge", "gpuemu: 1.5 x the 95th percentile of right kernels"


class Seen(NamedTuple):
    """An output, what it should be, both as float64, and what a criterion may know beside."""

    got: Array
    due: Array
    dtype: str
    op: str
    depth: int
    """The longest axis, in place of the length of a sum."""
    peer: float
    """The largest error of the plainest right implementation in the same dtype."""


def _close(s: Seen, rtol: float, atol: float) -> bool:
    return bool(np.allclose(s.got, s.due, rtol, atol, equal_nan=True))


def _by_dtype(s: Seen) -> bool:
    return _close(s, *DTYPE_CLOSE.get(s.dtype, TINY_FLOATS))


def _gpucheck(s: Seen) -> bool:
    narrow = {"float8_e4m3fn": (0.125, 0.125), "float8_e5m2": (0.25, 0.25)}
    atol, rtol = (GPUCHECK | narrow).get(s.dtype, (1e-4, 1e-4))
    return _close(s, rtol, atol * math.sqrt(s.depth / 128))


def _numbers(s: Seen) -> tuple[Array, Array] | None:
    """Both where they are numbers; None if one is a number and the other is not, or another Inf."""
    same = np.isfinite(s.got) == np.isfinite(s.due)
    odd = ~np.isfinite(s.due)
    if not same.all() or not np.array_equal(s.got[odd], s.due[odd], equal_nan=True):
        return None
    return s.got[~odd], s.due[~odd]


def _nmse(s: Seen, line: float) -> bool:
    numbers = _numbers(s)
    if numbers is None:
        return False
    got, due = numbers
    return bool(((got - due) ** 2).sum() <= line * (due**2).sum())


def _cosine(s: Seen) -> bool:
    numbers = _numbers(s)
    if numbers is None:
        return False
    got, due = numbers
    sizes = math.sqrt((got**2).sum() * (due**2).sum())
    return bool(np.array_equal(got, due) or (sizes and (got * due).sum() >= 0.999 * sizes))


def _psnr(s: Seen) -> bool:
    numbers = _numbers(s)
    if numbers is None:
        return False
    got, due = numbers
    return bool(not due.size or ((got - due) ** 2).mean() <= 1e-4 * np.abs(due).max() ** 2)


def error_of(s: Seen) -> float:
    """The largest absolute error; Inf where only one is a number."""
    numbers = _numbers(s)
    return math.inf if numbers is None else float(np.abs(numbers[0] - numbers[1]).max(initial=0.0))


CRITERIA: dict[str, Callable[[Seen], bool]] = {
    "torch.testing.assert_close": _by_dtype,
    "KernelBench: 1e-4, of 16 bits 1e-2": lambda s: _close(
        s, *(1e-4 if s.dtype in {"float32", "float64"} else 1e-2,) * 2
    ),
    "BackendBench: 1e-2": lambda s: _close(s, 1e-2, 1e-2),
    "flashinfer-bench: 1e-2": lambda s: _close(s, 1e-2, 1e-2),
    "gpucheck: by dtype and sqrt(k / 128)": _gpucheck,
    "FlashAttention: 2 x the error of PyTorch": lambda s: error_of(s) <= 2 * s.peer + 1e-5,
    "test-backend-ops: NMSE 1e-7, of products 5e-4": lambda s: _nmse(s, 5e-4 if s.op in PRODUCTS else 1e-7),
    "NMSE <= 1.5 %": lambda s: _nmse(s, 0.015),
    "cosine >= 0.999": _cosine,
    "PSNR >= 40 dB": _psnr,
}
NAMES = (OURS, *CRITERIA, CALIBRATED)


class Table:
    """Which criteria refuse which kernels, by where the inputs came from."""

    def __init__(self) -> None:
        self.refused: dict[str, dict[str, set[str]]] = {}
        """Source of the inputs -> key of a kernel -> criteria that refuse any of its outputs."""
        self._errors: dict[tuple[str, str, str], list[tuple[float, str, bool]]] = defaultdict(list)
        """(source, op, dtype) -> error, kernel, whether it is right."""

    def measure(self, subjects: Sequence[Subject], wrong: set[str], count: int, seed: int) -> None:
        """Have all subjects of an op run so many cases of either source."""
        with Examiner(subjects, timeout=3.0) as examiner:
            target = targets(fitted(new_campaign("bench", seed, "conjecture", subjects), examiner.sandbox))
            ours = (propose(target, seed, n, Elites()) for n in range(2 * count))
            sources = {
                "theirs": _theirs(target[0].contract, count),
                "ours": [p.case for p in ours if not p.is_long][:count],
            }
            for source, cases in sources.items():
                found = self.refused.setdefault(source, {})
                for key in examiner.subjects:
                    found.setdefault(key, set())
                in_flight = examiner.launch([CheckRequest(c, fitting(subjects, c)) for c in cases], most_deaths=3)
                outcomes = examiner.collect(in_flight)
                for checked, sent, outs in zip(
                    examiner.judge(in_flight, outcomes), in_flight.sent, outcomes, strict=False
                ):
                    for key, verdict in checked.verdicts.items():
                        if verdict.failed:
                            found[key].add(OURS)
                    taken = {k: o for k, o in outs.items() if checked.verdicts[k].kind is not Kind.UNSUPPORTED}
                    with np.errstate(all="ignore"):
                        self._ask(source, sent.reference, taken, examiner.subjects, wrong)

    def _ask(
        self, source: str, reference: Reference, outcomes: dict[str, Outcome], by: dict[str, Subject], wrong: set[str]
    ) -> None:
        whole = {k: o for k, o in outcomes.items() if o.execution.status is Status.OK}
        for key in outcomes.keys() - whole.keys():  # a crash is nobody's merit: all count it as found
            self.refused[source][key] |= {*CRITERIA, CALIBRATED}
        for name in reference.specs:
            due = due_of(reference.want[name], format_of(reference.specs[name].dtype))
            seen = {k: _seen(o.outputs.get(name), due, by[k].op, reference, name) for k, o in whole.items()}
            plain = [k for k in seen if k not in wrong and seen[k]]
            plainest = min(plain, key=lambda k: (by[k].backend != "torch", by[k].backend != "numpy"), default=None)
            peer = error_of(seen[plainest]) if plainest else 0.0  # type: ignore[arg-type]
            for key, one in seen.items():
                if one is None:
                    self.refused[source][key] |= {*CRITERIA, CALIBRATED}
                    continue
                if format_of(due.dtype).is_float:
                    asked = one._replace(peer=peer)
                    self.refused[source][key] |= {n for n, passes in CRITERIA.items() if not passes(asked)}
                    self._errors[source, by[key].op, due.dtype.name].append((error_of(one), key, key not in wrong))
                elif not np.array_equal(one.got, one.due):
                    self.refused[source][key] |= {*CRITERIA, CALIBRATED}

    def calibrate(self) -> None:
        """Ask the criterion that looks at errors of right kernels first."""
        for (source, _, _), errors in self._errors.items():
            right = [e for e, _, is_right in errors if is_right]
            line = MARGIN * float(np.percentile(right, PERCENTILE, method="nearest")) if right else math.inf
            for error, key, _ in errors:
                if error > line:
                    self.refused[source][key].add(CALIBRATED)


def _seen(got: Array | None, due: Array, op: str, reference: Reference, name: str) -> Seen | None:
    if got is None or got.shape != due.shape or got.dtype != due.dtype:
        return None
    due = settled(reference, name, got, due)
    return Seen(got.astype(np.float64), due.astype(np.float64), due.dtype.name, op, max(due.shape, default=1), 0.0)


def _theirs(contract: Contract, count: int) -> list[Case]:
    """Round shapes and normal values of one seed, in every dtype and with every attribute."""
    cases = [case_of(contract, form, 0) for extent in ROUND[:2] for form in forms_of(contract, (), always(extent))]
    return cases[:: max(1, len(cases) // count)][:count]
