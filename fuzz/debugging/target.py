"""What is debugged or profiled: a stored case, or an op at an extent that models have."""

from __future__ import annotations

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.checking.selection import UserKernels, select
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.fuzz.generation.model_shapes import shapes_of
from kernel_assay.fuzz.replay.replay import Item, gather
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.spec.plain_case import plain_case

TARGET = "FINDING|FILE|RUN:INDEX|case:TOKEN|OP"


def aimed(store: Store, target: str, own: UserKernels) -> list[Item]:
    """The items that a word names, an entry a kernel. Raises UsageError for what cannot be found.

    Of an op it is the first shape of models for it, or else its smallest, with plain values.
    """
    if target not in load_contracts():
        return gather(store, [target], own)
    contract = contract_of(target)
    smallest = {name: dim.least or dim.multiple for name, dim in contract.dims.items()}
    dims = next(iter(shapes_of(contract)), smallest)
    subjects = own.subjects([target]) or select([target])
    return [Item(target, plain_case(contract, dims, next(t for t in contract.dtypes if takes(s, t))), s) for s in subjects]


def only_one(items: list[Item], target: str) -> Item:
    """The only item. Raises UsageError if there are several."""
    if len(items) == 1:
        return items[0]
    raise UsageError(f"{len(items)} kernels run {target}: {_some(items)}; name one file with --subject")


def _some(items: list[Item]) -> str:
    return ", ".join(item.subject.name for item in items[:3]) + (", ..." if len(items) > 3 else "")
