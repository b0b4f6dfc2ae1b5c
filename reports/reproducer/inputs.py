"""The inputs of a case as source: written out if they are small, else made by the functions that define them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kernel_assay.corpus.formats import Array, Format, format_of
from kernel_assay.corpus.inputs import distributions
from kernel_assay.corpus.inputs.field import Window
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import is_settled, is_tame, materialize
from kernel_assay.corpus.inputs.specials import PLACES, VALUES
from kernel_assay.corpus.inputs.structures import WRITTEN, structure_of
from kernel_assay.corpus.model.case import TensorRecipe
from kernel_assay.reports.reproducer import values as text
from kernel_assay.reports.reproducer.excerpt import excerpt
from kernel_assay.reports.reproducer.runtime import memory, narrow
from kernel_assay.reports.tensors import MOST, filled

SMALL = 64
"""Elements of a tensor that is written out."""
MANY = 8
"""Elements that are set one by one, each in a line of its own; more of them in a loop."""
_FACTS = ("kind", "is_float", "bits", "precision", "emin", "emax", "has_inf", "inf_bits", "max", "name")
"""What a distribution may ask about a format."""
_FIELD = "kernel_assay.corpus.inputs.field"
_WINDOW = (_FIELD, "Window")
_SHORTER = {
    (_FIELD, "_steps"): '''def _steps(first, stop):
    """The multiples of GAMMA from one coordinate to before another."""
    return np.arange(first, stop, dtype=np.uint64) * GAMMA''',
    (_FIELD, "remainder"): '''def remainder(words, divisor):
    """The remainders of words."""
    return words % np.uint64(divisor)''',
    ("kernel_assay.corpus.inputs.block_distributions", "form_of"): '''def form_of(w):
    """Bytes and scales of a block."""
    return int(w.params["block"]), int(w.params["scales"])''',
}
"""What is written in place of functions that are longer because they are faster, or refuse what is not the case."""


@dataclass(slots=True)
class Source:
    """A file in the making: what the lines that were written so far need."""

    torch: bool
    """Whether the kernel takes torch tensors; numpy then carries types it does not have as bit patterns."""
    imports: set[str] = field(default_factory=set)
    roots: dict[tuple[str, str], None] = field(default_factory=dict)
    """Functions of ours to be copied: (module, name)."""
    instead: dict[tuple[str, str], str] = field(default_factory=lambda: dict(_SHORTER))
    """Text that takes the place of a function of ours."""
    functions: list[str] = field(default_factory=list)
    """Functions that were made for this file."""
    constants: dict[str, str] = field(default_factory=dict)
    """Name -> its definition."""

    def uses(self, module: str, *names: str) -> None:
        """Have these functions copied."""
        for name in names:
            self.roots[module, name] = None

    def constant(self, name: str, value: str) -> str:
        """The name of a constant of this value; it gets a number if another one has the name."""
        known = next((n for n, said in self.constants.items() if said == f"{n} = {value}"), "")
        free = known or (f"{name}_{len(self.constants)}" if name in self.constants else name)
        self.constants[free] = f"{free} = {value}"
        return free

    def dtype(self, name: str) -> str:
        """Numpy's name of a dtype here."""
        if not foreign(name):
            return f"np.{name}"
        if self.torch:
            return f"np.{format_of(name).carrier.name}"
        self.imports.add("import ml_dtypes")
        return f"ml_dtypes.{name}"

    def patterned(self, name: str) -> bool:
        """Whether numpy holds this type as bit patterns here."""
        return self.torch and foreign(name)

    def rounded(self, values: str, name: str, make: str = "{}.astype({})") -> str:
        """An expression of numbers as one of this dtype; make: how numpy does it if it has the type."""
        if self.patterned(name):
            self.uses(narrow.__name__, name)
            return f"{name}({values})"
        return make.format(values, self.dtype(name))


def foreign(dtype: str) -> bool:
    """Whether numpy itself lacks this type."""
    return not hasattr(np, dtype)


def placed(source: Source, recipe: TensorRecipe, values: str) -> str:
    """An expression for the array the kernel sees: values in memory of their own, laid out as the recipe says."""
    source.uses(memory.__name__, "put")
    at = LAYOUTS[recipe.layout](recipe.shape)
    plain = LAYOUTS["contiguous"](recipe.shape)
    strides = f", strides={at.strides}" if at.strides != plain.strides else ""
    return f"put({values}{strides}{f', offset={at.offset}' if at.offset else ''})"


