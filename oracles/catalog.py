"""Find contracts by where their file lies: oracles/contracts/<op>.py defines CONTRACT. And take in a user's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from traceback import extract_tb
from types import ModuleType

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.reference_place import ReferencePlace
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.corpus.process.import_limit import import_limit
from kernel_assay.oracles import contracts
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.large.parts import check_separable
from kernel_assay.oracles.spec.axes import dims_in, shape_of
from kernel_assay.oracles.spec.contract import Contract

_OWN: dict[str, Contract] = {}
OF_RECORDS: set[str] = set()
"""Own ops that became known by records; the others were named by whoever has started this process."""
"""What users added, by name."""


@cache
def load_contracts() -> dict[str, Contract]:
    """All contracts by name. Raises InternalError if a file and its contract have different names."""
    found: dict[str, Contract] = {}
    for module in sorted(iter_modules(contracts.__path__), key=lambda m: m.name):
        contract: Contract = import_module(f"kernel_assay.oracles.contracts.{module.name}").CONTRACT
        if contract.name != module.name:
            raise InternalError(
                f"oracles/contracts/{module.name}.py must define {module.name!r}, not {contract.name!r}"
            )
        found[contract.name] = contract
    return found | _OWN


def contract_of(op: str) -> Contract:
    """The contract of an op. Raises UsageError for an unknown one."""
    known = load_contracts()
    if op not in known:
        raise UsageError(f"op {op!r} is not known; the known ones are {', '.join(known)}")
    return known[op]


def origin_of(op: str) -> str:
    """File of a user's own contract of an op; an empty string for a built-in one, and for an op that is not known."""
    return _OWN[op].origin if op in _OWN else ""


def add_contract(path: Path) -> Contract:
    """Execute a contract file from anywhere and enter its CONTRACT for this process, before a built-in one.

    Raises UsageError if the file is missing, does not run, or defines no contract that could be used, and if another
    file has already defined the op. The same file again is read again.
    """
    file = path.resolve()
    if not file.is_file():
        raise UsageError(f"the contract {path} does not exist")
    contract = getattr(_executed(file), "CONTRACT", None)
    if not isinstance(contract, Contract):
        what = "no CONTRACT" if contract is None else f"a CONTRACT of type {type(contract).__name__}"
        raise UsageError(
            f"{path} defines {what}; it must define CONTRACT = Contract(...) of kernel_assay.oracles.spec.contract"
        )
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", contract.name):
        raise UsageError(f"{path}: the op's name must be a word of letters, digits and _, not {contract.name!r}")
    contract = replace(contract, origin=str(file))
    _must_fit(contract)
    _must_part(contract)
    _must_answer(contract)
    return enter(contract)


def enter(contract: Contract) -> Contract:
    """Make a user's own contract known to this process. Raises UsageError if its op is defined elsewhere already."""
    other = origin_of(contract.name)
    if other and apart(other) != apart(contract.origin):
        raise UsageError(f"op {contract.name!r} is defined twice: {apart(other)} and {apart(contract.origin)}")
    _OWN[contract.name] = contract
    load_contracts.cache_clear()
    return contract


def apart(origin: str) -> str:
    """Where it stands; a reference that was edited stands where it did."""
    place = ReferencePlace.read(origin)
    return place.target if place else origin


def builtin_ops() -> frozenset[str]:
    """Names of the ops that come with the tool."""
    return frozenset(module.name for module in iter_modules(contracts.__path__))


def forget_contracts() -> None:
    """Undo every add_contract."""
    _OWN.clear()
    OF_RECORDS.clear()
    load_contracts.cache_clear()


def _executed(file: Path) -> ModuleType:
    """The module a file makes; never a stale one from a cache of byte code."""
    module = ModuleType(f"contract_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look up the module they are defined in
    with import_limit(file):
        try:
            exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102  a user's own file
        except (Exception, SystemExit) as error:
            said = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}{_moved(error)}"
            words = " ".join(said.split()).removesuffix(":")
            raise UsageError(f"{file} does not import: {words}{_line_of(error, file)}") from error
    return module


_MOVED = {
    "corpus.formats": "corpus.formats",
    "corpus.records": "corpus.model.case",
    "oracles.axes": "oracles.spec.axes",
    "oracles.balls": "oracles.spec.balls",
    "oracles.bounds": "oracles.numerics.bounds",
    "oracles.contract": "oracles.spec.contract",
    "oracles.products": "oracles.numerics.products",
    "oracles.relations": "oracles.spec.law_library",
}
"""Modules that contracts import, as they were called until 0.2, and their names below `kernel_assay` now."""


