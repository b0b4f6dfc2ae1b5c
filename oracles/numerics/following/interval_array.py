"""Arrays that carry what rounding may have done to them through a formula, by numpy's own protocols (NEP 13 and 18)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernel_assay.corpus.formats import Array
from kernel_assay.oracles.numerics.following.factor_orders import Product, in_any_order, product_of
from kernel_assay.oracles.numerics.following.intervals import (
    Arithmetic,
    Span,
    chosen,
    elementwise,
    multiplied,
    of_shares,
    summed,
    tried,
    words,
)
from kernel_assay.oracles.numerics.following.stable_forms import Made, stable_form

LINEAR = words("einsum dot inner outer vdot tensordot matmul vecdot matvec vecmat convolve correlate trace kron")
"""Functions that are linear in each array: sums of products."""
METHODS = words("sum mean var std prod cumsum cumprod")
"""Functions that are methods of Followed."""
MOVES = words("""
    reshape ravel flatten transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis squeeze expand_dims copy
    broadcast_to broadcast_arrays concatenate concat stack vstack hstack dstack column_stack split array_split hsplit
    vsplit unstack tile repeat roll flip fliplr flipud rot90 pad take take_along_axis where choose select compress
    delete insert append tril triu diagonal diag atleast_1d atleast_2d atleast_3d sliding_window_view sort partition
    clip round around nan_to_num max min amax amin real
""")
"""Functions that only move values, or grow with each of them."""
ARRANGES = words("""
    reshape ravel transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis squeeze expand_dims copy
    broadcast_to tile repeat roll flip
""")
"""Those that keep each element as it is, or repeat it, wherever the others are."""
VALUES = words("""
    argmax argmin argsort argpartition argwhere nonzero flatnonzero count_nonzero any all shape ndim size isclose
    allclose array_equal searchsorted result_type digitize isin
