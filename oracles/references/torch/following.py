"""Torch tensors that carry what rounding may have done to them: each operator of ATen by the rules of spans.

An operator moves values, grows with each of them, is linear, elementwise or a composition of others; composed ones are
taken apart by torch's own decompositions. What is none of these is tried at neighbours, and named.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from kernel_assay.corpus.formats import Array, format_of
from kernel_assay.oracles.numerics.following.interval_array import (
    Followed,
    UnfollowedError,
    followed,
    multiplied_out,
    terms_of,
)
from kernel_assay.oracles.numerics.following.intervals import (
    Arithmetic,
    Span,
    chosen,
    elementwise,
    freed,
    multiplied,
    summed,
    tried,
)
from kernel_assay.oracles.references.torch import operators, ties
from kernel_assay.oracles.references.torch.compositions import COMPOSED, divided_late, name_of, without_limits
from kernel_assay.oracles.references.torch.native_types import UNITS, casts_of, native_of, with_native
from kernel_assay.oracles.references.torch.widened import NARROW

__all__ = ["Made", "Names", "Tracked", "begin", "casts_of", "given", "tracked"]

LOST = 3
"""In place of the number of a limit: the values, but NaN where there may be anything."""
SCALE = 4096.0
"""How much a factor behind a product, as 1 / sqrt(head) or a batch norm's 1 / sqrt(eps), may make of it."""
ERF = 12.0
"""Roundings of 1 by which erf may be off: vector units compute 1 - p exp(-x x) (numerics.md 2.2)."""
aten = torch.ops.aten


class Tracked(torch.Tensor):
    """A span as a tensor of torch."""

    followed: Followed
    places = False
    """Whether it holds positions."""
    source: tuple[int, Array, Array] | None = None
    """Of positions: the axis that they are on, and limits of the numbers that stand there."""
    unsure: Array | None = None
    """Marks of positions: another one may be taken with equal right."""
    native: torch.dtype | None = None
    """The type that it has where the reference is run as it stands; None: it is not known, or no matter."""
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # noqa: SLF001

    @staticmethod
    def __new__(cls: type[Tracked], array: Followed) -> Tracked:  # noqa: PYI034  torch makes it
        """Stands for the array; views of it share its memory."""
        array.span = Span(*map(np.asarray, array.span))  # of no axes numpy makes numbers
        value = array.span.value
        made: Tracked = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001
            cls, value.shape, dtype=torch.from_numpy(np.empty(0, value.dtype)).dtype, device=torch.device("cpu")
        )
        made.followed = array
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Every operator that one of them takes part in."""
        del types
        made = _operated(func, args, kwargs or {})
        if (native := native_of(args, kwargs)) is not None and name_of(func) != "_to_copy":
            for one in made if isinstance(made, tuple | list) else (made,):
                if isinstance(one, Tracked):
                    one.native = native
        return made

    @property
    def span(self) -> Span:
        """The limits."""
        return self.followed.span

    @property
    def anything(self) -> Array:
        """Mark where a kernel may have anything, NaN included."""
        return np.asarray(np.isneginf(self.span.low) & np.isposinf(self.span.high))

    @property
    def may_be_nan(self) -> bool:
        """Whether there is such an element."""
        return self.span.low.dtype.kind == "f" and bool(self.anything.any())


def given(array: Followed, x: Array) -> Tracked:
    """An input, made of numbers of the kernel's own type."""
    made = Tracked(array)
    made.native = getattr(torch, format_of(x.dtype).name, None) if x.dtype != np.longdouble else None
    return made


def begin(arithmetic: Arithmetic) -> None:
    """Let the first operator of a tensor of ours find no distributed tensors: torch looks once, by a long import."""
    name = "torch.distributed.tensor"
    if name in sys.modules:
        return
    sys.modules[name] = stand_in = ModuleType(name)
    stand_in.DTensor = type("DTensor", (), {})  # type: ignore[attr-defined]
    try:
        torch.nn.functional.linear(*(tracked(arithmetic, torch.ones(1, 1)) for _ in range(2)))
    finally:
        del sys.modules[name]