def values_of(source: Source, name: str, recipe: TensorRecipe) -> str:
    """An expression for the values of an input; may span lines, and may call a function made for it."""
    one, many = recipe, ""
    if recipe.layout == "broadcast" and recipe.shape and recipe.shape[0] > 1:
        one, many = recipe.but(shape=(1, *recipe.shape[1:])), str(recipe.shape)
    tensor = _Tensor(source, one)
    if tensor.constant:
        found = tensor.repeated()
    elif one.size <= SMALL:
        found = tensor.written_out()
    else:
        source.functions.append(tensor.function(f"make_{name}", filled(recipe)))
        found = f"make_{name}()"
    return f"np.broadcast_to({found}, {many})" if many else found


@dataclass
class _Tensor:
    source: Source
    recipe: TensorRecipe

    @cached_property
    def format(self) -> Format:
        return format_of(self.recipe.dtype)

    @cached_property
    def array(self) -> Array:
        return materialize(self.recipe)

    @cached_property
    def constant(self) -> bool:
        """Whether all elements are the same, bit for bit; of a large tensor, that is not asked."""
        return self.recipe.size <= MOST and _constant(self.array, self.format)

    def repeated(self) -> str:
        """One value everywhere, as numpy says it."""
        return _repeated(self.source, self.array, self.format)

    def written_out(self) -> str:
        """All elements: as decimals if that is exact, else as bit patterns."""
        fmt, source = self.format, self.source
        if (decimals := text.numbers(self.array, fmt)) is not None:
            return source.rounded(text.nested(decimals), fmt.name, "np.array({}, {})")
        array = f"np.array({text.nested(text.patterns(self.array, fmt))}, np.{fmt.carrier.name})"
        return array if source.patterned(fmt.name) else f"{array}.view({source.dtype(fmt.name)})"

    def function(self, name: str, summary: str) -> str:
        """A function that makes the tensor from its recipe."""
        lines = [
            f'"""{self.recipe.dtype}, {text.prose(summary)}."""',
            *self._lines(),
            *self._exceptions(),
            *self._reversed(),
            *self._structured(),
            "return array",
        ]
        return f"def {name}():\n" + textwrap.indent("\n".join(lines), "    ")

    def _lines(self) -> Iterator[str]:
        """Yield the lines that turn the distribution's values into the tensor, as corpus.inputs.materialize does."""
        fmt, fill, source = self.format, self.recipe.fill, self.source
        params = {name: value for name, value in fill.params.items() if name not in {"flip", *WRITTEN}}
        bare = self.recipe.but(specials=(), pokes=(), fill=fill.but(params=params))
        if bare.size <= MOST and _constant(made := materialize(bare), fmt):
            yield f"array = {_repeated(source, made, fmt)}"
            return
        sampled = self._sampled(fmt)
        if sampled.dtype == fmt.dtype and is_settled(fill, fmt):
            yield f"array = {self._patterns(sampled)}"
            return
        yield f"values = {self._sample(self.format)}"
        if shift := fill.params.get("shift"):
            yield f"values = values + {text.entry(shift)}"
        if fill.scale != 1.0:
            yield f"values = values * {text.number(fill.scale)}"
        if not is_tame(fill):
            yield "values = np.where(np.isnan(values), np.nan, values)"
        if not fmt.is_float:
            info = np.iinfo(fmt.dtype)
            yield f"values = np.clip(np.nan_to_num(values), {info.min}, {min(int(info.max), 2**63 - 1024)})"
        yield f"array = {source.rounded('values', fmt.name)}"

    def _sampled(self, fmt: Format) -> Array:
        """The distribution's values, in their form; of a large tensor only a beginning."""
        r = self.recipe
        window = Window(r.fill.seed, r.origin or (0,) * len(r.shape), _beginning(r.shape), fmt, r.fill.params)
        with np.errstate(all="ignore"):
            return distributions.DISTRIBUTIONS[r.fill.distribution].sample(window)

    def _patterns(self, sampled: Array) -> str:
        """A sample that has the dtype already. Where numpy has no such type it is made as bit patterns or by rounding.

        Which of them a distribution needs is seen from what it gives.
        """
        fmt = self.format
        if not self.source.patterned(fmt.name):
            return self._sample(fmt)
        as_patterns = replace(fmt, dtype=fmt.carrier)
        if self._sampled(as_patterns).tobytes() == sampled.tobytes():
            return self._sample(as_patterns)
        return self.source.rounded(self._sample(replace(fmt, dtype=np.dtype(np.float32))), fmt.name)

    def _sample(self, fmt: Format) -> str:
        """The call of the distribution; fmt: the format it is told."""
        r, name = self.recipe, self.recipe.fill.distribution
        self.source.uses(distributions.__name__, name)
        self.source.uses(*_WINDOW)
        if {"low", "high"} <= set(r.fill.params):
            ends = distributions.limits(r.fill.params["low"], r.fill.params["high"], fmt.name)
            self.source.instead[distributions.__name__, "limits"] = _LIMITS.format(fmt.name, text.entry(ends))
        params = ", ".join(f"{text.quoted(k)}: {text.entry(v)}" for k, v in r.fill.params.items())
        parts = [f"seed={r.fill.seed}", f"origin={r.origin or (0,) * len(r.shape)}", f"shape={r.shape}"]
        parts += [f"format={self._facts(fmt)}", *([f"params={{{params}}}"] if params else [])]
        flat = f"{name}(Window({', '.join(parts)}))"
        return flat if len(flat) < text.WIDTH - 14 else f"{name}(\n    Window({', '.join(parts)})\n)"

    def _facts(self, fmt: Format) -> str:
        """The name of a constant that knows what this distribution asks about the format; None if that is nothing."""
        blocks = excerpt([(distributions.__name__, self.recipe.fill.distribution), _WINDOW], self.source.instead).blocks
        asked = set(re.findall(r"\.(\w+)", "\n".join(blocks)))
        if "format" not in asked:
            return "None"
        facts = {fact: text.entry(getattr(self.format, fact)) for fact in _FACTS if fact in asked}
        name = fmt.dtype.name
        facts["dtype"] = f"np.dtype({f'np.{name}' if not foreign(name) else self.source.dtype(name)})"
        if "carrier" in asked:
            facts["carrier"] = f"np.dtype(np.{self.format.carrier.name})"
        self.source.imports.add("from types import SimpleNamespace")
        said = text.filled(f"SimpleNamespace({', '.join(f'{fact}={value}' for fact, value in facts.items())})")
        return self.source.constant(self.format.name.upper(), said)

    def _structured(self) -> Iterator[str]:
        """Last of all."""
        if structure := structure_of(self.recipe.fill.params, self.recipe.shape):
            yield f"array = {WRITTEN[structure].format('array')}"

    def _reversed(self) -> Iterator[str]:
        """Over the special values, too."""
        flip = self.recipe.fill.params.get("flip")
        if flip is not None:
            yield f"array = np.ascontiguousarray(np.flip(array, {int(flip)}))"

    def _exceptions(self) -> Iterator[str]:
        """Yield the lines that write over the values: special values at named places, then single elements."""
        fmt, size = self.format, self.recipe.size
        lines = []
        for special in self.recipe.specials if fmt.is_float and size else ():
            where = text.subscript(PLACES[special.place](self.recipe.shape))
            pattern = f"0x{VALUES[special.value](fmt):0{fmt.bits // 4}x}"
            lines.append(f"bits[{where}] = {pattern}  # {special.value} at {special.place}")
        pokes = [(index, f"0x{pattern:0{fmt.bits // 4}x}") for index, pattern in self.recipe.pokes if index < size]
        if len(pokes) > MANY:
            listed = ", ".join(f"({index}, {pattern})" for index, pattern in pokes)
            lines += [f"for index, pattern in {text.filled(f'[{listed}]')}:", "    bits[index] = pattern"]
        else:
            lines += [f"bits[{index}] = {pattern}" for index, pattern in pokes]
        if lines:
            yield f"bits = array.reshape(-1).view(np.{fmt.carrier.name})"
            yield from lines


