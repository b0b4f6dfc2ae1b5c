"""Which subjects run the cases of a batch."""

from types import SimpleNamespace

import pytest

from kernel_assay.fuzz.campaign.batches import INTERPRETED_EVERY, LAW_EVERY, Runner
from kernel_assay.fuzz.generation.elites import Elites
from kernel_assay.fuzz.generation.engines import Target, propose
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.catalog import subjects_of, user_subject
from kernel_assay.oracles.catalog import contract_of

OURS = {s.name: s for s in subjects_of("row_max")}
FAST, SLOW, BUG = (OURS[name] for name in ("numpy_fold", "triton_rows", "bug_triton_no_other"))
MANY = INTERPRETED_EVERY * LAW_EVERY * 6


def runner_of(*subjects, **more):
    contracts = {"row_max": contract_of("row_max")}
    box, mine = SimpleNamespace(timeout=1.0), {s.key: s for s in subjects}
    examiner = SimpleNamespace(subjects=mine, contracts=contracts, beside=None, sandbox=box, **more)
    return Runner(examiner, new_campaign("r1", 1, "conjecture", subjects), Elites([]))


def requests(*subjects):
    """What is asked in a campaign of theirs, on float32 alone, which all take."""
    runner = runner_of(*subjects)
    target = Target(contract_of("row_max"), max_elements=64, dtypes=("float32",))
    return [runner.request(propose([target], 1, index, Elites([]))) for index in range(MANY)]


def share(asked, subject):
    return sum(subject.key in q.subjects for q in asked) / len(asked)


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text('OP = "row_max"\n\n\ndef run(x):\n    return x.max(axis=-1)\n')
    return user_subject(str(path), ())


def test_interpreted_kernels_run_some_cases_of_a_search_of_the_house():
    asked = requests(FAST, SLOW)
    assert share(asked, FAST) == 1
    assert share(asked, SLOW) == 1 / INTERPRETED_EVERY
    assert {name for q in asked for name in q.laws} == {n for q in asked if SLOW.key in q.subjects for n in q.laws}


def test_what_is_looked_for_runs_all_cases(own):
    assert share(requests(SLOW), SLOW) == 1, "there is nobody else"
    asked = requests(FAST, SLOW, BUG)
    assert (share(asked, SLOW), share(asked, BUG)) == (1 / INTERPRETED_EVERY, 1)
    assert share(requests(own, SLOW), SLOW) == 1, "somebody asked for this peer"


def test_on_a_gpu_nothing_is_interpreted():
    there = SLOW.but(device="cuda")
    assert not loader_of(there.loader).interprets
    assert share(requests(FAST, there), there) == 1


def test_what_led_to_the_first_failure_is_told_though_a_later_batch_was_judged_before():
    runner = runner_of(BUG, ran_before=lambda *_: ("case",))
    verdict = SimpleNamespace(signature=SimpleNamespace(key="one"))
    told = [bool(runner._before(None, None, BUG.key, verdict, index)) for index in (96, 97, 32, 33, 96)]
    assert told == [True, False, True, False, False]
