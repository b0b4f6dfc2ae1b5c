"""A worker that has other inputs than the judge: whose doing that is."""

import pytest
from test_forged import FORGER
from test_sandbox import CASES, PEER

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking import requests
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.catalog import user_subject

FORGES = (
    'tell(frame({**OK, "input_digest": "0" * 32, "outputs": [{**OK["outputs"][0], "shape": x.shape}]}, out.tobytes()))'
)
MEDDLES = "sys.modules['kernel_assay.kernels.worker.host'].materialize_all = lambda case: {'x': x * 0}"


@pytest.mark.parametrize(("body", "kind"), [(FORGES, Kind.INPUT_MUTATED), (MEDDLES, Kind.CHEATED)])
def test_a_kernel_that_meddles_with_them_is_accused_and_nobody_else(tmp_path, body, kind):
    path = tmp_path / "forger.py"
    path.write_text(FORGER.replace("BODY", body))
    forger = user_subject(str(path), ())
    with Examiner([PEER, forger]) as examiner:
        found = [examiner.check([CheckRequest(c, (PEER.key, forger.key))])[0].verdicts for c in CASES[:4]]
    assert {v[PEER.key].kind for v in found} == {Kind.PASS}
    assert found[0][forger.key].kind is kind
    assert {v[forger.key].kind for v in found} <= {kind, Kind.CRASHED}


def test_where_a_new_worker_makes_them_so_too_it_is_our_own_fault(monkeypatch):
    monkeypatch.setattr(requests, "digest", lambda inputs: "0" * 32)
    with (
        Examiner([PEER]) as examiner,
        pytest.raises(InternalError, match="ran on other input bytes than the oracle saw"),
    ):
        examiner.check([CheckRequest(CASES[0], (PEER.key,))])
