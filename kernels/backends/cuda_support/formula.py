"""Small computations in text, such as ceil_div(rows * cols, 256): read from the syntax tree, nothing is executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kernel_assay.corpus.formats import Array
from kernel_assay.kernels.backends.support.python_syntax import PARSING

LANGUAGE = (
    "numbers, names, 'text', + - * / // %, comparisons, and, or, not, min, max, ceil_div(a, b), "
    "x.shape[0], x.strides[0], x.size and x.address"
)

Scope = Mapping[str, Any]
"""What names stand for: numbers and texts, and tensors (arrays)."""
Value = Callable[[Scope], Any]
_SHOWN = 60


class FractionError(ValueError):
    """A number that must be an integer is none."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula, and what it speaks of."""

    key: str
    """Where it was written, for messages."""
    text: str
    names: frozenset[str]
    """Names whose value it uses."""
    tensors: frozenset[str]
    """Names of tensors whose shape, strides, size or address it uses."""
    strides: frozenset[tuple[str, int]]
    """Tensor and axis of every stride that it uses."""
    value: Value
    """Its value in a scope. Raises what the arithmetic raises."""

    def number(self, scope: Scope) -> int | float:
        """Evaluate it. Raises TypeError if it is no number."""
        value: int | float | str = self.value(scope)
        if isinstance(value, str):
            raise TypeError(f"{self.key}: {self.text} is text, {value!r}, not a number")
        return value

    def whole(self, scope: Scope) -> int:
        """Evaluate it. Raises FractionError if it is no integer."""
        value = self.number(scope)
        if int(value) != value:
            raise FractionError(f"{self.key}: {self.text} is {value}, not an integer")
        return int(value)


def parse_formula(key: str, text: str) -> Formula:
    """A formula. Raises ValueError if it has anything but what LANGUAGE names."""
    try:
        with PARSING:
            tree = ast.parse(text.strip(), mode="eval").body
        value = _compiled(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise ValueError(f"{shown!r} is no formula, which has {LANGUAGE} only") from error
    nodes = list(ast.walk(tree))
    bases = {id(n.value): n.value for n in nodes if isinstance(n, ast.Attribute)}
    functions = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    names = {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in {*bases, *functions}}
    tensors = {n.id for n in bases.values() if isinstance(n, ast.Name)}
    strides = {found for n in nodes if (found := _stride(n))}
    return Formula(key, text.strip(), frozenset(names), frozenset(tensors), frozenset(strides), value)


def _stride(node: ast.AST) -> tuple[str, int] | None:
    """The axis and the tensor of a stride, if it is one: the axis must be known before there is a case."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=tensor), attr="strides"), slice=index):
            with suppress(ValueError):
                axis = ast.literal_eval(index)
                return (tensor, axis) if type(axis) is int else None
    return None


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ALL, _ANY = (lambda *parts: all(parts)), (lambda *parts: any(parts))
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b)}
_FACTS: dict[str, Callable[[Array], int]] = {
    "size": lambda x: x.size,
    "address": lambda x: int(x.__array_interface__["data"][0]),
}


def _compiled(node: ast.expr) -> Value:
    """A function of the scope. Raises ValueError at the first thing that a formula may not have."""
    match node:
        case ast.Constant(value=int() | float() | str() as constant) if not isinstance(constant, bool):
            return lambda _: constant
        case ast.Name(id=name):
            return lambda scope: scope[name]
        case ast.Attribute(value=ast.Name(id=tensor), attr=fact) if fact in _FACTS:
            return _told(tensor, lambda x, _: _FACTS[fact](x))
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=tensor), attr="shape"), slice=index):
            axis = _compiled(index)
            return _told(tensor, lambda x, scope: x.shape[_axis_of(x, tensor, axis(scope))])
    if stride := _stride(node):
        tensor, number = stride
        return _told(tensor, lambda x, _: x.strides[_axis_of(x, tensor, number)] // x.itemsize)
    function, nodes = _operation(node)
    parts = [_compiled(n) for n in nodes]
    return lambda scope: function(*(part(scope) for part in parts))


def _told(tensor: str, fact: Callable[[Array, Scope], int]) -> Value:
    """Something of a tensor; 0 of an optional input in a case that lacks it."""
    return lambda scope: 0 if (x := scope.get(tensor)) is None else fact(x, scope)


def _axis_of(x: Array, tensor: str, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"a formula speaks of axis {axis} of {tensor}, which has {x.ndim}")
    return axis


def _operation(node: ast.expr) -> tuple[Callable[..., Any], list[ast.expr]]:
    """The operation, and what it is applied to."""
    match node:
        case ast.BinOp(left=a, op=op, right=b) | ast.Compare(left=a, ops=[op], comparators=[b]) if (
            type(op) in _OPERATORS
        ):
            return _OPERATORS[type(op)], [a, b]
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return operator.neg, [a]
        case ast.UnaryOp(op=ast.Not(), operand=a):
            return operator.not_, [a]
        case ast.BoolOp(op=op, values=parts):
            return _ALL if isinstance(op, ast.And) else _ANY, parts
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS and _takes(name, args):
            return _FUNCTIONS[name], args
    raise ValueError(type(node).__name__)


def _takes(function: str, arguments: list[ast.expr]) -> bool:
    return len(arguments) == 2 or (len(arguments) > 2 and function != "ceil_div")
