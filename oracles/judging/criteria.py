"""Published criteria that people use, asked beside our verdict, never instead of it.

Each compares an output with the reference rounded to the output's type, which is the fairest thing to hold it against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kernel_assay.corpus.formats import Array, Format, format_of
from kernel_assay.corpus.model.findings import Opinion
from kernel_assay.oracles.judging.measure import Measured, measure
from kernel_assay.oracles.numerics.rounding import round_to
from kernel_assay.oracles.spec.contract import Reals

DTYPE_CLOSE = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""rtol and atol of torch.testing.assert_close (PyTorch's documentation, table of `assert_close`)."""
TINY_FLOATS = (0.0, 0.0)
"""The same for float8, which assert_close compares exactly."""


@dataclass(frozen=True, slots=True)
class Compared:
    """An output and what it should be, both as float64, with what has been measured of them."""

    got: Reals
    due: Reals
    format: Format
    measured: Measured


@dataclass(frozen=True, slots=True)
class Criterion:
    """One published check."""

    name: str
    source: str
    """Where it is in use."""
    judge: Callable[[Compared], tuple[str, bool]]
    """The number it looks at, for people, and whether it lets the output pass."""
    floats: bool = True
    """Only for outputs of floats."""


def due_of(want: Reals, fmt: Format) -> Array:
    """The numbers that should stand there: the reference rounded to the output's type."""
    return round_to(want, fmt) if fmt.is_float else want.astype(fmt.dtype)


def opinions(got: Array, due: Array) -> Iterator[Opinion]:
    """Yield each criterion's opinion about an output; due: as due_of gives it."""
    fmt = format_of(got.dtype)
    near = due.astype(np.float64)
    compared = Compared(got.astype(np.float64), near, fmt, measure(got, near, 0.0))
    for criterion in CRITERIA:
        if fmt.is_float or not criterion.floats:
            value, passes = criterion.judge(compared)
            yield Opinion(check=criterion.name, value=value, passes=passes)


def _close(rtol: float, atol: float) -> Callable[[Compared], tuple[str, bool]]:
    def judge(c: Compared) -> tuple[str, bool]:
        return _worst(c), bool(np.allclose(c.got, c.due, rtol, atol, equal_nan=True))

    return judge


def _close_by_dtype(c: Compared) -> tuple[str, bool]:
    rtol, atol = DTYPE_CLOSE.get(c.format.name, TINY_FLOATS)
    return _close(rtol, atol)(c)


def _worst(c: Compared) -> str:
    return f"largest error {c.measured.max_abs:.3g}"


def _nmse(line: float) -> Callable[[Compared], tuple[str, bool]]:
    return lambda c: (f"{c.measured.nmse:.3g}", c.measured.nmse <= line)


CRITERIA: tuple[Criterion, ...] = (
    Criterion("torch.testing.assert_close", "PyTorch's tests: rtol and atol by dtype", _close_by_dtype),
    Criterion("np.allclose", "NumPy's defaults: rtol 1e-5, atol 1e-8", _close(1e-5, 1e-8)),
    Criterion("allclose 1e-3/1e-5", "tests of fused kernels: rtol 1e-3, atol 1e-5", _close(1e-3, 1e-5)),
    Criterion("allclose 1e-4/1e-4", "KernelBench with float32: rtol and atol 1e-4", _close(1e-4, 1e-4)),
    Criterion("allclose with 1e-2", "KernelBench: rtol and atol 1e-2", _close(1e-2, 1e-2)),
    Criterion(
        "cosine >= 0.999",
        "comparisons of model outputs",
        lambda c: (f"{c.measured.cosine:.6g}", c.measured.cosine >= 0.999),
        floats=False,
    ),
    Criterion("NMSE <= 5e-4", "ggml's test-backend-ops", _nmse(5e-4), floats=False),
    Criterion("NMSE <= 1.5 %", "quantized kernels: what 4 bits lose anyway", _nmse(0.015), floats=False),
    Criterion(
        "PSNR >= 40 dB",
        "signal processing",
        lambda c: (f"{c.measured.psnr:.4g} dB", c.measured.psnr >= 40),
        floats=False,
    ),
)