def _moved(error: BaseException) -> str:
    """The import that a contract written for 0.1 should have, if that is what is wrong with it."""
    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    old = next((one for one in _MOVED if one == name or one.startswith(f"{name}.")), "") if name else ""
    return f"; since 0.2 {name if name in _MOVED else old} is kernel_assay.{_MOVED[old]}" if old else ""


def _line_of(error: BaseException, file: Path) -> str:
    """` (line 7)`: where in the file it came up; a SyntaxError says it itself."""
    if isinstance(error, SyntaxError):
        return ""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f" (line {lines[-1]})" if lines else ""


def _must_fit(contract: Contract) -> None:
    """Raises UsageError where the parts of a contract contradict one another."""
    where = contract.origin
    if not contract.variants or not contract.inputs or not contract.outputs:
        raise UsageError(f"{where}: a contract needs at least one input, one output and one variant")
    known = {d for tensor in contract.inputs.values() for axis in tensor.axes for d in dims_in(axis)}
    asked = {d for tensor in contract.outputs.values() for axis in tensor.axes for d in dims_in(axis)}
    asked |= {d for i in contract.inputs.values() for d in (i.below, i.upto) if d}
    if lost := sorted((known - set(contract.dims)) | (asked - known)):
        raise UsageError(f"{where}: dimension {lost[0]!r} must be one of the dims and an axis of an input")
    if none := next((name for name, dim in contract.dims.items() if dim.least > dim.most), ""):
        dim = contract.dims[none]
        raise UsageError(
            f"{where}: no multiple of {dim.multiple} lies in {dim.low} to {dim.high}, the range of {none!r}"
        )
    if not contract.factor >= 1.0:
        raise UsageError(f"{where}: the factor of an estimated budget must be at least 1, not {contract.factor}")
    for name, out in contract.outputs.items():
        if out.like not in contract.inputs and (out.like or not out.dtype):
            raise UsageError(f"{where}: output {name!r} must be like one of the inputs, or have a dtype")
    if unknown := sorted(set(contract.optional) - set(contract.attrs) - set(contract.inputs)):
        raise UsageError(f"{where}: optional names {unknown[0]!r}, which is neither an input nor an attribute")
    for variant in contract.variants:
        if set(variant) != set(contract.inputs):
            raise UsageError(
                f"{where}: the variant {dict(variant)} must give a dtype to each input, and to nothing else"
            )


def _must_part(contract: Contract) -> None:
    """Raises UsageError for separable dims that there are not."""
    if unknown := sorted(set(contract.separable) - set(contract.dims)):
        raise UsageError(f"{contract.origin}: separable names {unknown[0]!r}, which must be one of the dims")
    if unknown := sorted(set(contract.placed) - set(contract.separable)):
        raise UsageError(f"{contract.origin}: placed names {unknown[0]!r}, which must be separable")


def _must_answer(contract: Contract) -> None:
    """Raises UsageError if the reference or the budget fails on smallest or on small inputs of any variant."""
    smallest = {name: dim.least for name, dim in contract.dims.items()}
    small = {name: max(dim.least, min(2 * dim.multiple, dim.most)) for name, dim in contract.dims.items()}
    for variant in contract.variants:
        for dims in (smallest, small):
            case = _sample(contract, variant, dims)
            try:
                inputs = materialize_all(case)
                for spec in contract.output_specs(case).values():
                    format_of(spec.dtype)
            except (UsageError, KeyError) as error:
                raise UsageError(f"{contract.origin}: {error}") from error
            reference = Reference(contract, case, inputs)
            reference.budget(Numerics())
            check_separable(reference)


def _sample(contract: Contract, variant: Mapping[str, str], dims: Mapping[str, int]) -> Case:
    tensors, attrs = {}, {name: values[0] for name, values in contract.attrs.items()}
    for name, spec in contract.inputs.items():
        usual = "between" if spec.ranged else "blocks" if spec.packed else "uniform"
        fill = Fill(distribution=(spec.distributions or (usual,))[0], params=spec.params(dims, attrs))
        tensors[name] = TensorRecipe(shape=shape_of(spec.axes, dims, attrs), dtype=variant[name], fill=fill)
    return Case(op=contract.name, tensors=tensors, attrs=attrs)
