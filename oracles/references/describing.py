"""What a reference takes and gives: from a table, from annotations, or from examples whose equal extents are probed.

A description is JSON: axes, dtypes and ranges of inputs and weights, the range of each dimension, dtypes of outputs,
and which arguments of a module's class are dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.inputs.arguments import Argument
from kernel_assay.corpus.inputs.structures import seen_structure
from kernel_assay.oracles.references.description import SMALL, Described, Tensor, safe_name, usual_range
from kernel_assay.oracles.references.examples import Example
from kernel_assay.oracles.references.grammar import Said, is_tensor, mask, numbers_of, tensors_of
from kernel_assay.oracles.references.loading import Loaded, UnfitError
from kernel_assay.oracles.references.probing import Probe, init_parameters
from kernel_assay.oracles.spec.axes import dims_in, shape_of

FLOATS = ("float32", "float16", "bfloat16", "float64")
MOST_TRIED = 200
"""Extents with which a module is tried that a table describes."""
FEW_TO_SEE = 16
"""Elements of an example of floats, at least, whose two numbers are all that there are."""
ADVICE = 'give the file get_inputs(), or a table such as INPUTS = {"x": "float32[rows, cols]"}'


def describe(loaded: Loaded, run: Callable[[Described, Mapping[str, int]], Any]) -> Described:
    """Describe a reference. run: runs it on small random inputs of some extents; raises what it raises.

    Raises UsageError for a reference whose inputs nobody describes, and for what cannot be expressed.
    """
    init = [
        _plain(value, f"argument {n} of {loaded.target.__name__}")
        for n, value in enumerate(loaded.examples("get_init_inputs"))
    ]
    table = {} if loaded.given else _table(loaded, "INPUTS", '{"x": "float32[rows, cols]"}') or _annotated(loaded)
    if loaded.is_module and not init and any(p.default is p.empty for p in init_parameters(loaded)):
        raise UsageError(f"{loaded.place}: {loaded.target.__name__} takes arguments; give the file get_init_inputs()")
    found = _from_table(loaded, table, init, run) if table else _from_examples(loaded, init, run)
    _defaults(loaded, found)
    for name, said in _table(loaded, "DIMS", '{"rows": (1, 64)}').items():
        ends = (said, said) if type(said) is int else said
        form = isinstance(ends, tuple | list) and len(ends) in {2, 3} and all(type(n) is int for n in ends)
        if not form or not 0 <= ends[0] <= ends[1] or ends[-1] < 1:
            raise UsageError(
                f"{loaded.place}: DIMS[{name!r}] = {said!r} must be an extent, or the least and the largest, and what "
                "it is a multiple of, if anything"
            )
        if name not in found.dims:
            raise UsageError(f"{loaded.place}: DIMS names {name!r}, which is none of {', '.join(found.dims)}")
        found.dims[name] = tuple(ends)
        low, high, multiple = (*ends, 1)[:3]
        near = min(max(found.example.get(name, low), low), high)
        found.example[name] = max(-(-low // multiple), near // multiple) * multiple
    found.shapes += _named_shapes(loaded, found)
    return found


def _table(loaded: Loaded, name: str, usual: str) -> dict[str, Any]:
    """Read what the file says of several names; usual: what that may look like. Raises UsageError."""
    said = loaded.said(name) or {}
    if not isinstance(said, Mapping):
        raise UsageError(
            f"{loaded.place}: {name} is of the type {type(said).__name__}, not a dict; write {name} = {usual}, say"
        )
    return dict(said)


def _named_shapes(loaded: Loaded, found: Described) -> list[dict[str, int]]:
    """Extents that the file lists itself. Raises UsageError."""
    fixed = {name: ends[0] for name, ends in found.dims.items() if ends[0] == ends[1]}
    listed = loaded.said("SHAPES") or []
    if not isinstance(listed, list | tuple) or not all(isinstance(one, Mapping) for one in listed):
        raise UsageError(f"{loaded.place}: SHAPES is no list of dicts; write SHAPES = [{{'rows': 8}}], say")
    shapes = [{**fixed, **one} for one in listed]
    for one in shapes:
        if set(one) != set(found.dims) or any(type(n) is not int or n < 0 for n in one.values()):
            raise UsageError(
                f"{loaded.place}: SHAPES has {one}, which must give {', '.join(found.dims)} an extent each"
            )
    return shapes


def _plain(value: Any, what: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(x, bool | int | float | str) for x in value):
        return list(value)
    raise UsageError(f"{what} is a {type(value).__name__}; it must be a number, a string or a list of them")


def _annotated(loaded: Loaded) -> dict[str, str]:
    """Words of annotations; none, if none is about a tensor."""
    found = {p.name: p.annotation.strip("'\"") for p in loaded.parameters if isinstance(p.annotation, str)}
    for name, text in found.items():
        if not is_tensor(text) and text.removeprefix("list[").partition("[")[0] in FORMATS:  # nobody else writes that
            tensors_of(loaded.place, name, text)
    numbers = [name for name, text in found.items() if ".." in text and numbers_of(loaded.place, name, text)]
    said = {name: text for name, text in found.items() if is_tensor(text) or name in numbers}
    return said if any(map(is_tensor, said.values())) else {}


def _defaults(loaded: Loaded, found: Described) -> None:
    """Parameters of a function that nobody describes are attributes with one value, if they have a plain default."""
    known = {*(t.name for t in found.tensors), *(one.name for one in found.arguments)}
    found.untold = [p.name for p in loaded.parameters if p.default is None and p.name not in {*known, *found.attrs}]
    for p in loaded.parameters if not loaded.is_module else ():
        plain = isinstance(p.default, bool | int | str) or (isinstance(p.default, float) and math.isfinite(p.default))
        if plain and p.name not in found.attrs and p.name not in known:
            found.attrs[p.name] = p.default
        if plain and p.name in found.attrs:
            found.optional.add(p.name)


def _from_table(
    loaded: Loaded, table: Mapping[str, Any], init: list[Any], run: Callable[[Described, Mapping[str, int]], Any]
) -> Described:
    """Axes, dtypes and ranges in words: `float32[rows, cols] 0..1`, `int64[n] < vocab`."""
    names = [p.name for p in loaded.parameters if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL}]
    needed = [p.name for p in loaded.parameters if p.default is p.empty and p.name in names]
    weights = loaded.weights(init)
    if lost := [name for name in needed if name not in table]:
        raise UsageError(f"{loaded.place}: nothing says what its input {lost[0]!r} is; {ADVICE}")
    if lost := [name for name in table if name not in names and safe_name(name) not in map(safe_name, weights)]:
        raise UsageError(f"{loaded.place}: INPUTS names {lost[0]!r}, which the reference does not take")
    found, divided = Described([], init=init), dict[str, str]()
    for name in [*(n for n in names if n in table)]:
        default = next(p.default for p in loaded.parameters if p.name == name)
        if isinstance(table[name], str) and (values := numbers_of(loaded.place, name, table[name])):
            first = [default] if isinstance(default, bool | int | float) else []
            found.tried[name] = list(dict.fromkeys([*first, *values]))
            found.attrs[name] = found.tried[name][0]
        elif isinstance(table[name], str):
            said = tensors_of(loaded.place, name, table[name])
            _enter(loaded, found, said)
            divided |= {name: said.divides} if said.divides else {}
            found.optional |= {one.name for one in said.tensors} if default is None else said.optional
        else:
            found.attrs[name] = _plain(table[name], f"{loaded.place}: INPUTS[{name!r}]")
    _divide(loaded, found, divided)
    for name, value in weights.items():
        axes = [str(n) for n in value.shape]
        found.tensors.append(Tensor(safe_name(name), axes, _main(found), weight=name, shape=tuple(value.shape)))
    known = [d for t in found.tensors for axis in t.axes for d in dims_in(axis)]
    if odd := [t for t in found.tensors if t.below and t.below not in known]:
        raise UsageError(f"{loaded.place}: {odd[0].name} < {odd[0].below}, which is no axis of any input")
    if not found.tensors:
        raise UsageError(f"{loaded.place}: no input is a tensor; {ADVICE}")
    _ranges(found, dict.fromkeys(known))
    whole = all(axis.isidentifier() or axis.isdigit() for t in found.tensors for axis in t.axes)
    return _with_weights(loaded, found, run) if weights and whole else found


def _with_weights(loaded: Loaded, found: Described, run: Callable[[Described, Mapping[str, int]], Any]) -> Described:
    """Find which of the extents that a table names are those of weights, by asking the module."""
    if (example := _working(found, run)) is None:
        return found
    said = {t.name: (t.axes, t.low, t.high, t.below) for t in found.tensors}
    for t in found.tensors:
        t.axes, t.shape = [], t.shape if t.weight else shape_of(t.axes, example, {})
    Probe(loaded, found, run).named()
    names = dict[str, str]()
    for t in found.tensors:
        axes, t.low, t.high, t.below = said[t.name]
        if not t.weight:
            named = [pair for pair in zip(t.axes, axes, strict=True) if all(map(str.isidentifier, pair))]
            names = {**dict(named), **names}
    for t in found.tensors:
        t.axes = ["*".join(names.get(part, part) for part in axis.split("*")) for axis in t.axes]
    found.init_dims = {i: names.get(dim, dim) for i, dim in found.init_dims.items()}
    found.example = {names.get(dim, dim): n for dim, n in found.example.items()}
    found.dims = {names.get(dim, dim): ends for dim, ends in found.dims.items()}
    found.shapes = []
    return found


def _working(found: Described, run: Callable[[Described, Mapping[str, int]], Any]) -> dict[str, int] | None:
    """Extents with which a module runs: some of them are those of its weights, or what its class was given."""
    sizes = {n for t in found.tensors if t.weight for n in t.shape} | {
        n for n in found.init if type(n) is int and n > 0
    }
    tried: list[dict[str, int]] = [{}, *({dim: n} for dim in found.example for n in sorted(sizes))]
    tried += [{**one, **other} for one, other in combinations(tried[1:], 2) if one.keys() != other.keys()]
    for changes in tried[:MOST_TRIED]:
        try:
            run(found, {**found.example, **changes})
        except UnfitError:
            raise
        except (Exception, SystemExit):  # noqa: BLE001, S112  a user's own code
            continue
        return {**found.example, **changes}
    return None


def _enter(loaded: Loaded, found: Described, said: Said) -> None:
    """Add an input. Raises UsageError for one that a module cannot change in place."""
    found.tensors += said.tensors
    if said.argument is not None:
        found.arguments.append(said.argument)
        if said.argument.inout and loaded.is_module:
            raise UsageError(f"{loaded.place}: {said.argument.name} is inout, which only a function's input can be")


def _divide(loaded: Loaded, found: Described, divided: Mapping[str, str]) -> None:
    """Find the axes that offsets divide. Raises UsageError."""
    always = [t for t in found.tensors if t.name not in found.optional and t.name not in divided]
    places = {axis: (t.name, i) for t in always for i, axis in enumerate(t.axes)}
    for name, dim in divided.items():
        if dim not in places:
            raise UsageError(f"{loaded.place}: {name} has offsets of {dim}, which is no axis of any other input")
        at = next(i for i, one in enumerate(found.arguments) if one.name == name)
        found.arguments[at] = replace(found.arguments[at], divides=places[dim])


def _main(found: Described) -> str:
    return next((t.dtype for t in found.tensors if format_of(t.dtype).is_float), "float32")


def _ranges(found: Described, names: Mapping[str, Any]) -> None:
    found.dims = dict.fromkeys(names, usual_range(len(names)))
    found.example = {name: SMALL[i % len(SMALL)] for i, name in enumerate(names)}


def _dtype_of(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _from_examples(loaded: Loaded, init: list[Any], run: Callable[[Described, Mapping[str, int]], Any]) -> Described:
    examples = loaded.examples("get_inputs")
    if not examples:
        raise UsageError(f"{loaded.place}: nothing says what its inputs are; {ADVICE}")
    names = _names_for(loaded, examples)
    found = Described([], init=init)
    for name, value in zip(names, examples, strict=True):
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            _enter(loaded, found, _from_example(loaded, name, value))
            found.optional |= {name} & {p.name for p in loaded.parameters if p.default is None}
        elif isinstance(value, list | tuple) and value and all(hasattr(x, "dtype") for x in value):
            made = [_from_example(loaded, f"{name}_{i}", one) for i, one in enumerate(value)]
            if any(one.argument for one in made):
                raise UsageError(f"{loaded.place}: its input {name!r} is a list of bool; a list has numbers")
            tensors = [t for one in made for t in one.tensors]
            _enter(loaded, found, Said(tensors, Argument(name, "list", tuple(t.name for t in tensors))))
        elif isinstance(value, list | tuple | dict) and not all(isinstance(x, int | float | str) for x in value):
            raise UsageError(
                f"{loaded.place}: its input {name!r} is a {type(value).__name__}; only tensors and numbers can be"
            )
        elif value is None:
            raise UsageError(f"{loaded.place}: its input {name!r} is None; leave it out of get_inputs()")
        else:
            found.attrs[name] = _plain(value, f"{loaded.place}: its input {name!r}")
    for name, value in loaded.weights(init).items():
        safe = safe_name(name) + ("_" if any(t.name == safe_name(name) for t in found.tensors) else "")
        found.tensors.append(Tensor(safe, [], _main(found), weight=name, shape=tuple(value.shape)))
    if not found.tensors:
        raise UsageError(f"{loaded.place}: get_inputs() gives no tensor; {ADVICE}")
    return Probe(loaded, found, run).named()


def _names_for(loaded: Loaded, examples: Sequence[Any]) -> list[str]:
    names = [p.name for p in loaded.parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    if any(p.kind is p.VAR_POSITIONAL for p in loaded.parameters):
        names += [f"x{i}" for i in range(len(examples))]
    if len(names) < len(examples):
        raise UsageError(
            f"{loaded.place}: get_inputs() gives {len(examples)} inputs, but the reference takes {len(names)}"
        )
    return names[: len(examples)]


def _from_example(loaded: Loaded, name: str, value: Any) -> Said:
    dtype = _dtype_of(value)
    if dtype == "bool":
        return mask(Tensor(name, [], dtype, shape=tuple(value.shape)))
    if dtype not in FORMATS:
        raise UsageError(f"{loaded.place}: its input {name!r} is {dtype}, which is none of {', '.join(FORMATS)}")
    tensor = Tensor(name, [], dtype, shape=tuple(value.shape))
    if not format_of(dtype).is_float and 0 not in tensor.shape:
        tensor.low, tensor.high = float(value.min()), float(value.max())
    elif math.prod(tensor.shape) >= FEW_TO_SEE and not isinstance(value, Example):
        low, high = float(value.min()), float(value.max())
        if low < high and math.isfinite(high - low) and bool(((value == low) | (value == high)).all()):
            tensor.low, tensor.high, tensor.two = low, high, True
    if math.prod(tensor.shape) >= FEW_TO_SEE and not isinstance(value, Example):
        tensor.structure = seen_structure(value)
    return Said([tensor])
