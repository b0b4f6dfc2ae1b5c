"""Cases: which tensors an op is given, told as recipes, never as values."""

from __future__ import annotations

import base64
import json
import math
import zlib
from functools import cached_property
from operator import not_
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import spelled
from kernel_assay.corpus.model.base import GENERATOR_VERSION, Record, Scalar, unnamed


class Fill(Record):
    """The way in which a tensor gets its values."""

    distribution: str = "zeros"
    """Name of a function in corpus/inputs/distributions.py."""
    seed: int = 0
    """Which of the 2**64 random fields the tensor is a window on."""
    scale: float = 1.0
    """Every value is multiplied by this before it is rounded to the dtype."""
    params: dict[str, int | float] = {}
    """`below`: values are integers in [0, below); `bound`: see exact_integers; `shift`: added to every value;
    `flip`: the axis along which the tensor is reversed, special values and all; `lower`, `upper`, `diagonal`,
    `symmetric`: the structure that the last two axes are given at last (corpus/inputs/structures.py)."""


class Special(Record):
    """One special value at one named place."""

    value: str
    """Name in corpus/inputs/specials.py VALUES: nan, inf, -inf, -0, subnormal, max, ..."""
    place: str
    """Name in corpus/inputs/specials.py PLACES: first, last, tile_tail, one_lane, one_row, ..."""


class TensorRecipe(Record):
    """One tensor as a recipe: a window on a random field, laid out in memory, with exceptions written in."""

    shape: tuple[NonNegativeInt, ...]
    dtype: str
    origin: tuple[NonNegativeInt, ...] = ()
    """Where the window starts on the field, one per axis; () means all zero."""
    layout: str = "contiguous"
    """Name of a function in corpus/inputs/layouts.py."""
    fill: Fill = Fill()
    specials: tuple[Special, ...] = ()
    pokes: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] = ()
    """(flat index in C order, bit pattern of the element); applied last."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


MATRICES = ("diagonal", "lower", "upper", "symmetric")
"""Structures that a fill may name (corpus/inputs/structures.py)."""
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

    @cached_property
    def dtype(self) -> str:
        """The dtype the case is filed under: that of its first input."""
        return next(iter(self.tensors.values())).dtype if self.tensors else "none"

    @cached_property
    def number(self) -> int:
        """The number that decides how it is run (order of threads, check mode, streams): 0 if all its seeds are 0."""
        return number_of([t.fill.seed for t in self.tensors.values()])

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
        """The label, and a word that brings the case back: a failing test prints it."""
        return f"<{self.label} | {self.token}>"


def number_of(seeds: list[int]) -> int:
    """Case.number of tensors with these seeds."""
    return zlib.crc32(repr(seeds).encode()) if any(seeds) else 0


def _tensor_label(name: str, t: TensorRecipe, usual: str) -> str:
    text = f"{name}={'x'.join(map(str, t.shape)) or 'scalar'}"
    text += f":{t.fill.distribution}" + (f"*{t.fill.scale:g}" if t.fill.scale != 1 else "")
    text += "".join(f",{name}" for name in MATRICES if name in t.fill.params)
    text += f"#{t.fill.seed}" if t.fill.seed else ""
    text += f":{t.dtype}" if t.dtype != usual else ""
    text += f"/{t.layout}" if t.layout != "contiguous" else ""
    text += "".join(f"+{s.value}@{s.place}" for s in t.specials)
    text += "".join(f"+{spelled(pattern, t.dtype)}@{at}" for at, pattern in t.pokes[:POKES])
    return text + (f"+{len(t.pokes) - POKES} more" if len(t.pokes) > POKES else "")