""")
"""Functions of which only the exact answer counts: positions and decisions."""
LIKE = frozenset({"zeros_like", "ones_like", "empty_like", "full_like"})
"""Functions that take nothing but a shape."""
GROWING = frozenset({"maximum", "minimum", "fmax", "fmin"})
"""Reductions that grow with each element."""


class UnfollowedError(Exception):
    """The formula does something that Followed cannot take part in."""


class Followed(np.lib.mixins.NDArrayOperatorsMixin):
    """A span that acts as an array."""

    def __init__(self, arithmetic: Arithmetic, span: Span) -> None:
        """The three arrays of the span must be three: what is assigned to one must not show in another."""
        self.arithmetic = arithmetic
        self.span = span
        self.made: Made | None = None
        """What it came of, if a form without cancellation may begin with it."""
        self.product: Product | None = None
        """Its factors, if it is a product."""
        self.terms: Callable[[], Array] | None = None
        """Of a sum of products: tells how many there are in each element."""
        self.exponent = 0.0
        """The largest magnitude that it is an exponential of, or a sum of exponentials; 0: it is none."""
        self.shares = False
        """Whether it is such a quotient of exponentials, by whose sum a kernel may divide later."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Numpy's elementwise functions, matrix products and reductions."""
        out, where = kwargs.pop("out", None), True
        kwargs.pop("dtype", None)
        if method == "__call__":
            where = kwargs.pop("where", True)
        if (out is None and where is not True) or (out is not None and not isinstance(out[0], Followed)):
            raise UnfollowedError(f"numpy.{ufunc.__name__} writes into a plain array")
        result = _applied(self.arithmetic, ufunc, method, inputs, kwargs)
        if out is None:
            return result
        out[0][...] = result if where is True else np.where(where, result, out[0])
        return out[0]

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Numpy's other functions."""
        del types
        name, a = function.__name__, self.arithmetic
        if name in METHODS and args:
            return getattr(followed(a, args[0]), name)(*args[1:], **kwargs)
        if function is np.where and len(args) == 3:
            return Followed(a, chosen(*(followed(a, x).span for x in args)))
        if name in MOVES:
            arranges = name in ARRANGES and isinstance(args[0], Followed)
            move = partial(_moved_by, function, args[1:], kwargs)
            return args[0]._arranged(move) if arranges else _each(a, function, args, kwargs)  # noqa: SLF001
        if name in VALUES:
            return function(*_part(a, args, 0), **_part(a, kwargs, 0))
        if name in LIKE:
            return followed(a, function(*_part(a, args, 0), **_part(a, kwargs, 0)))
        return _known(a, multiplied if name in LINEAR else tried, function, args, kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        """Only whole numbers, which have no error that could be lost."""
        del copy
        if self.span.value.dtype.kind in "biu":
            return self.span.value if dtype is None else self.span.value.astype(dtype)
        raise UnfollowedError("it makes plain numbers of its inputs")

    def __getattr__(self, name: str) -> Any:
        """An attribute that arrays have: shape, dtype, T, reshape, argmax, ..."""
        if name in {"span", "arithmetic"} or name.startswith("_"):
            raise AttributeError(name)
        value = self.span.value
        if name in {"shape", "dtype", "ndim", "size"} or name in VALUES:
            return getattr(value, name)
        if name in {"T", "mT", "real"}:
            return self._arranged(lambda x: getattr(x, name))
        if name in ARRANGES and hasattr(value, name):
            return lambda *args, **kwargs: self._arranged(lambda x: getattr(x, name)(*args, **kwargs))
        if name in MOVES and hasattr(value, name):
            return partial(_each_method, self.arithmetic, name, self)
        if name in {"dot", "trace"}:
            return partial(getattr(np, name), self)
        raise AttributeError(f"an array that is followed has no {name!r}")

    def __len__(self) -> int:
        """Extent of the first axis."""
        return len(self.span.value)

    def __bool__(self) -> bool:
        """A decision falls as it does on the exact value."""
        return bool(self.span.value)

    def __index__(self) -> int:
        """The index of a whole number."""
        return int(self.__array__().__index__())

    def __float__(self) -> float:
        """The value of a whole number."""
        return float(self.__array__())

    def __getitem__(self, key: Any) -> Followed:
        """A view, as of an array."""
        key = _part(self.arithmetic, key, 0)
        return self._arranged(lambda x: x[key])

    def _arranged(self, move: Callable[[Array], Array]) -> Followed:
        """The same elements at other places."""
        return self.arranged(Followed(self.arithmetic, Span(*(np.asarray(move(x)) for x in self.span))), move)

    def arranged(self, made: Followed, move: Callable[[Array], Array]) -> Followed:
        """What has the same elements at other places, which is told of what they came of."""
        if self.product is not None:
            made.product = self.product.moved(move, self.shape)
        if (terms := self.terms) is not None:
            made.terms = lambda: move(terms())
        made.exponent, made.shares = self.exponent, self.shares
        return made

    def __setitem__(self, key: Any, new: Any) -> None:
        """Store a span; one number where a mask may be true."""
        span = followed(self.arithmetic, new).span
        self.arithmetic.log.stores += 1
        if isinstance(key, Followed) and key.dtype.kind == "b" and not span.value.ndim:
            key, span = ..., chosen(key.span, span, self.span)
        for old, part in zip(self.span, span, strict=True):
            old[_part(self.arithmetic, key, 0)] = part

    def __iter__(self) -> Iterator[Followed]:
        """Along the first axis."""
        return (self[i] for i in range(len(self)))

    def astype(self, dtype: Any, **_: Any) -> Followed:
        """A wider type changes nothing; a narrower one rounds everything, and the computation goes on as before."""
        old, new = self.span.value.dtype, np.dtype(dtype)
        if new.kind == "f" and np.finfo(new).precision >= np.finfo(np.float64).precision:
            new = np.result_type(old, new)
        parts = [x.astype(new) for x in self.span]
        if old.kind == "f" and new.kind not in "biu":
            parts = [x.astype(old) for x in parts]
        return Followed(self.arithmetic, Span(*parts))

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, **kwargs: Any) -> Any:
        """Sum in any order."""
        del dtype, out
        return np.add.reduce(self, axis=axis, **kwargs)

    def prod(self, axis: Any = None, dtype: Any = None, out: Any = None, **kwargs: Any) -> Any:
        """Multiply in any order."""
        del dtype, out
        return np.multiply.reduce(self, axis=axis, **kwargs)

    def cumsum(self, axis: Any = None, **_: Any) -> Any:
        """Each in any order."""
        return np.add.accumulate(self.ravel() if axis is None else self, axis=axis or 0)

    def cumprod(self, axis: Any = None, **_: Any) -> Any:
        """Each in any order."""
        return np.multiply.accumulate(self.ravel() if axis is None else self, axis=axis or 0)

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None, **kwargs: Any) -> Any:
        """The sum divided by the number of terms."""
        total = self.sum(axis, dtype, out, **kwargs)
        return total / (self.size // max(1, total.size))

    def var(self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, **kwargs: Any) -> Any:
        """The variance by two passes."""
        centred = self - self.mean(axis, keepdims=True)
        total = (centred * centred).sum(axis, dtype, out, **kwargs)
        return total / (self.size // max(1, total.size) - ddof)

    def std(self, *args: Any, **kwargs: Any) -> Any:
        """The root of var."""
        return np.sqrt(self.var(*args, **kwargs))


def followed(a: Arithmetic, x: Any) -> Followed:
    """Anything a formula computes with, as Followed; what is not yet is a constant."""
    if isinstance(x, Followed):
        return x
    return Followed(a, Span(*(part.copy() for part in a.constant(_real(np.asarray(x))))))


def _moved_by(function: Callable[..., Array], rest: tuple[Any, ...], named: dict[str, Any], x: Array) -> Array:
    return function(x, *rest, **named)


def _real(array: Array) -> Array:
    if array.dtype.kind not in "biuf":
        raise UnfollowedError(f"it computes with {array.dtype.name}")
    return array


def _part(a: Arithmetic, tree: Any, which: int) -> Any:
    """The value (0), the low (1) or the high limit (2) of everything in a tree of arguments."""
    if isinstance(tree, Followed):
        return tree.span[which]
    if isinstance(tree, tuple | list):
        return type(tree)([_part(a, x, which) for x in tree])
    if isinstance(tree, dict):
        return {k: _part(a, x, which) for k, x in tree.items()}
    return tree


def _each(a: Arithmetic, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function of the values and of either limit."""
    parts = [function(*_part(a, args, i), **_part(a, kwargs, i)) for i in range(3)]
    if isinstance(parts[0], tuple | list):
        return type(parts[0])([Followed(a, Span(*three)) for three in zip(*parts, strict=True)])
    return Followed(a, Span(*map(np.asarray, parts)))


def _each_method(a: Arithmetic, name: str, *args: Any, **kwargs: Any) -> Any:
    return _each(a, lambda x, *rest, **named: getattr(x, name)(*rest, **named), args, kwargs)


def _known(
    a: Arithmetic, rule: Callable[..., Span], function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Followed:
    """A rule for functions of whole arrays: the arrays among the arguments are its operands."""
    places = [i for i, x in enumerate(args) if isinstance(x, Followed | np.ndarray)]

    def applied(*operands: Array) -> Array:
        full = list(args)
        for i, operand in zip(places, operands, strict=True):
            full[i] = operand
        result = function(*full, **kwargs)
        if isinstance(result, tuple | list):
            raise UnfollowedError(f"it calls numpy.{function.__name__}, which has several results")
        return _real(np.asarray(result))

    made = Followed(a, rule(a, applied, spans := [followed(a, args[i]).span for i in places]))
    made.terms = terms_of(applied, spans) if rule is multiplied else None
    return made


def terms_of(function: Callable[..., Array], spans: Sequence[Span]) -> Callable[[], Array]:
    """What tells how many products there are in each element of a function's sums."""
    shapes = [span.value.shape for span in spans]
    return lambda: function(*map(np.ones, shapes))


def _applied(a: Arithmetic, ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = ufunc.__name__
    function = ufunc if method == "__call__" else getattr(ufunc, method)
    if ufunc.nout != 1 or method == "at":
        raise UnfollowedError(f"it calls numpy.{name}{'.at' if method == 'at' else ', which has several results'}")
    if method in {"__call__", "outer"}:
        if ufunc.signature is not None:
            return _known(a, multiplied, partial(function, **kwargs), inputs, {})
        if method == "__call__" and _is_square(name, inputs):
            name, function, inputs = "square", np.square, inputs[:1]
        if method == "__call__" and not kwargs and (stable := stable_form(name, inputs, a.log.stores)) is not None:
            a.log.forms.append(stable[0])
            return stable[1]
        operands = [followed(a, x) for x in inputs]
        span = elementwise(a, name, partial(function, **kwargs), [x.span for x in operands])
        if span.value.dtype.kind == "b" and span.exact:
            return span.value
        made = multiplied_out(a, name, span, operands if method == "__call__" else ())
        made.made = Made(name, tuple(inputs), a.log.stores)
        return made
    if name in GROWING:
        return _each(a, function, tuple(inputs), kwargs)
    return _reduced(a, ufunc, method, followed(a, inputs[0]), (inputs[1:], kwargs))


def multiplied_out(a: Arithmetic, name: str, span: Span, operands: Sequence[Followed]) -> Followed:
    """Make the result of an elementwise operation, which knows its factors if it is a product."""
    product = product_of(name, operands, a.log.stores) if operands else None
    shares = name == "divide" and bool(operands) and all(x.exponent for x in operands)
    if shares:
        span = of_shares(a, span, max(x.exponent for x in operands))
    if name in {"add", "subtract"} and len(operands) == 2:
        span = _begun_with(a, _begun_with(a, span, *operands), *operands[::-1])
    made = Followed(a, in_any_order(a, span, product))
    made.product, made.shares = product, shares
    if name == "exp" and operands:
        size = np.abs(operands[0].span.value)
        made.exponent = float(size.max(initial=0.0, where=np.isfinite(size)))
    return made


def _begun_with(a: Arithmetic, span: Span, x: Followed, start: Followed) -> Span:
    """The span of a sum of products and of what a kernel may begin it with: each term is rounded beside that."""
    if x.terms is None:
        return span
    size = np.abs(np.asarray(start.span.value, np.float64))
    nothing = (x.span.low == 0) & (x.span.high == 0)
    error = np.where(nothing | ~np.isfinite(size), 0.0, x.terms() * a.sums * size)
    return a.within_range(Span(span.value, span.low - error, span.high + error))


def _noted(a: Arithmetic, span: Span, name: str, operands: Sequence[Any], **where: Any) -> Followed:
    """A result that knows what it came of."""
    result = Followed(a, span)
    result.made = Made(name, tuple(operands), a.log.stores, **where)
    return result


def _is_square(name: str, inputs: Sequence[Any]) -> bool:
    """Whether two spans are one number's, which has no two limits at a time."""
    if name == "multiply":
        return inputs[0] is inputs[1]
    return name == "power" and isinstance(inputs[1], int | float) and inputs[1] == 2


def _reduced(
    a: Arithmetic, ufunc: np.ufunc, method: str, x: Followed, rest: tuple[Sequence[Any], dict[str, Any]]
) -> Any:
    """Sums and products along an axis; anything else (and, or, logaddexp) is tried."""
    function = partial(_call_with, getattr(ufunc, method), rest)
    if ufunc is np.add:
        named = rest[1] if method == "reduce" and not rest[0] else {}
        where = {"axis": named.get("axis", 0), "keepdims": bool(named.get("keepdims"))}
        total = _noted(a, summed(a, function, x.span), "sum" if method == "reduce" else "", (x,), **where)
        total.exponent = x.exponent
        return total
    if ufunc is np.multiply:
        count = partial(_call_with, getattr(np.add, method), rest)
        return Followed(a, multiplied(a, function, [x.span], count))
    if x.span.value.dtype.kind == "b" or ufunc.__name__.startswith("logical"):
        return function(x.span.value)
    return Followed(a, tried(a, function, [x.span]))


def _call_with(function: Callable[..., Any], rest: tuple[Sequence[Any], dict[str, Any]], x: Array) -> Array:
    return np.asarray(function(x, *rest[0], **rest[1]))
