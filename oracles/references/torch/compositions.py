"""Operators of torch as compositions of plainer ones, as kernels have them: two passes, naive where many are naive."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kernel_assay.oracles.numerics.following.interval_array import Followed
from kernel_assay.oracles.numerics.following.intervals import Span, freed

FOLDED = 8.0
"""Roundings of what is multiplied out: of both products, of their factors, and of the difference."""
aten = torch.ops.aten


def name_of(func: Any) -> str:
    """The name of an operator, without the library's."""
    name: str = func._schema.name  # noqa: SLF001  nothing else tells it
    return name.removeprefix("aten::")


def _linear_plus(multiply: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    (start, *factors), beta, alpha = args, kwargs.get("beta", 1), kwargs.get("alpha", 1)
    product = multiply(*factors)
    if alpha != 1:
        terms = product.followed.terms
        product = product * alpha
        product.followed.terms = terms
    return product + (start if beta == 1 else start * beta)


def _var(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The variance by two passes, and its root or the mean with it, by what the operator is called."""
    x, name = args[0], name_of(func)
    dims: Any = args[1] if len(args) > 1 else kwargs.get("dim")
    if isinstance(dims, bool):  # var(x, unbiased)
        dims, correction = None, int(dims)
    else:
        unbiased = kwargs.get("unbiased", args[2] if len(args) > 2 and isinstance(args[2], bool) else True)
        given = kwargs.get("correction")
        correction = int(unbiased) if given is None else given
    dims = list(range(x.ndim)) if dims is None or list(dims) == [] else list(dims)
    count = int(np.prod([x.shape[d] for d in dims]))
    mean = x.sum(dims, keepdim=True) / count
    found = _centred(x, mean, dims)[1] / max(0, count - correction)
    found = torch.sqrt(found) if name.startswith("std") else found
    if not kwargs.get("keepdim", False):
        drop = sorted((d % x.ndim for d in dims), reverse=True) if x.ndim else []
        for d in drop:
            found, mean = found.squeeze(d), mean.squeeze(d)
    return (found, mean) if name.endswith("mean") else found


def _centred(x: Any, mean: Any, dims: list[int]) -> tuple[Any, Any]:
    """Differences from the mean, and the sum of their squares; anything, where the squares before that overflow."""
    off = x - mean
    found = (off * off).sum(dims, keepdim=True)
    whole = (x * x).sum(dims, keepdim=True).span
    return off, without_limits(found, np.isposinf(whole.high) & np.isfinite(whole.value))


def without_limits(x: Any, strange: Any) -> Any:
    """Take the limits away where something is strange."""
    strange = np.broadcast_to(strange, tuple(x.shape))
    return type(x)(Followed(x.followed.arithmetic, freed(x.span, strange))) if np.any(strange) else x


def divided_late(made: Any, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The product of shares, as of a softmax, and of values: anything where it overflows before it is divided."""
    if not any(hasattr(x, "followed") and x.followed.shares for x in args):
        return made
    reach = func(*map(_undivided, args), **kwargs)
    return without_limits(made, reach.numpy() > made.followed.arithmetic.top)


def _undivided(x: Any) -> Any:
    """The largest that an operand may be, shares before they are divided by their sum."""
    if not hasattr(x, "followed"):
        return x
    value, _, high = x.span
    if x.followed.shares:
        return torch.from_numpy((high > 0).astype(np.float64))
    return torch.from_numpy(np.where(np.isfinite(value), np.abs(value), 0.0))


def _infinite(x: Any) -> Any:
    """Mark where it may be Inf."""
    return np.isinf(x.span.low) | np.isinf(x.span.high)


def _mean(_func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, dims = args[0], args[1] if len(args) > 1 else kwargs.get("dim")
    dims = list(range(x.ndim)) if dims is None or list(dims) == [] else list(dims)
    keep = kwargs.get("keepdim", args[2] if len(args) > 2 else False)
    return x.sum(dims, keepdim=keep) / int(np.prod([x.shape[d] for d in dims]))


def _norm(_func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, order = args[0], args[1] if len(args) > 1 else kwargs.get("ord", 2)
    dims = args[2] if len(args) > 2 else kwargs.get("dim")
    dims = list(range(x.ndim)) if dims is None or list(dims) == [] else list(dims)
    keep = kwargs.get("keepdim", args[3] if len(args) > 3 else False)
    size = x.abs()
    if order in {float("inf"), float("-inf")}:
        return size.amax(dims, keepdim=keep) if order > 0 else size.amin(dims, keepdim=keep)
    if order == 0:
        return (size != 0).to(torch.float64).sum(dims, keepdim=keep)
    if order == 1:
        return size.sum(dims, keepdim=keep)
    if order == 2:
        return (x * x).sum(dims, keepdim=keep).sqrt()
    return (size**order).sum(dims, keepdim=keep) ** (1.0 / order)


def _logsumexp(_func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, dims = args[0], list(args[1])
    keep = kwargs.get("keepdim", args[2] if len(args) > 2 else False)
    if not x.numel():  # which has no largest element
        return torch.exp(x).sum(dims, keepdim=keep).log()
    most = x.amax(dims, keepdim=True)
    most = torch.where(most.abs() == float("inf"), 0.0, most) if not _finite(most) else most  # or Inf - Inf
    total = torch.exp(x - most).sum(dims, keepdim=keep).log()
    return total + (most if keep else most.sum(dims))


def _finite(x: Any) -> bool:
    return all(bool(np.isfinite(part).all()) for part in x.span)


def softmax(_func: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """Along an axis."""
    if _by_logarithms(args[0]):
        return torch.exp(_log_softmax(_func, args, {}))
    exps = torch.exp(args[0] - args[0].amax(args[1], keepdim=True))
    return exps / exps.sum(args[1], keepdim=True)


def _log_softmax(_func: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    top = args[0].amax(args[1], keepdim=True)
    shifted = args[0] - top
    log = torch.exp(shifted).sum(args[1], keepdim=True).log()
    if not _by_logarithms(args[0]):
        return shifted - log
    made = args[0] - (top + log)
    return without_limits(made, np.isinf(top.span.value))  # there a logarithm has no one answer


def _by_logarithms(x: Any) -> bool:
    """Whether a kernel says that it takes shares as exp(x - log sum exp x), which are off by what x is rounded by."""
    return "log" in x.followed.arithmetic.question.numerics.intermediates


def _gelu(_func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    if kwargs.get("approximate", "none") == "none":
        return x * 0.5 * (torch.erf(x * 0.5**0.5) + 1.0)
    return x * 0.5 * (torch.tanh((x + x * x * x * 0.044715) * (2.0 / np.pi) ** 0.5) + 1.0)


def _layer_norm(_func: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    x, shape, weight, bias, eps = args
    dims = list(range(x.ndim - len(shape), x.ndim))
    mean = x.mean(dims, keepdim=True)
    off, squares = _centred(x, mean, dims)
    scale = torch.rsqrt(squares / int(np.prod(shape)) + eps)
    out = off * scale
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, scale


def _group_norm(_func: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    x, weight, bias, n, c, _, groups, eps = args
    y = x.reshape(n, groups, -1)
    mean = y.mean([2], keepdim=True)
    off, squares = _centred(y, mean, [2])
    scale = torch.rsqrt(squares / max(1, y.shape[2]) + eps)
    out, shape = (off * scale).reshape(x.shape), (1, c, *[1] * (x.ndim - 2))
    if weight is not None:  # many kernels, torch's own among them, fold the mean into the bias: Inf - Inf
        folded = [(one.expand(y.shape).reshape(x.shape) * weight.reshape(shape)) for one in (y * scale, mean * scale)]
        out = without_limits(out * weight.reshape(shape), _infinite(folded[0]) | _infinite(folded[1]))
    out = out if bias is None else out + bias.reshape(shape)
    return out, mean.squeeze(2), scale.squeeze(2)


def _batch_norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalize by statistics that are given; many kernels, torch's own among them, fold the mean into the bias."""
    x, weight, bias, mean, var, training, _, eps = args
    if training:
        from torch._decomp import decomposition_table  # noqa: PLC0415  not every reference needs it

        return inspect.unwrap(decomposition_table[func])(*args, **kwargs)
    shape = (1, x.shape[1], *[1] * (x.ndim - 2))
    mean, scale = mean.reshape(shape), torch.rsqrt(var.reshape(shape) + eps)
    whole = scale if weight is None else scale * weight.reshape(shape)
    out = (x - mean) * scale
    out = out if weight is None else out * weight.reshape(shape)
    parts, a = [x * whole, mean * whole], out.followed.arithmetic
    reach = sum(np.maximum(np.abs(part.span.low), np.abs(part.span.high)) for part in parts)
    error = np.where(np.isfinite(reach), FOLDED * a.unit * np.where(np.isfinite(reach), reach, 0.0), 0.0)
    span = Span(out.span.value, out.span.low - error, out.span.high + error)
    out = without_limits(type(out)(Followed(a, a.within_range(span))), _infinite(parts[0]) | _infinite(parts[1]))
    empty = x.new_empty(0)
    return out if bias is None else out + bias.reshape(shape), empty, empty


def _softplus(_func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Naively, as many kernels have it: log(1 + exp(x)) loses what is small beside 1."""
    x, rest = args[0], list[Any](args[1:])
    beta, threshold = rest + [1.0, 20.0][len(rest) :]
    beta, threshold = kwargs.get("beta", beta), kwargs.get("threshold", threshold)
    scaled = x * beta if beta != 1 else x
    small = torch.log(torch.exp(torch.clamp(scaled, max=threshold)) + 1.0)
    return torch.where(scaled > threshold, x, small / beta if beta != 1 else small)


def _elu(_func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Naively, as many kernels have it: exp(x) - 1 loses what is small beside 1."""
    x, rest = args[0], list[Any](args[1:])
    alpha, scale, inner = rest + [1.0, 1.0, 1.0][len(rest) :]
    alpha = kwargs.get("alpha", alpha)
    below = (torch.exp(torch.clamp(x, max=0.0) * inner) - 1.0) * (alpha * scale)
    return torch.where(x > 0, x * scale if scale != 1 else x, below)


def _safe_softmax(_func: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """A softmax in which a row of -Inf gives 0; most kernels make NaN of it, so it may be anything."""
    made = softmax(_func, args, {})
    none = np.isneginf(args[0].amax(args[1], keepdim=True).span.value)
    span = Span(np.where(none, 0.0, made.span.value), made.span.low, made.span.high)
    return without_limits(type(made)(Followed(made.followed.arithmetic, span)), none)


COMPOSED: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _var),
    "square": lambda _f, args, _k: args[0] * args[0],
    "mean": _mean,
    "linalg_vector_norm": _norm,
    "logsumexp": _logsumexp,
    "softplus": _softplus,
    "_softmax": softmax,
    "_log_softmax": _log_softmax,
    "gelu": _gelu,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm,
    "_safe_softmax": _safe_softmax,
    "silu": lambda _f, args, _k: args[0] * torch.sigmoid(args[0]),
    "leaky_relu": lambda _f, args, k: torch.where(args[0] > 0, args[0], args[0] * [*args[1:], *k.values(), 0.01][0]),
    "elu": _elu,
    "addmm": lambda _f, args, k: _linear_plus(aten.mm, args, k),
    "baddbmm": lambda _f, args, k: _linear_plus(aten.bmm, args, k),
}
"""By name, each called with the operator, its arguments and those by name."""
