"""Implementations under test: where their file lies, what it takes, and what arithmetic it claims."""

from __future__ import annotations

from operator import not_
from pathlib import Path
from typing import Literal

from pydantic import Field

from kernel_assay.corpus.model.base import Record


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
    order: Literal["fixed", "any"] = Field("fixed", exclude_if=lambda order: order == "fixed")
    """Whether two runs on one input may differ, as sums do that atomic operations make: each is held to the budget."""

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
    """For a seeded bug: the verdict it must earn."""
    summary: str = ""
    launch: str = ""
    """Of a CUDA file: keys of front matter that were given beside it, as TOML; they replace those in the file."""

    python: str = Field("", exclude_if=not_)
    """The interpreter in whose environment it runs; empty, and left out: the tool's own."""

    @property
    def key(self) -> str:
        """`op/name`, unique in a run."""
        return f"{self.op}/{self.name}"

    @property
    def is_own(self) -> bool:
        """Whether it is a person's own; built-in ones are stored relative to the project."""
        return Path(self.path).is_absolute()

    @property
    def place(self) -> str:
        """`FILE:NAME`, with `@INTERPRETER` where it runs in another one: what `--subject` takes."""
        return f"{self.path}:{self.function}{f'@{self.python}' if self.python else ''}"

    @property
    def loader(self) -> str:
        """The name of its loader: the backend, and the device unless that is the CPU."""
        return self.backend if self.device == "cpu" else f"{self.backend}@{self.device}"
