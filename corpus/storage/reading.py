"""Records from JSON that anybody may have edited: read, brought up to date, checked, or refused in one sentence."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.case import TOKEN, Case
from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.storage.golden_record import Golden
from kernel_assay.corpus.storage.migrate import upgrade
from kernel_assay.corpus.storage.saved_outputs import Kept

_R = TypeVar("_R", bound=Record)


def load_record(path: Path) -> Case | Finding:
    """A finding or a bare case from a JSON file, for replay.

    Raises UsageError in one sentence for a file that is missing, is not JSON, is neither record, has a wrong field,
    has a newer schema, or was made for another version of the recipe language (its inputs would differ).
    """
    raw = read_object(path)
    if "signature" in raw:
        return record_from(raw, Finding, str(path))
    if "tensors" in raw:
        return record_from(raw, Case, str(path))
    raise UsageError(f"{path} is neither a finding (it has no signature) nor a case (it has no tensors)")


def read_record(path: Path, model: type[_R]) -> _R:
    """The record of this kind in a JSON file. Raises UsageError as load_record does."""
    return record_from(read_object(path), model, str(path))


def record_of(text: str, model: type[_R], where: str) -> _R:
    """The record of this kind in one line of JSON. Raises UsageError, which names where, as load_record does."""
    return record_from(_object(text, where), model, where)


def read_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. Raises UsageError if there is none."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not JSON: it is no UTF-8 text") from None
    return _object(text, str(path))


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{where} holds no JSON object, so no record")
    return raw


def record_from(raw: dict[str, Any], model: type[_R], where: str) -> _R:
    """The record of this kind in JSON data. Raises UsageError, which names where, as load_record does."""
    kind = model.__name__.lower()
    try:
        record = model.model_validate(upgrade(raw, kind))
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UsageError(f"{where} is not a valid {kind}: {field}: {first['msg']}") from None
    _refuse_drifted(record, where)
    return record


def _refuse_drifted(record: Record, where: str) -> None:
    """A recipe of another generator must not be materialized by this one."""
    cases: tuple[Record, ...] = (record,)
    if isinstance(record, Finding):
        cases = (record.case, record.original, *record.before)
    elif isinstance(record, Kept):
        cases = (record.case,)
    elif isinstance(record, Golden):
        cases = tuple(one.case for one in record.cases)
    for case in cases:
        if isinstance(case, Case):
            case.refuse_drifted(where)


def case_of(token: str) -> Case:
    """The case of a token. Raises UsageError for a word that is none, is cut off, or is of another generator."""
    packed = token.removeprefix(TOKEN)
    try:
        text = zlib.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
        case = Case.model_validate(upgrade(json.loads(text), "case"))
    except (ValueError, TypeError, RecursionError, UsageError, zlib.error) as error:
        raise UsageError(f"{token[:40]!r} is no case; it may have been cut off when it was copied") from error
    case.refuse_drifted(f"the case {token[:40]!r}")
    return case
