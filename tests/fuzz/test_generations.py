"""Runs that were recorded before keep their cases: the rules of the first generation stay what they were."""

import hashlib
import json
from itertools import count, islice
from pathlib import Path
from random import Random

import pytest

from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS
from kernel_assay.corpus.inputs.specials import SINCE
from kernel_assay.corpus.model.campaign import GENERATION, Campaign
from kernel_assay.fuzz.generation.elites import Elite, Elites
from kernel_assay.fuzz.generation.engines import Target, generate, propose
from kernel_assay.fuzz.generation.strategies import distributions_for, specials_known
from kernel_assay.fuzz.planning.plan import new_campaign, targets
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import contract_of, load_contracts

STREAMS = json.loads(Path(__file__).with_name("generation_1.json").read_text())
"""Op -> digest of the ids and choices of 128 cases, as they were when there was no other generation."""


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_cases_of_the_first_generation_stay(op):
    elites, said = Elites(), hashlib.sha256()
    small = Target(contract_of(op), hints=(48,), generation=1)
    roomy = Target(contract_of(op), memory=1 << 20, generation=1)
    for index in range(128):
        proposal = propose([small if index < 96 else roomy], 1, index, elites)
        said.update(f"{proposal.case.id} {proposal.choices}\n".encode())
        if index < 96 and index % 7 == 0:
            elites.offer(Elite(f"c{index % 3}", op, 0.01 * (1 + index), 0, index, proposal.choices))
    assert said.hexdigest()[:16] == STREAMS[op]


def test_a_run_that_does_not_say_is_of_the_first_generation():
    new = new_campaign("r1", 7, "conjecture", subjects_of("softmax"))
    stored = {name: value for name, value in new.model_dump().items() if name != "generation"}
    old = Campaign.model_validate(stored)
    assert (new.generation, old.generation) == (GENERATION, 1)
    (now,), (then,) = targets(new), targets(old)
    assert now.longest > 0 == then.longest
    assert now.generation > then.generation


def test_what_came_later_is_drawn_by_later_generations_only():
    later = {d.name for d in DISTRIBUTIONS.values() if d.since > 1} | set(SINCE)
    assert len(later) >= 6

    def drawn(generation):
        target, met = Target(contract_of("row_max"), generation=generation), set()
        for case, _ in (generate(target, Random(i)) for i in islice(count(), 3000)):
            (x,) = case.tensors.values()
            met |= {x.fill.distribution, *(s.value for s in x.specials), *(s.place for s in x.specials)}
        return met

    assert drawn(1) & later == set()
    assert drawn(2) >= later


def test_of_every_list_the_first_generation_has_a_part():
    for contract in load_contracts().values():
        for name, spec in contract.inputs.items():
            for dtype in {variant[name] for variant in contract.variants}:
                assert 0 < len(distributions_for(spec, dtype, 1)) <= len(distributions_for(spec, dtype))
    assert all(set(old) < set(new) for old, new in zip(specials_known(1), specials_known(), strict=True))
