"""Functions of ours as text that stands alone: with everything they call, without types and registrations.

A reproducer must run where Kernel Assay is not installed. What a recipe means is taken from the functions that define
it, so that there is no second definition that could differ.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

from kernel_assay.corpus.errors import InternalError

_REMARK = re.compile(r"  # (noqa|type: ignore).*$", re.MULTILINE)
"""What a linter or a type checker is told concerns nobody elsewhere."""

Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
Place = tuple[str, str]
"""A module, and a name it defines."""
Edit = tuple[int, int, str]
"""Bytes from .. to .. of a module, and what stands there instead."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text that stands alone."""

    imports: tuple[str, ...]
    """Lines for the head of the file."""
    blocks: tuple[str, ...]
    """Definitions: constants, then functions and classes, callers before what they call."""


@dataclass(frozen=True, slots=True)
class _Module:
    name: str
    source: bytes
    starts: tuple[int, ...]
    """Where each line begins."""
    definitions: dict[str, Definition]
    imported: dict[str, tuple[str, str]]
    """Name here -> module, and the name there (or an empty string for the module itself)."""


@dataclass(slots=True)
class _Gathering:
    instead: Mapping[Place, str]
    found: dict[Place, Definition] = field(default_factory=dict)
    imports: dict[str, None] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    """Every attribute that is used somewhere: of a class, only methods with these names are kept."""


def excerpt(roots: Iterable[Place], instead: Mapping[Place, str] | None = None) -> Excerpt:
    """The definitions of these names and of all they need, transitively.

    instead: text that takes the place of a definition and needs nothing else.
    Raises InternalError for a name that its module does not define.
    """
    return _excerpt(tuple(roots), tuple((instead or {}).items()))


@cache
def _excerpt(roots: tuple[Place, ...], instead: tuple[tuple[Place, str], ...]) -> Excerpt:
    gathering, size = _Gathering(dict(instead)), -1
    while size != len(gathering.attributes):  # a method kept may call for further ones
        size = len(gathering.attributes)
        gathering.found.clear()
        for module, name in roots:
            _gather(gathering, module, name)
    constants = {p: n for p, n in gathering.found.items() if isinstance(n, ast.Assign | ast.AnnAssign)}
    plain = [
        _text(p, n, gathering) for p, n in sorted(constants.items(), key=lambda item: (item[0][0], item[1].lineno))
    ]
    rest = [_text(p, n, gathering) for p, n in gathering.found.items() if p not in constants]
    return Excerpt(tuple(gathering.imports), (*(["\n".join(plain)] if plain else []), *rest))


@cache
def _module(name: str) -> _Module:
    text = inspect.getsource(import_module(name))
    tree = ast.parse(text)
    source = text.encode()
    starts = [0, *(i + 1 for i, byte in enumerate(source) if byte == ord("\n"))]
    definitions: dict[str, Definition] = {}
    for node in tree.body:
        if isinstance(node, Definition):
            definitions |= dict.fromkeys(_names(node), node)
    return _Module(name, source, tuple(starts), definitions, dict(_imported(tree)))


def _names(node: Definition) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]


