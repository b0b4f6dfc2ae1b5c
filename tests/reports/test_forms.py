"""What a person reads, to the letter: one finding, one seeded bug, one clean subject, in every form."""

import json
import xml.etree.ElementTree as ET

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import Campaign, Fidelity, Moment, Space, Statistics
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.coverage_share import Share
from kernel_assay.corpus.model.findings import (
    Element,
    Environment,
    Event,
    Exhibit,
    Finding,
    Opinion,
    Picture,
    State,
    Variant,
)
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.model.verdict import Measurement, Signature, Verdict
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.reports.book import Book, commands, headline, in_order, open_book, planted_missed, stopped_at
from kernel_assay.reports.bugs import grouped
from kernel_assay.reports.coverage_gaps import holes
from kernel_assay.reports.explain import explain
from kernel_assay.reports.forms import formats
from kernel_assay.reports.json_model import Report, report, schema, to_json
from kernel_assay.reports.junit import Result, junit
from kernel_assay.reports.page.summary import remarks
from kernel_assay.reports.plain.finding_text import case_text, closeup
from kernel_assay.reports.plain.replay_markdown import Told, markdown
from kernel_assay.reports.plain.run_text import campaign_text, claims, finding_text
from kernel_assay.reports.plain.terminal import table
from kernel_assay.reports.words import DASH

HERE = Environment(python="3.11", platform="Linux", machine="x86_64")
MINE = Subject(op="softmax", name="mine", backend="numpy", path="mine.py", line=4, numerics=Numerics(exp="fast"))
CLEAN = Subject(op="softmax", name="torch_softmax", backend="torch")
PLANTED = Subject(op="softmax", name="bug_x", backend="numpy", planted="mismatch")


