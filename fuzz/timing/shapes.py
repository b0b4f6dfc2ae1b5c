"""Shapes that are timed: sets that ship, by kind of op, and those of a file: a list of extents, or a recorded workload.

small and medium are what tutorials and benchmarks take; llama and mixtral are layers as models have them, with one
token and with many; edge has extents at which kernels change their path: ones, primes, one beside a power of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.workload import read_calls
from kernel_assay.fuzz.generation.model_shapes import Sizes, allowed, by_dims, elements_of, must_fit
from kernel_assay.fuzz.planning.workload import fit
from kernel_assay.oracles.spec.axes import Dims
from kernel_assay.oracles.spec.contract import Contract
from kernel_assay.oracles.spec.plain_case import plain_case

_LISTS = (".json", ".yaml", ".yml")
_ROOM = 1 << 20
"""Elements of the largest tensor of an op of one's own, where its author names no extents."""
USUAL = "medium"
"""The set that is timed if none is named."""

_SETS: dict[str, tuple[Sizes, Sizes, Sizes, Sizes, Sizes]] = {
    "small": (
        ((64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512)),
        ((64, 64), (128, 256), (256, 1024), (1024, 512)),
        ((1000, 64, 64), (4096, 256, 256)),
        ((64, 8, 32), (256, 8, 64)),
        ((1, 4, 1, 64, 64, 64), (1, 8, 1, 128, 128, 64), (2, 8, 1, 256, 256, 64)),
    ),
    "medium": (
        ((1024, 1024, 1024), (2048, 512, 2048), (2048, 2048, 2048)),
        ((1024, 1024), (2048, 2048), (4096, 4096), (16384, 1024)),
        ((32000, 512, 1024), (50257, 1024, 768)),
        ((1024, 16, 64), (2048, 32, 64)),
        ((1, 16, 1, 512, 512, 64), (4, 12, 1, 512, 512, 64), (1, 16, 1, 1024, 1024, 64)),
    ),
    "llama": (  # Llama 3 8B: hidden 4096, 32 heads of 128 on 8 heads of keys, feed-forward 14336, 128256 words
        (
            *((6144, 1, 4096), (4096, 1, 4096), (14336, 1, 4096), (4096, 1, 14336), (128256, 1, 4096)),
            *((6144, 512, 4096), (4096, 512, 4096), (14336, 512, 4096), (4096, 512, 14336), (14336, 2048, 4096)),
        ),
        ((1, 4096), (32, 4096), (512, 4096), (2048, 4096), (512, 14336), (2048, 14336), (1, 128256)),
        ((128256, 1, 4096), (128256, 512, 4096), (128256, 2048, 4096)),
        ((1, 32, 64), (512, 32, 64), (2048, 32, 64), (2048, 8, 64)),
        ((1, 8, 4, 1, 2048, 128), (1, 8, 4, 1, 8192, 128), (1, 8, 4, 512, 512, 128), (1, 8, 4, 2048, 2048, 128)),
    ),
    "mixtral": (  # Mixtral 8x7B: as above, 32000 words, eight experts of which each token has two
        (
            *((8, 1, 4096), (8, 512, 4096), (14336, 2, 4096), (4096, 2, 14336), (14336, 128, 4096)),
            *((4096, 128, 14336), (14336, 512, 4096), (4096, 512, 14336), (32000, 1, 4096)),
        ),
        ((1, 4096), (512, 4096), (128, 14336), (512, 14336), (4096, 4096), (512, 32000)),
        ((32000, 1, 4096), (32000, 512, 4096), (32000, 4096, 4096)),
        ((1, 32, 64), (512, 32, 64), (4096, 32, 64)),
        ((1, 8, 4, 1, 4096, 128), (8, 8, 4, 1, 4096, 128), (1, 8, 4, 512, 4096, 128)),
    ),
    "edge": (
        (
            *((1, 1, 1), (1, 1, 4096), (1, 4096, 1), (31, 33, 65), (127, 129, 1024), (1023, 1025, 1024)),
            *((1024, 1024, 1056), (2049, 1, 2048), (17, 1000, 4096)),
        ),
        (
            *((1, 1), (1, 65536), (65536, 1), (3, 1023), (33, 1024), (33, 1025), (1000, 1000), (257, 4095)),
            *((128, 4096), (128, 4097), (7, 131071)),
        ),
        ((1, 1, 1), (4096, 1, 1023), (4097, 1000, 1025)),
        ((1, 1, 1), (1000, 7, 33), (1025, 32, 64)),
        ((1, 1, 1, 1, 1, 64), (1, 2, 3, 127, 129, 80), (1, 8, 4, 1, 1025, 128), (3, 4, 1, 255, 257, 64)),
    ),
}
"""Of products m outputs, n tokens and k summands; rows and columns; words, tokens and widths; tokens, heads and halves
of a head; sequences, heads of keys, queries' heads on each, queries, keys and a head's size."""
NAMES = tuple(_SETS)