def _imported(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, (alias.name, "")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((alias.asname or alias.name, (node.module, alias.name)) for alias in node.names)


def _gather(gathering: _Gathering, module: str, name: str) -> None:
    m = _module(module)
    node = m.definitions.get(name)
    if node is None:
        raise InternalError(f"{module} does not define {name!r}")
    if any(found is node for found in gathering.found.values()):
        return
    gathering.found[module, name] = node
    if (module, name) in gathering.instead:
        return
    for part in _parts(node, gathering.attributes):
        for used in _used(part):
            if isinstance(used, ast.Attribute):
                gathering.attributes.add(used.attr)
            elif used.id in m.definitions:
                _gather(gathering, module, used.id)
            elif used.id in m.imported:
                _import(gathering, *m.imported[used.id], used.id)


def _import(gathering: _Gathering, module: str, there: str, here: str) -> None:
    if module.partition(".")[0] == "kernel_assay":
        _gather(gathering, module, there)
        return
    renamed = f" as {here}" if here not in {module, there} else ""
    gathering.imports[f"from {module} import {there}{renamed}" if there else f"import {module}{renamed}"] = None


def _parts(node: Definition, attributes: set[str]) -> list[ast.AST]:
    """The part of a definition that is kept: of a class only the methods somebody calls."""
    if not isinstance(node, ast.ClassDef):
        return [node]
    return [*node.bases, *_kept(node.decorator_list), *(part for part in node.body if not _idle(part, attributes))]


def _idle(part: ast.stmt, attributes: set[str]) -> bool:
    """Whether a statement of a class is a method that nobody calls."""
    return isinstance(part, ast.FunctionDef) and part.name not in attributes and not part.name.startswith("__")


def _used(node: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    """Names and attributes in what is executed: neither annotations nor our decorators."""
    if isinstance(node, ast.Name | ast.Attribute):
        yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns"}:
            continue
        children = value if isinstance(value, list) else [value]
        for child in _kept(children) if name == "decorator_list" else children:
            if isinstance(child, ast.AST):
                yield from _used(child)


_CUSTOMARY = {"dataclass", "cached_property", "property", "cache", "staticmethod", "classmethod"}


def _kept(decorators: list[ast.expr]) -> list[ast.expr]:
    """The decorators that mean something elsewhere, too."""
    return [d for d in decorators if getattr(d.func if isinstance(d, ast.Call) else d, "id", "") in _CUSTOMARY]


def _text(place: Place, node: Definition, gathering: _Gathering) -> str:
    if place in gathering.instead:
        return gathering.instead[place]
    m = _module(place[0])
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    start, stop = m.starts[first - 1], _end(m, node)
    text = m.source[start:stop]
    for begin, end, new in sorted(_edits(m, node, gathering.attributes), reverse=True):
        text = text[: begin - start] + new.encode() + text[end - start :]
    lines = _REMARK.sub("", text.decode()).splitlines()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


def _edits(m: _Module, node: ast.AST, attributes: set[str]) -> Iterator[Edit]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        kept = _kept(node.decorator_list)
        for decorator in node.decorator_list:
            if decorator not in kept:
                yield (m.starts[decorator.lineno - 1], m.starts[_last_line(decorator)], "")
    if isinstance(node, ast.ClassDef):
        yield from _class_edits(m, node, attributes)
        return
    if isinstance(node, ast.FunctionDef):
        yield from _signature_edits(m, node)
    for child in ast.walk(node):
        if isinstance(child, ast.AnnAssign):
            yield (_end(m, child.target), _end(m, child.annotation), "")


def _class_edits(m: _Module, node: ast.ClassDef, attributes: set[str]) -> Iterator[Edit]:
    for part in node.body:
        if _idle(part, attributes):
            assert isinstance(part, ast.FunctionDef)
            first = min([part.lineno, *(d.lineno for d in part.decorator_list)])
            yield (m.starts[first - 1], m.starts[_last_line(part)], "")
        elif isinstance(part, ast.AnnAssign):  # a dataclass needs an annotation, if only some
            known = all(hasattr(builtins, n.id) for n in ast.walk(part.annotation) if isinstance(n, ast.Name))
            if not known:
                yield (_start(m, part.annotation), _end(m, part.annotation), "object")
        else:
            yield from _edits(m, part, attributes)


def _signature_edits(m: _Module, node: ast.FunctionDef) -> Iterator[Edit]:
    a = node.args
    positional = [*a.posonlyargs, *a.args]
    pairs = list(zip(positional[len(positional) - len(a.defaults) :], a.defaults, strict=True))
    pairs += [(arg, d) for arg, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    defaults = {arg.arg: default for arg, default in pairs}
    for arg in [*positional, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]:
        if arg.annotation is None:
            continue
        default = defaults.get(arg.arg)
        stop = _end(m, arg.annotation) if default is None else _start(m, default)
        yield (_start(m, arg) + len(arg.arg.encode()), stop, "" if default is None else "=")
    if node.returns is not None:
        arrow = m.source.rfind(b"->", 0, _start(m, node.returns))
        yield (len(m.source[:arrow].rstrip()), _end(m, node.returns), "")


def _start(m: _Module, node: ast.expr | ast.arg) -> int:
    return m.starts[node.lineno - 1] + node.col_offset


def _end(m: _Module, node: ast.expr | ast.stmt) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return m.starts[node.end_lineno - 1] + node.end_col_offset


def _last_line(node: ast.expr | ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno
