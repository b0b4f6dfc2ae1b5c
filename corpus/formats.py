"""The number formats that are known here, with the facts of IEEE 754 and OCP FP8 that rounding and ULPs need."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import ml_dtypes
except ImportError:  # a worker in an interpreter of another version of Python
    ml_dtypes = None  # type: ignore[assignment]

from kernel_assay.corpus.errors import UsageError

Array = NDArray[Any]


@dataclass(frozen=True)
class Format:
    """One element type. For floats: precision p counts the implicit bit, 2**emin is the smallest normal number."""

    name: str
    dtype: np.dtype[Any]
    kind: str
    """float, int or uint."""
    precision: int = 0
    emin: int = 0
    emax: int = 0
    has_inf: bool = True

    @property
    def bits(self) -> int:
        """Width of one element in bits."""
        return self.dtype.itemsize * 8

    @cached_property
    def carrier(self) -> np.dtype[Any]:
        """The unsigned integer type of the same width, to look at bit patterns."""
        return np.dtype(f"u{self.dtype.itemsize}")

    @property
    def is_float(self) -> bool:
        """Whether the format has a rounding to speak of."""
        return self.kind == "float"

    @cached_property
    def max(self) -> float:
        """Largest finite value."""
        info = (ml_dtypes or np).finfo(self.dtype) if self.is_float else np.iinfo(self.dtype)
        return float(info.max)

    @property
    def tiny(self) -> float:
        """Smallest positive normal value."""
        return float(2.0**self.emin)

    @property
    def eta(self) -> float:
        """Smallest positive subnormal value."""
        return float(2.0 ** (self.emin - self.precision + 1))

    @property
    def unit(self) -> float:
        """Unit roundoff u = 2**-p of round to nearest."""
        return float(2.0**-self.precision)

    @cached_property
    def sign_bit(self) -> int:
        """The bit pattern of -0."""
        return 1 << (self.bits - 1)

    @cached_property
    def nan_bits(self) -> int:
        """The positive quiet NaN."""
        if self.name == "float8_e4m3fn":
            return 0x7F
        mantissa = self.precision - 1
        return self.inf_bits | (1 << (mantissa - 1))

    @cached_property
    def inf_bits(self) -> int:
        """The bit pattern of +Inf (formats without Inf: of the largest finite value)."""
        if not self.has_inf:
            return 0x7E
        mantissa = self.precision - 1
        return ((1 << (self.bits - 1 - mantissa)) - 1) << mantissa

    def number(self, pattern: int) -> float:
        """The number that a bit pattern stands for."""
        return float(np.array(pattern, self.carrier).view(self.dtype)[()])


def _float(name: str, dtype: Any, precision: int, emin: int, emax: int, has_inf: bool = True) -> Format:
    return Format(name, np.dtype(dtype), "float", precision, emin, emax, has_inf)


def _narrow() -> list[Format]:
    """Formats that numpy has not."""
    if ml_dtypes is None:
        return []
    return [
        _float("bfloat16", ml_dtypes.bfloat16, 8, -126, 127),
        _float("float8_e4m3fn", ml_dtypes.float8_e4m3fn, 4, -6, 8, has_inf=False),
        _float("float8_e5m2", ml_dtypes.float8_e5m2, 3, -14, 15),
    ]


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        _float("float64", np.float64, 53, -1022, 1023),
        _float("float32", np.float32, 24, -126, 127),
        _float("float16", np.float16, 11, -14, 15),
        *_narrow(),
        Format("int8", np.dtype(np.int8), "int"),
        Format("uint8", np.dtype(np.uint8), "uint"),
        Format("int32", np.dtype(np.int32), "int"),
        Format("int64", np.dtype(np.int64), "int"),
    )
}


_BY_DTYPE = {f.dtype: f for f in FORMATS.values()}


@cache
def format_of(name: str | np.dtype[Any]) -> Format:
    """The format called name, or of a numpy dtype. Raises UsageError for a type that is not known."""
    found = FORMATS.get(name) if isinstance(name, str) else _BY_DTYPE.get(name)
    if found is None:
        wanted = name if isinstance(name, str) else name.name
        raise UsageError(f"dtype {wanted!r} is not known; the known ones are {', '.join(FORMATS)}")
    return found


def compute_unit(dtype: str) -> float:
    """Unit roundoff of the arithmetic expected for inputs of this type: float64 for float64, else float32."""
    return 2.0**-53 if dtype == "float64" else 2.0**-24


def compute_format(dtype: str) -> Format:
    """The type whose arithmetic is expected for inputs of this type: float64 for float64, else float32."""
    return format_of("float64" if dtype == "float64" else "float32")


def bits_of(value: float, dtype: np.dtype[Any]) -> int:
    """Bit pattern of a value in a dtype, as pokes store it."""
    array = np.array(value).astype(dtype)
    return int(array.view(f"u{dtype.itemsize}")[()])


def spelled(pattern: int, dtype: str) -> str:
    """A bit pattern as its value: `nan`, `-inf`, `1e-45(subnormal)`, `7`; in hex if the type has no such pattern."""
    fmt = FORMATS.get(dtype)
    if fmt is None or pattern >> fmt.bits:
        return hex(pattern)
    number = np.array(pattern, fmt.carrier).view(fmt.dtype)[()]
    small = fmt.is_float and 0 < pattern & ~fmt.sign_bit < 1 << (fmt.precision - 1)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        is_whole = number == np.trunc(number)
    words = (str(number).removesuffix(".0"), f"{float(number):.0f}" if is_whole else str(number))
    return f"{min(words, key=len)}{'(subnormal)' * small}"
