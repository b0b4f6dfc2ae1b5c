"""Parameters of a kernel in CUDA C++, as g++ describes them, against what its front matter passes."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.kernels.backends.cuda_support.front_matter import FrontMatter


def check_parameters(
    front: FrontMatter, parameters: Sequence[str], tensors: Sequence[str], dtypes: dict[str, str]
) -> None:
    """Raises UsageError if a kernel's parameters are others than args says. dtypes: of tensors, where known."""
    where, args = front.path, front.args
    if len(args) != len(parameters):
        raise UsageError(f"{where}: args has {len(args)} arguments, but {front.entry} takes {len(parameters)}")
    for n, (formula, parameter) in enumerate(zip(args, parameters, strict=True), 1):
        if (formula.text in tensors) != (parameter[0] == "p"):
            what, other = ("pointer", "number") if formula.text in tensors else ("number", "pointer")
            raise UsageError(f"{where}: args: {formula.text!r} is a {what}, but parameter {n} is a {other}")
        dtype = dtypes.get(formula.text)
        if dtype and (only := other_dtype(parameter, dtype)):
            raise UsageError(f"{where}: dtypes has {dtype}, but the kernel takes {formula.text!r} as {only}")


def other_dtype(parameter: str, dtype: str) -> str:
    """The only dtype that a pointer takes, if it is not this one. Integers may be the bits of anything."""
    if parameter[1] == "i":
        fits = FORMATS[dtype].is_float or FORMATS[dtype].bits == 8 * int(parameter[2]) or dtype == "uint8"
        return "" if fits else f"integers of {parameter[2]} bytes"
    only = _POINTED.get(parameter[1:], dtype)
    return "" if only == dtype else only


_POINTED = {
    "f8": "float64",
    "f4": "float32",
    "f2": "float16",
    "b2": "bfloat16",
    "e1": "float8_e4m3fn",
    "x1": "float8_e5m2",
}
