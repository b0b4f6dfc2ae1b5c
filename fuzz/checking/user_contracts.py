"""Contracts of users' own ops, wherever a command or a record names them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import Campaign
from kernel_assay.corpus.model.reference_place import ReferencePlace
from kernel_assay.fuzz.checking.user_references import know_reference
from kernel_assay.oracles.catalog import add_contract, origin_of


def know_contracts(recorded: Mapping[str, str], whose: str) -> None:
    """Load the contracts a record was made under, op -> file, but for ops of which the command named one already.

    An empty string is a built-in one. Raises UsageError if a file is gone.
    """
    for op, place in recorded.items():
        if not place or origin_of(op):
            continue
        if reference := ReferencePlace.read(place):
            know_reference(op, reference, whose)
            continue
        if not Path(place).is_file():
            raise UsageError(f"the contract of {whose} is gone: {place} does not exist; name it with --contract")
        add_contract(Path(place))


def know_run(campaign: Campaign) -> Campaign:
    """The campaign, with the contracts of its ops loaded."""
    know_contracts(campaign.contracts, f"run {campaign.run}")
    return campaign