@cache
def _set(name: str) -> dict[frozenset[str], tuple[Dims, ...]]:
    products, rows, *others = _SETS[name]
    tables, turns, attentions = others
    return by_dims(products, [{"rows": r, "cols": c} for r, c in rows], tables, turns, attentions)


def shape_set(contract: Contract, name: str) -> tuple[Dims, ...]:
    """Extents of a set that ships, for an op; none, if it has none of that kind."""
    return tuple(s for s in allowed(contract, _set(name)) if min(s.values()))


def timing_cases(contract: Contract, names: Sequence[str], dtypes: Sequence[str], seed: int) -> list[Case]:
    """Cases with plain values of the shapes that are named: sets, and files.

    dtypes: of the first input; none: the plainest. Without a name an op of one's own has the shapes of its author, and
    others have those of USUAL. Raises UsageError for what is neither, or has no shape of this op.
    """
    if unknown := [t for t in dtypes if t not in contract.dtypes]:
        raise UsageError(f"{contract.name} has no dtype {unknown[0]}; it has {', '.join(contract.dtypes)}")
    shapes = [s for name in names for s in _shapes_of(contract, name)] if names else _usual(contract)
    found = [
        one
        for shape in shapes
        for dtype in dtypes or ("",)
        for one in ([shape] if isinstance(shape, Case) else [plain_case(contract, shape, dtype, seed)])
    ]
    cases = [_without_optional(contract, case) for case in found]
    return list({case.id: case for case in cases}.values())


def _without_optional(contract: Contract, case: Case) -> Case:
    """Keep what is needed only: baselines do not take the rest."""
    return case.but(tensors={name: t for name, t in case.tensors.items() if name not in contract.optional})


def _usual(contract: Contract) -> Sequence[Dims]:
    if not contract.origin:
        return _of_set(contract, USUAL)
    dims = {name: dim.most for name, dim in contract.dims.items()}
    while not contract.shapes and elements_of(contract, dims) > _ROOM and max(dims.values()) > 1:
        widest = max(dims, key=lambda name: dims[name])
        step = contract.dims[widest].multiple
        dims[widest] = max(contract.dims[widest].least, dims[widest] // 2 // step * step)
    return contract.shapes or [dims]


def _of_set(contract: Contract, name: str) -> Sequence[Dims]:
    found = shape_set(contract, name)
    if not found:
        dims = ", ".join(contract.dims)
        raise UsageError(
            f"the set {name!r} has no shape of {contract.name}, whose dims are {dims}; name a file of some"
        )
    return found


def _shapes_of(contract: Contract, name: str) -> Sequence[Dims | Case]:
    if name in _SETS:
        return _of_set(contract, name)
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"--shapes {name} is no set ({', '.join(NAMES)}) and no file")
    return _listed(contract, path) if path.suffix in _LISTS else _recorded(contract, path)


def _recorded(contract: Contract, path: Path) -> list[Case]:
    """Cases of a workload; calls of other ops are left out. Raises UsageError if none fits."""
    found, why = [], ""
    for call in read_calls(path):
        try:
            found.append(fit(contract, call))
        except UsageError as error:
            why = why or f"line {call.line}: {error}"
    if not found:
        raise UsageError(f"no call of {path} fits {contract.name}; {why}")
    return found


def _listed(contract: Contract, path: Path) -> list[Dims]:
    """Extents by the names of the op's dims, one mapping a shape. Raises UsageError for anything else."""
    import yaml  # noqa: PLC0415  it is slow to import, and reads JSON, too

    try:
        said = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read as JSON or YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(said, list) or not said:
        raise UsageError(f"{path} is no list of shapes; write one as in {_example(contract)}")
    return [_checked(contract, shape, f"{path}, shape {n}") for n, shape in enumerate(said, 1)]


def _example(contract: Contract) -> str:
    return "[{" + ", ".join(f'"{name}": {64 * dim.multiple}' for name, dim in contract.dims.items()) + "}]"


def _checked(contract: Contract, shape: Any, where: str) -> Dims:
    if not isinstance(shape, dict) or set(shape) != set(contract.dims):
        raise UsageError(
            f"{where}: {contract.name} has the dims {', '.join(contract.dims)}; write {_example(contract)}"
        )
    for name, extent in shape.items():
        dim = contract.dims[name]
        most = dim.high if contract.origin else extent
        if type(extent) is not int or not max(1, dim.low) <= extent <= most or extent % dim.multiple:
            limits = f"from {max(1, dim.low)} on" if not contract.origin else f"from {max(1, dim.low)} to {dim.high}"
            multiple = f", a multiple of {dim.multiple}" * (dim.multiple > 1)
            raise UsageError(f"{where}: {name} must be a whole number {limits}{multiple}, not {extent!r}")
    with about(where):
        must_fit(contract, shape)
    return shape
