"""The part of pydantic that a worker's records need.

Nothing is validated: what a worker reads was written by the tool from records that were. Fields get the types that
their annotations say, which JSON does not keep.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from enum import Enum
from inspect import get_annotations
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

NonNegativeInt = PositiveInt = int
PositiveFloat = float
ConfigDict = dict
_NEEDED = object()


class ValidationError(ValueError):
    """Never raised."""


@dataclass(frozen=True)
class BeforeValidator:
    """A function that a value goes through first."""

    func: Callable[[Any], Any]


@dataclass(frozen=True)
class FieldInfo:
    """What is known of a field beside its type."""

    default: Any = _NEEDED
    exclude_if: Callable[[Any], bool] | None = None


def Field(default: Any = _NEEDED, *, exclude_if: Callable[[Any], bool] | None = None, **_: Any) -> Any:  # noqa: N802
    """A field with a default, which is not written where `exclude_if` says so."""
    return FieldInfo(default, exclude_if)


def field_validator(*_: str, **__: Any) -> Callable[[Any], Any]:
    """A mark on a method that checks fields, which nobody calls here."""
    return lambda method: method


class BaseModel:
    """A record."""

    model_config: ClassVar[dict[str, Any]] = {}
    model_fields: ClassVar[dict[str, FieldInfo]] = {}

    def __init_subclass__(cls) -> None:
        """Note the fields, those of the classes above first."""
        cls.model_fields = dict(cls.model_fields)
        for name in get_annotations(cls):
            if name.startswith(("_", "model_")):
                continue
            given = cls.__dict__.get(name, _NEEDED)
            cls.model_fields[name] = given if isinstance(given, FieldInfo) else FieldInfo(given)
            if given is not _NEEDED:
                delattr(cls, name)

    def __init__(self, **given: Any) -> None:
        """Give each field its value, or a copy of its default."""
        kind = type(self)
        types = vars(kind).get("_types")
        if types is None:  # only now is all defined that annotations name
            types = get_type_hints(kind, include_extras=True)
            type.__setattr__(kind, "_types", types)
        self.model_extra = {name: given[name] for name in given.keys() - kind.model_fields.keys()}
        if self.model_extra and kind.model_config.get("extra") != "allow":
            raise TypeError(f"{kind.__name__} has no {min(self.model_extra)}")
        for name, field in kind.model_fields.items():
            if name not in given and field.default is _NEEDED:
                raise TypeError(f"{kind.__name__} needs {name}")
            self.__dict__[name] = _typed(types[name], given[name]) if name in given else copy(field.default)

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        """A record from what JSON says of it, or the record itself."""
        return data if isinstance(data, cls) else cls(**data)

    def model_dump(self, *, mode: str = "python", exclude_defaults: bool = False) -> dict[str, Any]:
        """The fields, and those of records in them; in mode `json` as JSON has them."""
        said = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            left_out = field.exclude_if is not None and field.exclude_if(value)
            if not left_out and not (exclude_defaults and value == field.default):
                said[name] = _dumped(value, mode, exclude_defaults=exclude_defaults)
        return said

    def __repr__(self) -> str:
        """The text that would make it."""
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in type(self).model_fields)})"


BaseModel.__annotations__ = {}  # they are no fields, and its module is another's once it is handed back


def _dumped(value: Any, mode: str, *, exclude_defaults: bool) -> Any:
    def again(one: Any) -> Any:
        return _dumped(one, mode, exclude_defaults=exclude_defaults)

    if isinstance(value, BaseModel):
        return value.model_dump(mode=mode, exclude_defaults=exclude_defaults)
    if isinstance(value, dict):
        return {key: again(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [*map(again, value)] if mode == "json" or isinstance(value, list) else tuple(map(again, value))
    if mode == "json" and isinstance(value, Enum):
        return value.value
    if mode == "json" and isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    return value


def _typed(hint: Any, value: Any) -> Any:
    """A value as an annotation wants it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        for one in args[1:]:
            value = one.func(value) if isinstance(one, BeforeValidator) else value
        hint, origin, args = args[0], get_origin(args[0]), get_args(args[0])
    if origin in {Union, UnionType}:
        made = [a for a in args if isinstance(a, type) and issubclass(a, BaseModel | Enum)]
        return _typed(made[0], value) if made and value is not None else value
    if origin in {tuple, list}:
        kinds = args if origin is tuple and args[-1] is not ... else args[:1] * len(value)
        return origin(_typed(kind, one) for kind, one in zip(kinds, value, strict=True))
    if origin is dict:
        return {_typed(args[0], key): _typed(args[1], one) for key, one in value.items()}
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint.model_validate(value)
    return hint(value) if isinstance(hint, type) and (issubclass(hint, Enum) or hint is float) else value
