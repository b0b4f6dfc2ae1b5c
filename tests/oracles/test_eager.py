"""Claims that common implementations need: each fits the budget of its claim, and bugs under a claim are found."""

from random import Random

import numpy as np
import pytest
from _eager import KERNELS, cases_of, verdict_of

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.subject import Numerics
from kernel_assay.fuzz.checking.selection import can_claim
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.oracles.catalog import contract_of, load_contracts

CASES = 24
NAMED = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.op} {k.name} {'+'.join(k.claims)}")


def verdicts(kernel, claims, run=None):
    return (verdict_of(kernel, r, claims, run) for r in cases_of(kernel, CASES, Random(kernel.op)))


@NAMED
def test_a_kernel_fits_its_claim_and_fails_without(kernel):
    assert [v.message for v in verdicts(kernel, kernel.claims) if v.failed] == []
    if not kernel.rare:
        assert any(v.failed for v in verdicts(kernel, {}))


def without_last(kernel):
    """The last column of the first input is not read."""

    def run(inputs, attrs):
        name = next(iter(inputs))
        cut = inputs[name].copy()
        cut[..., -1:] = 0
        return kernel.run({**inputs, name: cut}, attrs)

    return run


def too_large(kernel):
    def run(inputs, attrs):
        out = kernel.run(inputs, attrs)
        return (out.astype(np.float64) * 1.0625).astype(out.dtype)

    return run


def reversed_columns(kernel):
    return lambda inputs, attrs: np.flip(kernel.run(inputs, attrs), -1)


def first_row_twice(kernel):
    def run(inputs, attrs):
        out = kernel.run(inputs, attrs).copy()
        out[-1:] = out[:1]
        return out

    return run


@pytest.mark.parametrize("bug", [without_last, too_large, reversed_columns, first_row_twice])
@NAMED
def test_a_bug_under_a_claim_is_found(kernel, bug):
    assert any(v.failed for v in verdicts(kernel, kernel.claims, bug(kernel)))


@pytest.mark.parametrize("op", sorted(load_contracts()))
def test_the_house_claims_what_its_contracts_know(op):
    for subject in subjects_of(op):
        can_claim(contract_of(op), subject.numerics)


def test_every_name_that_a_contract_has_is_claimed_by_a_kernel_here():
    claimed = {(k.op, name) for k in KERNELS for name in k.claims["intermediates"]}
    known = {(op, name) for op, contract in load_contracts().items() for name in contract.intermediates}
    assert known <= claimed


def test_an_unknown_intermediate_result_is_refused():
    with pytest.raises(UsageError, match="'p', which rmsnorm has not: it has xr, all"):
        can_claim(contract_of("rmsnorm"), Numerics(intermediates={"p": "input"}))
