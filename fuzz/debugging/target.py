"""What is debugged or profiled: a stored case, or an op at an extent that models have."""

from __future__ import annotations

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.protocol import CorpusStore
from kernel_assay.fuzz.checking.selection import UserKernels, select
from kernel_assay.fuzz.checking.subjects import takes
from kernel_assay.fuzz.generation.model_shapes import elements_of, shapes_of
from kernel_assay.fuzz.replay.replay import Item, gather
from kernel_assay.oracles.catalog import contract_of, load_contracts
from kernel_assay.oracles.spec.plain_case import plain_case

TARGET = "FINDING|FILE|RUN:INDEX|case:TOKEN|OP"


def aimed(store: CorpusStore, target: str, own: UserKernels, most: int = 0) -> list[Item]:
    """The items that a word names, an entry a kernel. Raises UsageError for what cannot be found.

    Of an op it is its largest shape in models that has no more elements than most, else its smallest, with plain
    values and without what is optional.
    """
    if target not in load_contracts():
        return gather(store, [target], own)
    whole = contract_of(target)
    contract = whole.narrowed(whole.optional, (), {})
    smallest = {name: dim.least or dim.multiple for name, dim in contract.dims.items()}
    dims = [smallest, *(d for n, d in enumerate(shapes_of(contract)) if not n or elements_of(contract, d) <= most)][-1]
    subjects = [(s, t) for s in own.subjects([target]) or select([target]) for t in contract.dtypes if takes(s, t)]
    plainest = {subject.key: (subject, dtype) for subject, dtype in reversed(subjects)}
    return [Item(target, plain_case(contract, dims, dtype), subject) for subject, dtype in reversed(plainest.values())]


def only_one(items: list[Item], target: str) -> Item:
    """The only item. Raises UsageError if there are several."""
    if len(items) == 1:
        return items[0]
    raise UsageError(f"{len(items)} kernels run {target}: {_some(items)}; name one file with --subject")


def _some(items: list[Item]) -> str:
    return ", ".join(item.subject.name for item in items[:3]) + (", ..." if len(items) > 3 else "")
