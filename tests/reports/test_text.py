"""What a person reads, to the letter: one finding, one planted bug, one clean subject."""

import json
import xml.etree.ElementTree as ET

import pytest

from corpus.campaign import Campaign
from corpus.records import (
    Case,
    Environment,
    Fill,
    Finding,
    Kind,
    Measurement,
    Numerics,
    Signature,
    State,
    Subject,
    TensorRecipe,
    Verdict,
)
from reports.junit import write_junit
from reports.summary import campaign_summary, to_json
from reports.text import campaign_text, finding_text, planted_missed, table

HERE = Environment(python="3.11", platform="Linux", machine="x86_64")
MINE = Subject(op="softmax", name="mine", backend="numpy", path="mine.py", numerics=Numerics(exp="fast"))
CLEAN = Subject(op="softmax", name="torch_softmax", backend="torch")
PLANTED = Subject(op="softmax", name="bug_x", backend="numpy", planted="mismatch")


def case(cols):
    return Case(
        op="softmax", tensors={"x": TensorRecipe(shape=(1, cols), dtype="float32", fill=Fill(distribution="ones"))}
    )


def finding(subject, kind=Kind.MISMATCH, dtype="float32", cols=2, **fields):
    signature = Signature(op="softmax", subject=subject.name, kind=kind, rule="rho", dtype=dtype, index_pattern="all")
    verdict = Verdict(
        kind=kind,
        rule="rho",
        message="out[0, 0] is 1, wanted 0.5",
        signature=signature,
        measurements=(Measurement(metric="rho", value=7.25, limit=1.0), Measurement(metric="nmse", value=0.5)),
        blame="mine is alone; torch_softmax agrees with the oracle",
    )
    known = {"signature": signature, "case": case(cols), "original": case(511), "subject": subject, "verdict": verdict}
    return Finding(**known, environment=HERE, state=State.MINIMIZED, **fields)


def campaign(**fields):
    known = {
        "run": "r1",
        "seed": 7,
        "ops": ("softmax",),
        "subjects": (CLEAN, MINE, PLANTED),
        "environment": HERE,
        "finished": True,
        "cases": 1000,
        "judged": 3000,
        "seconds": 2.0,
        "by_subject": {
            "softmax/torch_softmax": {"pass": 999, "unsupported": 1},
            "softmax/mine": {"pass": 900, "mismatch": 100},
            "softmax/bug_x": {"mismatch": 1000},
        },
        "kinds": {"pass": 1899, "unsupported": 1, "mismatch": 1100},
        "coverage": {"softmax|float32|one|contiguous|ones|mine": 30, "softmax|float16|one|contiguous|ones|mine": 3},
        "goals": {"reached": 3, "missed": -1},
        "max_rho": {"softmax/torch_softmax": 0.25},
    }
    return Campaign(**{**known, **fields})


def test_a_finding_says_what_is_wrong_who_says_so_and_how_to_see_it_again():
    f = finding(MINE, gates=("fails only if cols % 4 != 0",), count=3, probability=0.4)
    assert finding_text(f).splitlines() == [
        "1. softmax/mine: mismatch (rho), minimized, seen 3 times",
        "   out[0, 0] is 1, wanted 0.5",
        "   blame     mine is alone; torch_softmax agrees with the oracle",
        "   smallest  softmax float32 x=1x2:ones  (2 elements; found with 511)",
        "   learned   fails only if cols % 4 != 0",
        "   shows in  40% of runs",
        "   metrics   rho 7.25, nmse 0.5",
        f"   replay    python -m fuzz replay {f.id}",
        f"   shrink    python -m fuzz shrink {f.id}",
    ]


def test_the_summary_of_a_run():
    mine, planted = finding(MINE), finding(PLANTED)
    other = finding(MINE, dtype="float16", cols=3)
    text = campaign_text(campaign(), [planted, other, mine], "corpus/local/findings")
    assert text.startswith(
        "run r1  seed 7\n1,000 cases, 3,000 outputs judged in 2.0 s (1,500/s), 1 op, 3 subjects\n\n"
        "  subject                judged  pass  unsupported  failing  budget used  claims\n"
        "  softmax/torch_softmax   1,000   999            1        0         0.25\n"
        "  softmax/mine            1,000   900            0      100            -  exp=fast\n"
    )
    assert "planted bugs: 1 of 1 earned their verdict\n" in text
    assert f"  any of them again: python -m fuzz replay {planted.id}, python -m fuzz shrink {planted.id}\n" in text
    assert "findings: 1, 2 counted by dtype and pattern (kept in corpus/local/findings)\n" in text
    assert f"   also      softmax float32 x=1x3:ones  [{other.id}]\n" in text
    assert "  thin: softmax float16 (fewer than 20 outputs each)\n" in text
    assert text.endswith("goals: 1 of 2 reached; NOT reached: missed\n")


def test_a_planted_bug_that_was_not_found_is_shouted():
    c = campaign(by_subject={"softmax/bug_x": {"pass": 5}})
    assert planted_missed(c) == ["softmax/bug_x"]
    text = campaign_text(c, [], "x")
    assert "planted bugs: 0 of 1 earned their verdict" in text
    assert "NOT FOUND" in text


def test_an_interrupted_run_says_how_to_go_on():
    assert "(interrupted: go on with --resume)" in campaign_text(campaign(finished=False), [], "x")


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_the_summary_for_programs_is_json_whatever_is_in_it(seconds):
    c = campaign(seconds=seconds, max_rho={"softmax/mine": float("inf")})
    said = json.loads(to_json(campaign_summary(c, [finding(MINE)])))
    assert said["findings"][0]["kind"] == "mismatch"
    assert said["failing"] == 1100
    assert said["goals_open"] == ["missed"]
    assert said["subjects"]["softmax/mine"]["max_rho"] == "inf"


def test_numbers_stand_to_the_right():
    assert table(("a", "n"), [("x", "1"), ("yy", "1,000")]) == "  a   n\n  x       1\n  yy  1,000"


def test_junit_counts_and_escapes(tmp_path):
    path = tmp_path / "deep" / "out.xml"
    write_junit(path, [("a <b>", "softmax/mine", True, ""), ("c", "softmax/mine", False, 'got "1" & wanted <2>')])
    suite = ET.parse(path).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert suite[0].get("name") == "a <b>"
    assert suite[1][0].get("message") == 'got "1" & wanted <2>'