class Text(SingleFileSnapshotExtension):
    """One readable file a snapshot."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def saved(snapshot):
    return snapshot.use_extension(Text)


def case(cols, **fields):
    recipe = TensorRecipe(shape=(3, cols), dtype="float32", fill=Fill(distribution="ones"), **fields)
    return Case(op="softmax", tensors={"x": recipe})


EXHIBIT = Exhibit(
    output="out",
    shape=(3, 5),
    dtype="float32",
    failing=3,
    elements=(
        Element(index=(0, 4), got=0.25, wanted=0.2, bits=0x3E800000, bound=1e-8, rho=5e6, ulps=3355444),
        Element(index=(1, 4), got=float("nan"), wanted=0.2, rho=float("inf")),
        Element(index=(2, 4), got=0.25, wanted=0.2, bound=1e-8, rho=5e6, ulps=3355444),
    ),
    picture=Picture(lines=("....#", "....#", "....#"), height=3, width=5),
    ulps=(12, 0, 0, 0, 3),
    opinions=(
        Opinion(check="np.allclose, defaults", value="largest error 0.05", passes=False),
        Opinion(check="cosine >= 0.999", value="0.9999", passes=True),
    ),
    detail="",
)


def finding(subject, kind=Kind.MISMATCH, dtype="float32", cols=5, **fields):
    signature = Signature(op="softmax", subject=subject.name, kind=kind, rule="rho", dtype=dtype, index_pattern="all")
    verdict = Verdict(
        kind=kind,
        rule="rho",
        message="out[0, 4] is 0.25, wanted 0.2",
        signature=signature,
        output="out",
        measurements=(Measurement(metric="rho", value=7.25, limit=1.0), Measurement(metric="nmse", value=0.5)),
        blame="mine differs from the others; torch_softmax agrees with the oracle",
    )
    known = {
        "signature": signature,
        "case": case(cols),
        "original": case(511, layout="row_gaps", specials=(Special(value="nan", place="last"),)),
        "subject": subject,
        "verdict": verdict,
        "environment": HERE,
        "state": State.MINIMIZED,
        "exhibit": EXHIBIT,
        "variants": (
            Variant(subject="softmax/mine", dtype="float32", kind=Kind.MISMATCH, rho=5e6),
            Variant(subject="softmax/torch_softmax", dtype="float32", kind=Kind.PASS),
            Variant(subject="softmax/mine", dtype="float64", kind=Kind.NONFINITE),
        ),
        "history": (
            Event(at="2030-01-01T00:00:00+00:00", state=State.NEW, what="found by r1:7"),
            Event(at="2030-01-01T00:00:01+00:00", state=State.MINIMIZED, what="1,533 -> 15 elements"),
        ),
        "first_seen": "2030-01-01T00:00:00+00:00",
        "last_seen": "2030-01-02T00:00:00+00:00",
    }
    return Finding(**{**known, **fields})


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
        "space": {
            "softmax|float32": Space(shapes=("one",), layouts=("contiguous", "broadcast"), values=("ones",),
                                     subjects=("mine",)),
            "softmax|float64": Space(shapes=("one",), layouts=("contiguous",), values=("ones",), subjects=("mine",)),
        },
        "statistics": {"softmax/mine": Statistics(timed=900, nanoseconds=9_000_000, elements=90_000, rho=(1, 2),
                                                  ulps=(5, 1), classes={"nan": 2}, skipped={})},
        "timeline": (Moment(seconds=1.0, judged=1500, cells=1, findings=1),),
    }  # fmt: skip
    return Campaign(**{**known, **fields})


def book(*findings, **fields):
    return Book(
        findings or (finding(MINE), finding(MINE, dtype="float16", cols=6), finding(PLANTED)), campaign(**fields)
    )


def test_a_finding_says_what_is_wrong_who_says_so_and_how_to_see_it_again(saved):
    f = finding(MINE, gates=("fails only if cols % 4 != 0",), count=3, probability=0.4, contract="my op.py")
    assert finding_text(f, corpus="other") == saved


def test_all_of_a_finding(saved):
    f = finding(MINE, gates=("fails only if cols % 4 != 0",), count=3, expect="fail", reason="issue 7")
    assert closeup(book(), f, "print('reproduced')\n") == saved


def test_how_much_of_a_large_case_was_judged_is_told_where_a_finding_is():
    usual = finding(MINE)
    share = Share(output="out", of=16777216, sampled=4096, peer=16777216)
    large = usual.but(verdict=usual.verdict.but(shares=(share,)))
    words = "of 16777216 elements of out, 4096 judged by the oracle, as a sample, 16777216 compared with a peer"
    told = {name: (form.render(book(usual)), form.render(book(large))) for name, form in formats().items()}
    assert all(words not in before for before, _ in told.values())
    assert all(words in told[name][1] for name in ("html", "markdown"))
    assert '"sampled": 4096' in told["json"][1]
    assert f"judged    {words}" in finding_text(large)
    assert f"judged    {words}" in closeup(book(), large)
    assert "judged  " not in finding_text(usual) + closeup(book(), usual)


ALIKE = (
    (Element(index=(0,), got=float("nan"), wanted=float("nan"), bits=0x7FC00000, wanted_bits=0xFFC00001), True),
    (Element(index=(1,), got=-0.0, wanted=0.0, bits=0x80000000, wanted_bits=0), True),
    (Element(index=(2,), got=1.00000000001, wanted=1.0, bits=0x3F800001, wanted_bits=0x3F800000), True),
    (Element(index=(3,), got=1.5, wanted=1.0, bits=0x3FC00000, wanted_bits=0x3F800000), False),
    (Element(index=(4,), got=-0.0, wanted=0.0, bits=0x80000000, wanted_bits=0, fails=False), False),
    (Element(index=(5,), got=float("nan"), wanted=float("nan"), bits=0x7FC00000), False),
)


@pytest.mark.parametrize(("element", "told"), ALIKE)
def test_bits_are_told_where_nothing_else_tells_the_values_apart(element, told):
    f = finding(MINE, exhibit=Exhibit(output="out", shape=(6,), dtype="float32", failing=1, elements=(element,)))
    line = next(line for line in closeup(book(), f).splitlines() if f" {list(element.index)} " in line)
    assert (f"(0x{element.bits:08x})" in line, f"(0x{element.wanted_bits:08x})" in line) == (told, told)


def test_a_finding_of_an_older_version_has_less_to_show(saved):
    f = finding(MINE, exhibit=None, variants=(), history=(), probability=0.2)
    assert closeup(book(), f) == saved


def test_a_case_tells_what_its_tensors_hold(saved):
    rich = TensorRecipe(
        shape=(4, 33),
        dtype="float16",
        layout="transposed",
        fill=Fill(distribution="normal", seed=3, scale=4.0),
        specials=(Special(value="inf", place="last"), Special(value="-0", place="first")),
        pokes=((5, 1),),
    )
    empty = TensorRecipe(shape=(0,), dtype="int64")
    assert case_text(Case(op="x", tensors={"a": rich, "b": empty}, attrs={"eps": 1e-5})) == saved


@pytest.mark.parametrize("name", [n for n in formats() if n not in {"html", "json"}])
def test_a_run_in_every_form(name, saved):
    told = formats()[name].render(book(estimated=("softmax",), fresh=(finding(MINE).id,)))
    for kind in Kind:  # a page that is worded anew is no other form
        told = told.replace(json.dumps(explain(kind.value)), f'"(what explain {kind.value} says)"')
    assert told == saved


@pytest.mark.parametrize("name", formats())
def test_every_form_tells_of_nothing(name):
    """No run and one finding; a run and no finding."""
    assert formats()[name].render(Book((finding(MINE),)))
    assert formats()[name].render(Book((), campaign(subjects=(CLEAN,))))


def test_a_planted_bug_that_was_not_found_is_shouted():
    c = campaign(by_subject={"softmax/bug_x": {"pass": 5}})
    assert planted_missed(c) == ["softmax/bug_x"]
    text = campaign_text(Book((), c))
    assert "seeded bugs: 0 of 1 earned their verdict" in text
    assert "NOT FOUND" in text
    assert "softmax/bug_x" in formats()["markdown"].render(Book((), c))


def test_inconclusive_outputs_are_shown_where_there_are_any():
    """Else there is a gap between what was judged and the sum of the other columns."""
    some = {**campaign().by_subject, "softmax/mine": {"pass": 890, "inconclusive": 10, "mismatch": 100}}
    texts = {name: form.render(Book((), campaign(by_subject=some))) for name, form in formats().items()}
    head, clean, mine = texts["text"].split("\n\n")[1].splitlines()
    assert head.split()[:6] == ["subject", "judged", "pass", "unsupported", "inconclusive", "failing"]
    assert clean.split()[1:6] == ["999", "999", "1", "0", "0"]
    assert mine.split()[1:6] == ["1,000", "890", "0", "10", "100"]
    assert "Inconclusive, neither pass nor finding: 10 of `softmax/mine`." in texts["markdown"]
    cells = "".join(f'<td class="num">{cell}</td>' for cell in ("890", DASH, "10"))
    assert cells in texts["html"]
    assert '"inconclusive": 10' in texts["json"]
    none = [formats()[name].render(Book((), campaign())) for name in ("text", "markdown", "html")]
    assert not any("nconclusive" in text.replace("&shy;", "") for text in none)


def test_claims_are_told_in_words():
    assert claims(MINE) == "exp=fast"
    assert claims(MINE.but(numerics=Numerics(fast_math=True, tf32="rn"))) == "tf32=rn, fast-math"


def lossy(**worst):
    return Statistics(
        fidelity={kind: Fidelity(what="NMSE", worst=lost, limit=0.015) for kind, lost in worst.items()}, rho=(1,)
    )


def test_what_is_lost_by_design_is_told_beside_the_budget():
    assert "NMSE" not in campaign_text(book())
    c = campaign(
        statistics={"softmax/mine": lossy(q4_0=0.0114), "softmax/torch_softmax": lossy(q4_0=0.1, q8_0=7.66e-5)}
    )
    lines = campaign_text(Book((), c)).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("NMSE of random numbers, at worst"))
    assert [" ".join(line.split()) for line in lines[at + 1 : at + 4]] == [
        "subject q4_0 (1.5 %) q8_0 (1.5 %)",
        "softmax/torch_softmax 10 % 0.00766 %",
        "softmax/mine 1.14 % -",
    ]
    page = formats()["html"].render(Book((), c))
    assert "q4_0 loses 1.14 %" in page
    assert "<dt>NMSE, q8_0</dt><dd>0.00766 % at worst; in use up to 1.5 %</dd>" in page
    assert Campaign.model_validate_json(c.model_dump_json()).canonical() == c.canonical()


def test_an_interrupted_run_says_how_to_go_on():
    assert "(interrupted: go on with --resume)" in campaign_text(Book((), campaign(finished=False)))


def test_sizes_at_which_a_kernel_would_be_wrong_are_warnings_and_stand_in_the_json():
    key = campaign().subjects[0].key
    c = campaign(limits={key: ("rows = 65,536: a grid of 1 x 65536 x 1 blocks cannot be launched",)})
    assert f"warning: {key}: not tested, would be wrong with rows = 65,536: a grid" in campaign_text(Book((), c))
    assert report(Book((), c)).subjects[0].limits == c.limits[key]


def test_the_report_says_what_was_looked_for_beside_a_gpu():
    key = campaign().subjects[0].key
    seen = Statistics(checked=12)
    told = campaign(checked={key: "", "silu/other": "g++ is not installed"}, statistics={key: seen})
    text = campaign_text(Book((), told))
    assert "check mode: 12 cases of 1 kernel on the processors beside the GPU" in text
    assert (
        "warning: silu/other: races and reads out of bounds are not looked for; it does not run in check mode" in text
    )
    early = told.but(statistics={key: Statistics(checked=1, unchecked="it took too long")})
    assert f"warning: {key}: races and reads out of bounds are not looked for; check mode ended early" in campaign_text(
        Book((), early)
    )


def test_the_report_says_what_share_was_in_check_mode():
    (mine, *_) = campaign().subjects
    own = mine.but(name="mine", backend="cuda", device="cpu")
    kinds = {own.key: {"pass": 1000, "race": 24, "unsupported": 9}}
    c = campaign(subjects=(own,), statistics={own.key: Statistics(checked=312)}, by_subject=kinds)
    said = "checked: 312 of 1,024 cases of 1 emulated kernel in check mode (30.5 %)"
    assert said in campaign_text(Book((), c))
    assert any(said[1:] in remark.text for remark in remarks(Book((), c)))
    assert report(Book((), c)).subjects[0].statistics.checked == 312
    assert "checked:" not in campaign_text(Book((), campaign()))


def test_many_findings_of_one_kind_are_not_all_written_out():
    many = [finding(MINE, dtype=f"float{i}", cols=i) for i in range(1, 21)]
    text = campaign_text(Book(tuple(many), campaign()))
    also = [line for line in text.splitlines() if line.startswith("   also  ")]
    assert len(also) == 1
    assert also[0].count(", ") == 5
    assert also[0].endswith(" and 13 more: kassay list findings softmax/mine")


@pytest.mark.parametrize(
    ("fields", "standing", "news"),
    [
        ({}, "minimized", True),
        ({"expect": "fail", "reason": "known"}, "expected to fail", False),
        ({"expect": "fail", "reason": "known", "expires": "2000-01-01"}, "expectation expired", True),
        ({"probability": 0.0, "state": State.FLAKY}, "flaky", False),
        ({"state": State.FIXED}, "fixed", False),
        ({"state": State.REGRESSION}, "regression", True),
    ],
)
def test_what_needs_a_person(fields, standing, news):
    f = finding(MINE, **fields)
    assert (Book((f,)).standing(f), Book((f,)).news(f)) == (standing, news)


def test_what_the_base_has_is_no_news():
    f = finding(MINE)
    known = Book((f,), campaign(fresh=(f.id,)), frozenset({f.id}))
    assert (known.standing(f), known.news(f)) == ("known on the base", False)
    assert Book((f,), campaign(fresh=(f.id,))).standing(f) == "new"


def test_what_was_found_in_a_run_and_repaired_since_is_fixed_in_every_form():
    f = finding(MINE, state=State.FIXED)
    repaired = Book((f,), campaign(fresh=(f.id,)))
    assert (repaired.standing(f), repaired.news(f)) == ("fixed", False)
    assert "minimized" not in campaign_text(repaired)
    for name in ("text", "markdown", "junit", "sarif", "json"):
        text = formats()[name].render(repaired)
        assert "fixed" in text, name
        assert "❌" not in text, name
    assert "1 of them no news (known, expected, fixed or not reproduced)" in campaign_text(repaired)


def test_the_headline():
    old = finding(MINE, kind=Kind.NONFINITE, expect="fail", reason="known")
    assert headline(Book((), campaign())) == "No findings in 3,000 outputs"
    assert headline(Book((finding(MINE),))) == "1 finding in 1 kernel"
    assert headline(Book((finding(MINE), old), campaign())) == "1 finding in 1 kernel"
    apart = finding(MINE, kind=Kind.RAISED, cols=3, expect="fail", reason="known")
    assert headline(Book((finding(MINE), apart), campaign())) == "2 findings in 1 kernel, 1 of them news"


def test_holes_are_named():
    assert list(map(str, holes(campaign()))) == [
        "softmax float32 never with layout broadcast",
        "softmax float64 never with shape one",
        "softmax float64 never with layout contiguous",
        "softmax float64 never with values ones",
        "softmax float64 never with subject mine",
    ]


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_the_report_for_programs_is_json_whatever_is_in_it(seconds):
    made = report(book(seconds=seconds, max_rho={"softmax/mine": float("inf")}))
    said = json.loads(to_json(made))
    assert said["findings"][0]["kind"] == "mismatch"
    assert said["failing"] == 1100
    assert said["goals_open"] == ["missed"]
    assert said["subjects"][1]["max_rho"] == "Infinity"
    assert Report.model_validate(said).canonical() == made.canonical()


def test_the_committed_schema_is_the_one_of_the_report():
    """After a change of meaning raise the version in reports/json_model.py; then: python -m reports --schema."""
    from importlib.resources import files

    assert (files("reports") / "schema.json").read_text("utf-8") == schema()


def test_sarif_is_what_its_standard_asks_for():
    log = json.loads(formats()["sarif"].render(book()))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(run["results"]) == 2
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"] == {"uri": "mine.py", "uriBaseId": "SRCROOT"}
        assert place["region"]["startLine"] == 4


def test_markdown_of_a_subjects_words_cannot_break_the_table():
    verdict = finding(MINE).verdict.but(message="a | b\n<script>alert(1)</script>")
    text = formats()["markdown"].render(Book((finding(MINE, verdict=verdict),)))
    assert "<script>" not in text
    assert "a \\| b &lt;script&gt;" in text


def test_a_replay_as_markdown(saved):
    rows = [
        Told("softmax/mine", "fails", "softmax x=1", "out[0] is 1 | wanted 2", good=False),
        Told("softmax/mine", "started to pass", "softmax x=2", "", good=True),
        Told("softmax/mine", "passes", "softmax x=3", "", good=True),
    ]
    assert markdown(rows) == saved


def test_a_replay_of_nothing():
    assert markdown([]) == "## Replay: 0 as they should\n\nnothing to replay\n"


def test_numbers_stand_to_the_right():
    assert table(("a", "n"), [("x", "1"), ("yy", "1,000")]) == "  a   n\n  x       1\n  yy  1,000"


def test_junit_counts_and_escapes():
    rows = [Result("a <b>", "g"), Result("c\x00", "g", failure='got "1" & wanted <2>'), Result("d", "g", skipped="why")]
    suite = ET.fromstring(junit("s", rows).split("\n", 1)[1])
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert suite[0].get("name") == "a <b>"
    assert suite[1].get("name") == "c\N{REPLACEMENT CHARACTER}"
    assert suite[1][0].get("message") == 'got "1" & wanted <2>'


def test_a_book_is_the_latest_run(tmp_path):
    with Store(tmp_path / "corpus") as store, pytest.raises(UsageError, match="nothing to report"):
        open_book(store)
    with Store(tmp_path / "corpus") as store:
        store.prepare()
        kept = store.save_finding(finding(MINE))
        store.save_finding(finding(CLEAN))
        assert len(open_book(store).findings) == 2
        store.start_run(campaign(updated="2030", findings=(kept.id,)))
        store.start_run(campaign(run="r0", updated="2029"))
        assert [f.id for f in open_book(store).findings] == [kept.id]
        assert open_book(store, "r0").findings == ()
        with pytest.raises(UsageError, match="there is no run 'r9'"):
            open_book(store, "r9")


def test_commands_name_the_corpus_and_the_contract_where_they_must():
    f = finding(MINE)
    assert commands(f)["replay"] == f"kassay replay {f.id}"
    own = f.but(contract="/x y.py")
    assert commands(own, "c")["show"] == f"kassay show {f.id} --contract '/x y.py' --corpus c"


TRACEBACK = (
    'Traceback (most recent call last):\n  File "/a/mine.py", line 7, in run\n  File "/a/mine.py", line 3, in f\n'
)
FAULT = (
    'Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n  File "/a/mine.py", line 5 in f\n'
)


@pytest.mark.parametrize(
    ("detail", "line"),
    [
        (TRACEBACK + '  File "/lib/other.py", line 99, in g\nValueError: no\n', 3),
        (FAULT + '  File "/a/mine.py", line 9 in run\n  File "/b/worker.py", line 1 in main\n', 5),
        ("nothing to see", 0),
        ("", 0),
    ],
)
def test_where_a_kernel_stopped(detail, line):
    found = finding(MINE, exhibit=Exhibit(detail=detail))
    assert stopped_at(found) == line
    said = finding_text(found)
    assert ("at        mine.py, line" in said) == bool(line)


def test_what_names_a_cause_comes_before_its_symptoms():
    kinds = [Kind.MISMATCH, Kind.NONDETERMINISTIC, Kind.RACE, Kind.NONFINITE, Kind.OUT_OF_BOUNDS, Kind.UNWRITTEN]
    found = [finding(MINE, kind=kind, cols=cols) for cols, kind in enumerate(kinds, 2)]
    told = [Kind.OUT_OF_BOUNDS, Kind.RACE, Kind.MISMATCH, Kind.NONDETERMINISTIC, Kind.NONFINITE, Kind.UNWRITTEN]
    assert [f.verdict.kind for f in in_order(found)] == told
    groups = [[f.verdict.kind for f in group] for group in grouped(found, lambda _: True)]
    assert groups[0] == [Kind.OUT_OF_BOUNDS, Kind.NONDETERMINISTIC], "which the cause makes differ"
    assert [group[0] for group in groups] == [kind for kind in told if kind is not Kind.NONDETERMINISTIC]


def test_news_lead_their_group_and_what_passes_with_their_dtype_is_another_bug():
    known = finding(MINE, cols=2, expect="fail", reason="issue 7")
    fresh = finding(MINE, dtype="float16", cols=6)
    both = grouped((known, fresh), lambda f: f.expect == "pass")
    assert both == [[fresh, known]]
    other = (Variant(subject=MINE.key, dtype="float32", kind=Kind.PASS),)
    assert grouped((known, fresh.but(variants=other)), lambda f: f.expect == "pass") == [
        [fresh.but(variants=other)],
        [known],
    ]
