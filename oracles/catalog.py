"""Find contracts by where their file lies: oracles/contracts/<op>.py defines CONTRACT."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from corpus.errors import InternalError, UsageError
from oracles import contracts
from oracles.contract import Contract


@cache
def load_contracts() -> dict[str, Contract]:
    """All contracts by name. Raises InternalError if a file and its contract have different names."""
    found: dict[str, Contract] = {}
    for module in sorted(iter_modules(contracts.__path__), key=lambda m: m.name):
        contract: Contract = import_module(f"oracles.contracts.{module.name}").CONTRACT
        if contract.name != module.name:
            raise InternalError(
                f"oracles/contracts/{module.name}.py must define {module.name!r}, not {contract.name!r}"
            )
        found[contract.name] = contract
    return found


def contract_of(op: str) -> Contract:
    """The contract of an op. Raises UsageError for an unknown one."""
    known = load_contracts()
    if op not in known:
        raise UsageError(f"op {op!r} is not known; the known ones are {', '.join(known)}")
    return known[op]
