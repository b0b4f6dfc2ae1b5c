"""Contracts of users' own ops, wherever a command or a record names them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.reference_place import ReferencePlace
from kernel_assay.fuzz.checking.user_references import know_reference
from kernel_assay.oracles.catalog import OF_RECORDS, add_contract, apart, origin_of


def know_contracts(recorded: Mapping[str, str], whose: str) -> None:
    """Load the contracts a record was made under, op -> file, but for ops of which the command named one already.

    An empty string is a built-in one. Raises UsageError if a file is gone, or if two records have different ones under
    one name: one of them would be judged by the other's.
    """
    for op, place in recorded.items():
        known = origin_of(op)
        if not place or (known and (op not in OF_RECORDS or apart(known) == apart(place))):
            continue
        if known:
            both = f"{apart(known)} and {apart(place)}"
            raise UsageError(f"op {op!r} is another one in {both}: name the findings of one of them")
        OF_RECORDS.add(op)
        if reference := ReferencePlace.read(place):
            know_reference(op, reference, whose, OF_RECORDS)
            continue
        if not Path(place).is_file():
            raise UsageError(f"the contract of {whose} is gone: {place} does not exist; name it with --contract")
        add_contract(Path(place))


def know_run(campaign: Campaign) -> Campaign:
    """The campaign, with the contracts of its ops loaded."""
    know_contracts(campaign.contracts, f"run {campaign.run}")
    return campaign
