"""Interpreted Triton, CUDA's mathematical library: what its functions mean, computed in float64 and rounded once.

The interpreter has none of them: those of `triton.language.extra.libdevice` return None there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import triton.language as tl
from scipy import special
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter

from kernel_assay.corpus.formats import Array
from kernel_assay.kernels.backends.triton_cpu.arithmetic import as_integers

Function = Callable[..., Array]


def _rounded(x: Array) -> Array:
    """Round to the nearest integer, halves away from 0."""
    whole = np.trunc(x)
    return np.asarray(whole + np.copysign(np.abs(x - whole) >= 0.5, x))


def _positive_difference(x: Array, y: Array) -> Array:
    return np.asarray(np.where(x <= y, 0.0, x - y))


def _norm(*parts: Array) -> Array:
    return np.asarray(np.sqrt(sum(part * part for part in parts)))


def _inverse(function: Function) -> Function:
    return lambda *parts: 1.0 / function(*parts)


_ROUNDINGS: dict[str, Function] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_INTEGERS: dict[str, type[np.integer[Any]]] = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}


def _to_integer(rounding: Function, wanted: type[np.integer[Any]]) -> Function:
    return lambda x: as_integers(rounding(x), np.dtype(wanted))


_NUMPY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh"),
    *("tanh", "hypot", "copysign", "fmod", "fabs", "floor", "ceil", "trunc", "rint", "ldexp", "abs", "signbit"),
)
_SCIPY = ("exp10", "erf", "erfc", "erfcx", "erfinv", "erfcinv", "j0", "j1", "y0", "y1", "jn", "yn")
_EXACT = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rcp": np.reciprocal}

FUNCTIONS: dict[str, Function] = {
    **{name: getattr(np, name) for name in _NUMPY},
    **{name: getattr(special, name) for name in _SCIPY},
    **{f"fast_{name}": getattr(np, name) for name in ("exp", "log", "log2", "log10", "sin", "cos", "tan")},
    **{f"{t}{name}_rn": function for t in "fd" for name, function in {**_EXACT, "sqrt": np.sqrt}.items()},
    **{
        f"{source}2{name}_{mode}": _to_integer(rounding, wanted)
        for source in ("float", "double")
        for name, wanted in _INTEGERS.items()
        for mode, rounding in _ROUNDINGS.items()
    },
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cyl_bessel_i0": special.i0,
    "cyl_bessel_i1": special.i1,
    "double2float_rn": np.asarray,
    "fast_exp10": special.exp10,
    "fast_fdivide": np.divide,
    "fast_pow": np.power,
    "fdim": _positive_difference,
    "finite": np.isfinite,
    "frsqrt_rn": _inverse(np.sqrt),
    "isfinited": np.isfinite,
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "isnan": np.isnan,
    "isnand": np.isnan,
    "lgamma": special.gammaln,
    "llabs": np.abs,
    "nearbyint": np.rint,
    "norm3d": _norm,
    "norm4d": _norm,
    "normcdf": special.ndtr,
    "normcdfinv": special.ndtri,
    "popc": np.bitwise_count,
    "popcll": np.bitwise_count,
    "pow": np.power,
    "powi": np.power,
    "rcbrt": _inverse(np.cbrt),
    "rhypot": _inverse(np.hypot),
    "rnorm3d": _inverse(_norm),
    "rnorm4d": _inverse(_norm),
    "round": _rounded,
    "rsqrt": _inverse(np.sqrt),
    "saturate": lambda x: np.fmin(np.fmax(x, 0.0), 1.0),
    "scalbn": np.ldexp,
    "signbitd": np.signbit,
    "tgamma": special.gamma,
}
"""By the library's own names, less the prefix, and less the `f` of those in float32."""


class Libdevice(interpreter.InterpreterBuilder):  # type: ignore[misc]
    """Calls the functions above."""

    def create_extern_elementwise(
        self,
        lib_name: str,
        lib_path: str,  # noqa: ARG002  the interpreter's signature
        symbol: str,
        arg_list: list[Any],
        ret_type: Any,
        is_pure: bool,  # noqa: ARG002  as above
    ) -> Any:
        """One call for all elements. Raises NotImplementedError for a function that is not known here."""
        name = symbol.removeprefix("__nv_")
        if name in {"fma", "fmaf", "fma_rn", "fmaf_rn"}:
            return self.create_fma(*arg_list)
        function = FUNCTIONS.get(name) or FUNCTIONS.get(name.removesuffix("f"))
        if lib_name or function is None:
            raise NotImplementedError(f"interpreted Triton has no {symbol}")
        wide = [arg.data.astype(np.float64) if arg.data.dtype.kind == "f" else arg.data for arg in arg_list]
        found, wanted = np.asarray(function(*wide)), interpreter._get_np_dtype(ret_type.scalar)  # noqa: SLF001
        return interpreter.TensorHandle(found.astype(wanted), ret_type.scalar)

    def create_erf(self, arg: Any) -> Any:
        """Compute erf at once; the interpreter's own calls Python for every element."""
        return interpreter.TensorHandle(special.erf(arg.data.astype(np.float64)).astype(arg.data.dtype), arg.dtype)


def _absent(name: str, *_: Any) -> Any:
    raise NotImplementedError(f"interpreted Triton has no libdevice.{name}")


def connect() -> None:
    """Let both modules of this library, the general one and CUDA's own, call the interpreter."""
    for name, function in list(vars(libdevice).items()):
        if callable(function):
            known = getattr(cuda_libdevice, name, partial(_absent, name))
            bound = partial(known, _semantic=interpreter.interpreter_semantic) if tl.core.is_builtin(known) else known
            setattr(libdevice, name, bound)
    for name, function in list(vars(cuda_libdevice).items()):
        if tl.core.is_builtin(function):
            setattr(cuda_libdevice, name, getattr(libdevice, name))