_LIMITS = '''def limits(low, high, dtype):
    """The least and the largest {} number in [low, high]."""
    return {}'''


def _beginning(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, cut to MOST elements."""
    room, found = MOST, []
    for extent in reversed(shape):
        found.append(min(extent, max(1, room)))
        room //= max(1, extent)
    return tuple(reversed(found))


def _constant(array: Array, fmt: Format) -> bool:
    if not array.size:
        return True
    bits = array.reshape(-1).view(fmt.carrier)
    return bool((bits == bits[0]).all())


def _repeated(source: Source, array: Array, fmt: Format) -> str:
    """An array of one value, as numpy says it; an empty one is all zero."""
    shape = array.shape
    value = text.decimal(array.reshape(-1)[:1].reshape(()), fmt) if array.size else "0"
    if value is None:
        pattern = text.patterns(array.reshape(-1)[:1].reshape(()), fmt)
        full = f"np.full({shape}, {pattern}, np.{fmt.carrier.name})"
        return full if source.patterned(fmt.name) else f"{full}.view({source.dtype(fmt.name)})"
    maker = {"0": "np.zeros({}", "0.0": "np.zeros({}", "1": "np.ones({}", "1.0": "np.ones({}"}.get(value)
    made = maker.format(shape) if maker else f"np.full({shape}, {value}"
    return (
        source.rounded(f"{made})", fmt.name, "{}")
        if source.patterned(fmt.name)
        else f"{made}, {source.dtype(fmt.name)})"
    )