class Made(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, tensors that a formula makes can be written to: they are followed from the beginning."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._arithmetic = arithmetic

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operator."""
        del types
        result = func(*args, **(kwargs or {}))
        if name_of(func) in operators.FACTORIES and _is_float(result) and not isinstance(result, Tracked):
            return tracked(self._arithmetic, result)
        return result


# Under its wrapper, which would import torch's compiler, a second and a half, to say that it is not compiled.
Made.__torch_dispatch__ = inspect.unwrap(Made.__torch_dispatch__)  # type: ignore[method-assign]


class Names:
    """Operators that no rule follows, of the run that goes on."""

    met: set[str] = set()  # noqa: RUF012  one process runs one reference at a time


def _operated(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = name_of(func)
    if name.endswith("_") and not name.endswith("__"):
        packet = getattr(aten, name[:-1])
        form = getattr(packet, func._overloadname, packet)  # noqa: SLF001
        _store(args[0], _operated(form, args, kwargs) if hasattr(form, "_schema") else form(*args, **kwargs))
        return args[0]
    if name == "_local_scalar_dense":
        return args[0].span.value.item()
    if rule := _RULES.get(name):
        return _still_placed(rule(func, args, kwargs), (args, kwargs))
    if torch.Tag.nondeterministic_seeded in func.tags:
        raise UnfollowedError(f"it draws random numbers ({name})")
    return _composed(func, name, args, kwargs)


def _still_placed(made: Any, given: Any) -> Any:
    """What an operator makes; whole numbers that are made of positions depend on which one was taken, too."""
    if isinstance(made, Tracked) and made.source is None and not made.dtype.is_floating_point:
        made.places |= any(isinstance(x, Tracked) and x.places for x in tree_leaves(given))
    return made


def _store(target: Any, result: Tracked) -> None:
    if not isinstance(target, Tracked):
        raise UnfollowedError("it writes what it has computed into a tensor that torch.zeros or the like has made")
    target.followed[...] = result.followed


def _composed(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take an operator apart; one that cannot be is tried as a whole."""
    from torch._decomp import decomposition_table  # noqa: PLC0415  not every reference needs it

    if func in decomposition_table:
        # Under its wrappers, which would import torch's compiler to say that they are not compiled.
        return inspect.unwrap(decomposition_table[func])(*args, **kwargs)
    if (made := func.decompose(*args, **kwargs)) is not NotImplemented:
        return made
    Names.met.add(name)
    return _with(func, args, kwargs, tried)


def _arithmetic(args: Any) -> Arithmetic:
    return next(x.followed.arithmetic for x in tree_leaves(args) if isinstance(x, Tracked))


def tracked(a: Arithmetic, x: Any) -> Tracked:
    """Anything an operator takes as a number; what is not followed is a constant."""
    if isinstance(x, Tracked):
        return x
    array = x.detach().to(torch.float64).numpy() if _is_float(x) else np.asarray(x)
    return Tracked(followed(a, array))


def _is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype.is_floating_point


def _plain(tree: Any, which: int) -> Any:
    """The values (0) or the limits of all that is followed, as tensors over the same memory."""

    def part(x: Any) -> Any:
        if isinstance(x, Tracked):
            if which == LOST:
                return torch.from_numpy(np.where(x.anything, np.nan, x.span[0]) if x.may_be_nan else x.span[0])
            return torch.from_numpy(x.span[which if x.dtype.is_floating_point or x.dtype == torch.bool else 0])
        return x.to(torch.float64) if _is_float(x) else x

    return tree_map(part, tree)


def _numpy(x: Any) -> Array:
    array: Array = x.numpy()
    return array


def _moved(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator of the values and of either limit; positions are those of the values."""
    a, name = _arithmetic((args, kwargs)), name_of(func)
    if name in operators.VIEWS:  # torch takes them for contiguous
        func = torch.reshape
    parts = [func(*_plain(args, i), **_plain(kwargs, i)) for i in range(3)]
    free = _free(func, args, kwargs)
    if isinstance(parts[0], torch.Tensor):
        single = _joined(a, parts, free)
        single.unsure = ties.moved(func, args, kwargs) if single.places else None
        if name in operators.ARRANGES | operators.VIEWS:
            args[0].followed.arranged(single.followed, lambda x: _numpy(func(_tensor(x), *args[1:], **kwargs)))
        return single
    made = [_joined(a, parts, lost) for *parts, lost in zip(*parts, free or parts[0], strict=True)]
    return made if isinstance(parts[0], list) else tuple(made)


def _free(func: Any, args: Any, kwargs: Any) -> Any:
    """The result if whatever may be anything were NaN; None, if nothing may. A NaN may come out where one may go in."""
    if not any(isinstance(x, Tracked) and x.may_be_nan for x in tree_leaves((args, kwargs))):
        return None
    return func(*_plain(args, LOST), **_plain(kwargs, LOST))


def _joined(a: Arithmetic, parts: Sequence[torch.Tensor], lost: torch.Tensor | None) -> Tracked:
    if parts[0].dtype.is_floating_point or parts[0].dtype == torch.bool:
        span = Span(*map(_numpy, parts))
        return Tracked(Followed(a, span if lost is None else freed(span, _numpy(lost.isnan() & ~parts[0].isnan()))))
    made = Tracked(Followed(a, Span(*(_numpy(parts[0].clone()) for _ in range(3)))))
    made.places = True
    return made


def _sourced(made: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of an operator; those that are positions know of what numbers."""
    for one in made if isinstance(made, tuple | list) else (made,):
        if getattr(one, "places", False):
            axis, low, high = one.source = (
                ties.axis_of(func, args, kwargs),
                args[0].span.low.copy(),
                args[0].span.high.copy(),
            )
            one.unsure = ties.unsure(low, high, axis, one.span.value)
    return made


def _found(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What only moves values, and tells where they were."""
    return _sourced(_moved(func, args, kwargs), func, args, kwargs)


def _put(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Put numbers at positions: anything may be along an axis on which another one may have been taken."""
    adds = name_of(func) in operators.LINEAR or any(x is True for x in args)  # index_put may, too
    made = (_multiplied if adds else _moved)(func, args, kwargs)
    if (marked := ties.put(name_of(func), tuple(made.shape), args)) is None:
        return made
    return without_limits(made, marked)


def _unpooled(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take back what the largest of windows were given; anything, to all that share the largest of one."""
    begun, x, kernel, stride, padding, dilation = args[:6]
    made, how = _multiplied(func, args, kwargs), (kernel, stride or kernel, padding, dilation)
    marked = ties.shared(*tracked(made.followed.arithmetic, x).span[1:], tuple(begun.shape), how)
    return without_limits(made, marked)


def _extreme(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The largest of all, or along an axis, which has a place."""
    has_axis = any(x.name == "dim" for x in func._schema.arguments)  # noqa: SLF001
    return (_found if has_axis else _moved)(func, args, kwargs)


def _made(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("dtype") in NARROW:
        kwargs = {**kwargs, "dtype": torch.float64}
    return tracked(_arithmetic((args, kwargs)), func(*_plain(args, 0), **_plain(kwargs, 0)))


def _placed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = _made(func, args, kwargs)
    made.places = True
    return _sourced(made, func, args, kwargs) if name_of(func).startswith("arg") else made


def _with(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], rule: Callable[..., Span], *more: Any) -> Any:
    """A rule for functions of whole arrays: the float tensors among the arguments are its operands."""
    a = _arithmetic((args, kwargs))
    places = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor) and x.dtype.is_floating_point]
    rest = _plain(args, 0)

    def applied(*operands: Array) -> Array:
        full = list(rest)
        for i, operand in zip(places, operands, strict=True):
            full[i] = torch.from_numpy(np.ascontiguousarray(operand, np.float64)).reshape(operand.shape)
        result = func(*full, **kwargs)
        if not isinstance(result, torch.Tensor):
            raise UnfollowedError(f"{func} has several results")
        return _numpy(result)

    made = Followed(a, rule(a, applied, spans := [tracked(a, args[i]).span for i in places], *more))
    made.terms = terms_of(applied, spans) if rule is _scaled else None
    return Tracked(made)


def _multiplied(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return divided_late(_with(func, args, kwargs, _scaled), func, args, kwargs)


def _scaled(a: Arithmetic, function: Callable[..., Array], spans: Sequence[Span]) -> Span:
    """A product that a kernel may scale before or after, and so overflow where the reference does not yet."""
    return multiplied(replace(a, top=a.top / SCALE, sums_top=a.sums_top / SCALE), function, spans)


def _pooled(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A mean has as many roundings as there are elements that may go into one result, and one of the quotient."""
    size, made = args[0].shape, func(*_plain(args, 0), **kwargs).shape
    spread = [-(-old // new) + 1 for old, new in zip(size[2:], made[2:], strict=True)]
    window = args[1] if name_of(func).startswith("avg") else spread
    most = float(np.prod([*window, *([window[0]] if len(window) == 1 else [])]))

    def rule(a: Arithmetic, applied: Callable[..., Array], spans: Sequence[Span]) -> Span:
        narrow = replace(a, top=a.top / most, sums_top=a.sums_top / most)  # of the sum, before it is divided
        return multiplied(narrow, applied, spans, lambda *ones: (most + 8.0) * applied(*ones))

    return _with(func, args, kwargs, rule)


def _convolution(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Add the bias, before the sum or behind it; anything, where a weight that is no number meets what is padded."""
    made = _with(func, (args[0], args[1], None, *args[3:]), kwargs, _scaled)
    x, weight, bias, _, padding, _, transposed = args[:7]
    odd = ~np.isfinite(tracked(made.followed.arithmetic, weight).span.value)
    if odd.any() and any(padding) and not transposed:
        marks = torch.from_numpy(odd.astype(np.float64))
        met = func(torch.ones(x.shape, dtype=torch.float64), marks, None, *args[3:])
        all_of_it = marks.flatten(1).sum(1).reshape(-1, *[1] * (made.ndim - 2))
        made = without_limits(made, _numpy(met < all_of_it))
    if bias is None:
        return made
    return made + bias.reshape(-1, *[1] * (made.ndim - 2))


def _convolution_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Each of its results is linear in two of the tensors."""
    *rest, wanted = args

    def one(which: int) -> Any:
        mask = [i == which for i in range(3)]
        return _with(lambda *given, **named: func(*given[:-1], mask, **named)[which], (*rest, mask), kwargs, _scaled)

    return tuple(one(which) if asked else None for which, asked in enumerate(wanted))


def _spread(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take back what weighted means were given: as many roundings as there may be terms, and one of the quotient."""
    most = float(np.prod(args[0].shape[2:])) if "adaptive" in name_of(func) else float(np.prod(args[2]))

    def rule(a: Arithmetic, applied: Callable[..., Array], spans: Sequence[Span]) -> Span:
        return multiplied(a, applied, spans, lambda *ones: np.full(applied(*ones).shape, most + 8.0))

    return _with(func, args, kwargs, rule)


def _summed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kwargs = {name: value for name, value in kwargs.items() if name != "dtype"}
    a = _arithmetic(args)
    if args[0].dtype == torch.bool or not args[0].dtype.is_floating_point:
        return _moved(func, args, kwargs)
    function = lambda x: _numpy(func(torch.from_numpy(np.asarray(x, np.float64)), *args[1:], **kwargs))  # noqa: E731
    total = Followed(a, summed(a, function, args[0].span))
    total.exponent = args[0].followed.exponent
    return Tracked(total)


def _prod(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    count = aten.sum.dim_IntList if len(args) > 1 else aten.sum.default
    how = ([args[1]], *args[2:]) if len(args) > 1 else ()
    return _with(func, args, kwargs, multiplied, lambda x: _numpy(count(torch.from_numpy(x), *how)))


def _cumprod(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _with(func, args, kwargs, multiplied, lambda x: _numpy(torch.cumsum(torch.from_numpy(x), args[1])))


def _elementwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name, a = name_of(func), _arithmetic((args, kwargs))
    if (alpha := kwargs.get("alpha", args[2] if len(args) > 2 else 1)) != 1 and name in {"add", "sub"}:
        return _elementwise(func, (args[0], tracked(a, args[1]) * alpha), {})
    if (name == "mul" and args[0] is args[1]) or (name == "pow" and isinstance(args[1], int | float) and args[1] == 2):
        function: Callable[..., torch.Tensor] = torch.square
        named, given = "square", args[:1]
    else:
        given, named = args, operators.NAMES[name]
        rest = {key: value for key, value in kwargs.items() if key != "alpha"}
        packet = getattr(aten, name)
        function = lambda *x: packet(*x, **rest)  # noqa: E731
        named = "floor_divide" if rest.get("rounding_mode") else named
    operands = [tracked(a, x) for x in given]
    spans = [x.span for x in operands]
    span = elementwise(a, named, lambda *x: _numpy(function(*map(_tensor, x))), spans)
    if span.value.dtype.kind == "f" and (lost := _free(function, operands, {})) is not None:
        span = freed(span, _numpy(lost.isnan()) & ~np.isnan(span.value))
    if named == "square":  # Welford's way, and others, make a NaN where the sum of squares overflows
        span = freed(span, np.isposinf(span.high) & np.isfinite(span.value))
    if name == "erf":
        span = Span(span.value, span.low - ERF * a.unit, span.high + ERF * a.unit)
    return Tracked(multiplied_out(a, named, span, [x.followed for x in operands]))


def _tensor(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.asarray(x))


def _chosen(_func: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    a = _arithmetic(args)
    condition, yes, no = (tracked(a, x) for x in args)
    return Tracked(Followed(a, chosen(condition.span, yes.span, no.span)))


def _copied(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Another type: a wider one changes nothing, a narrower one rounds, whole numbers are cut off."""
    x, dtype = args[0], kwargs.get("dtype")
    if dtype is None or (dtype.is_floating_point and dtype not in UNITS and x.dtype.is_floating_point):
        return with_native(_moved(aten.clone.default, args, {}), dtype or x.native)
    if dtype in UNITS and x.dtype.is_floating_point:
        value, low, high = x.span
        rounded = x.followed.astype(UNITS[dtype]).span  # the reference itself is computed in float64 throughout
        span = Span(value, np.fmin(low, rounded.low), np.fmax(high, rounded.high))
        return with_native(Tracked(Followed(x.followed.arithmetic, span)), dtype)
    wide = torch.float64 if dtype.is_floating_point else dtype
    parts = [torch.from_numpy(part).to(wide) for part in x.span]
    del func
    made = Tracked(Followed(x.followed.arithmetic, Span(*map(_numpy, parts))))
    if not dtype.is_floating_point and not x.dtype.is_floating_point:
        made.places, made.source = x.places, x.source
    return with_native(made, dtype)


_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(operators.MOVES, _moved),
    **dict.fromkeys(operators.FOUND, _found),
    **dict.fromkeys(operators.MADE, _made),
    **dict.fromkeys(operators.PLACES, _placed),
    **dict.fromkeys(operators.LINEAR, _multiplied),
    **dict.fromkeys(operators.POOLS, _pooled),
    **dict.fromkeys(operators.PUTS, _put),
    **dict.fromkeys(operators.SPREADS, _spread),
    **dict.fromkeys(operators.NAMES, _elementwise),
    **COMPOSED,
    "max": _extreme,
    "min": _extreme,
    "sum": _summed,
    "cumsum": _summed,
    "nansum": _summed,
    "prod": _prod,
    "cumprod": _cumprod,
    "convolution": _convolution,
    "where": _chosen,
    "masked_fill": lambda _f, args, _k: _chosen(_f, (args[1], args[2], args[0]), {}),
    "_to_copy": _copied,
    "rsub": lambda _f, args, _k: tracked(_arithmetic(args), args[1]) - args[0],
    "convolution_backward": _convolution_backward,
    "max_pool2d_with_indices_backward": _unpooled,
}
