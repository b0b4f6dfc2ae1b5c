"""The page: whole, escaped, self-contained, small, and right about what it tells."""

import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from random import Random

import pytest
from _large_book import HERE, Maker, large_book

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.campaign import Campaign, Moment, Space, Statistics
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
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
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Measurement, Signature, Verdict
from kernel_assay.reports.book import Book
from kernel_assay.reports.formats import html
from kernel_assay.reports.page.coverage import coverage_of
from kernel_assay.reports.page.summary import sentence, tone_of
from kernel_assay.reports.plain.finding_text import closeup
from kernel_assay.reports.words import DASH, TIMES, relation

NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp; \x1b[31m\x00 javascript:"
MINE = Subject(op="softmax", name="mine", backend="numpy", path="mine.py")
CLEAN = Subject(op="softmax", name="torch_softmax", backend="torch")
PLANTED = Subject(op="softmax", name="bug_x", backend="numpy", planted="mismatch", summary="Bug: x.")


class Page(HTMLParser):
    """Elements by tag, ids, links, and the text of every element that has an id and is closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.source, self.ids, self.links, self.elements, self.words = text, [], [], [], []
        self.text = {}
        self._open, self._code = None, False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.elements.append((tag, named))
        if "id" in named:
            self.ids.append(named["id"])
        if tag == "a":
            self.links.append(named["href"])
        if tag == "pre":
            self._open = named.get("id", "")
        self._code = tag in {"style", "script"}

    def handle_endtag(self, tag):
        self._code = False
        if tag == "pre":
            self._open = None

    def handle_data(self, data):
        if not self._code:
            self.words.append(data)
        if self._open is not None:
            self.text[self._open] = self.text.get(self._open, "") + data

    @property
    def all_words(self):
        return " ".join(" ".join(self.words).split())

    def having(self, tag, **wanted):
        return [a for t, a in self.elements if t == tag and all(a.get(k.rstrip("_")) == v for k, v in wanted.items())]


def page(book):
    return Page(html.render(book))


def case(shape=(1, 2), **fields):
    recipe = TensorRecipe(shape=shape, dtype="float32", fill=Fill(distribution="ones"), **fields)
    return Case(op="softmax", tensors={"x": recipe})


def finding(subject=MINE, kind=Kind.MISMATCH, message="out[0, 0] is 1, wanted 0.5", **fields):
    pattern = fields.pop("pattern", "all")
    signature = Signature(
        op="softmax", subject=subject.name, kind=kind, rule="rho", dtype="float32", index_pattern=pattern
    )
    known = {
        "signature": signature,
        "case": case(),
        "original": case((7, 73)),
        "subject": subject,
        "verdict": Verdict(kind=kind, rule="rho", message=message, signature=signature, blame="mine is alone"),
        "environment": HERE,
        "state": State.MINIMIZED,
    }
    return Finding(**{**known, **fields})


def shown(**fields):
    known = {
        "output": "out",
        "shape": (1, 2),
        "dtype": "float32",
        "failing": 2,
        "elements": (Element(index=(0, 0), got=1.0, wanted=0.5, bits=0x3F800000, bound=1e-7, rho=7.25, ulps=8388608),),
        "picture": Picture(lines=("##",), height=1, width=2),
        "ulps": (0, 0, 2),
        "opinions": (
            Opinion(check="cosine >= 0.999", value="1", passes=True),
            Opinion(check="NMSE <= 5e-4", value="1", passes=False),
        ),
    }
    return Exhibit(**{**known, **fields})


def campaign(findings=(), **fields):
    known = {
        "run": "r1",
        "seed": 7,
        "ops": ("softmax",),
        "subjects": (CLEAN, MINE),
        "environment": HERE,
        "started": "2026-11-21T10:00:00+00:00",
        "finished": True,
        "cases": 1000,
        "judged": 3000,
        "seconds": 2.0,
        "by_subject": {"softmax/torch_softmax": {"pass": 999, "unsupported": 1}, "softmax/mine": {"mismatch": 100}},
        "findings": tuple(f.id for f in findings),
        "coverage": {
            "softmax|float32|one|contiguous|ones|mine": 300,
            "softmax|float32|one|contiguous|ones|torch_softmax": 7,
        },
        "space": {
            "softmax|float32": Space(
                shapes=("one", "small-tail"),
                layouts=("contiguous", "broadcast", "transposed"),
                values=("ones",),
                subjects=("mine", "torch_softmax", "bug_x"),
            ),
            "softmax|float64": Space(shapes=("one",), layouts=("contiguous",), values=("ones",), subjects=("mine",)),
        },
        "goals": {"long_axis": 3, "nan_input": -1},
        "max_rho": {"softmax/torch_softmax": 0.25},
    }
    return Campaign(**{**known, **fields})


@pytest.fixture(scope="module")
def large():
    return page(large_book())


# what every page must be


def broken_links(p):
    return [link for link in p.links if not link.startswith("#") or link[1:].replace("%20", " ") not in p.ids]


def test_the_large_page_is_whole(large):
    book = large_book()
    assert broken_links(large) == []
    assert len(large.ids) == len(set(large.ids))
    for f in book.findings:
        assert f"finding-{f.id}" in large.ids
        assert "#finding-" + f.id in large.links
        assert "def main():" in large.text[f"code-{f.id}"]
    assert [t for t, _ in large.elements if t in {"h1", "main", "nav"}] == ["nav", "main", "h1"]


def test_headings_leave_no_level_out(large):
    levels = [int(t[1]) for t, _ in large.elements if re.fullmatch(r"h\d", t)]
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_the_large_page_is_small(large):
    assert len(large.source.encode()) < 3_000_000


def test_nothing_comes_from_outside(large):
    assert re.findall(r"https?://", large.source) == []
    assert re.findall(r"@import|url\(|@font-face", large.source) == []
    assert [a for _, a in large.elements if "src" in a or a.get("href", "#")[:1] not in {"#", "d"}] == []
    (policy,) = [a["content"] for a in large.having("meta") if "http-equiv" in a]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]


def test_every_picture_says_what_it_shows(large):
    pictures = large.having("svg")
    assert len(pictures) > 200
    assert [a for a in pictures if a.get("role") != "img" or not a.get("aria-label")] == []


def test_the_same_book_gives_the_same_page():
    assert html.render(large_book(12, 1000)) == html.render(large_book(12, 1000))


# what it tells


def test_the_verdict_stands_first():
    f = finding()
    p = page(Book((f,), campaign([f], fresh=(f.id,))))
    assert "1 finding in 1 kernel" in p.all_words
    assert "1 finding nobody had met before this run" in p.all_words
    assert "run r1 seed 7 started 2026-11-21 10:00 UTC took 2 s" in p.all_words
    assert "outputs a second 1,500" in p.all_words
    assert p.having("span", class_="chip bad")


def test_no_finding_looks_good_too():
    p = page(Book((), campaign(subjects=(CLEAN,), goals={"long_axis": 3})))
    assert "No findings in 3,000 outputs" in p.all_words
    assert p.having("h1", class_="verdict good")
    assert p.having("form") == []
    assert broken_links(p) == []


@pytest.mark.parametrize(
    ("book", "words", "tone"),
    [
        (Book(()), "No findings, and no run that looked for them", "open"),
        (Book((), campaign(judged=0)), "Nothing was judged", "open"),
        (Book((), campaign(subjects=(CLEAN, PLANTED))), "No findings in 3,000 outputs beside the seeded bugs", "bad"),
        (Book((finding(PLANTED),)), "Only findings about seeded bugs", "open"),
        (
            Book((finding(expect="fail", reason="known"),), campaign()),
            "1 finding in 1 kernel, none of them news",
            "calm",
        ),
        (Book((finding(),), campaign()), "1 finding in 1 kernel", "bad"),
    ],
)
def test_verdicts(book, words, tone):
    assert (sentence(book), tone_of(book)) == (words, tone)
    assert words in page(book).all_words


def test_weak_budgets_interruptions_and_missed_plants_are_said():
    c = campaign(subjects=(CLEAN, PLANTED), estimated=("softmax",), finished=False, known_hits=12)
    words = page(Book((), c)).all_words
    assert "The error budget of softmax is estimated from the formula: weaker than a derived one" in words
    assert "1 seeded bug was not found: softmax/bug_x." in words
    assert "The run was interrupted" in words
    assert "12 further failures had been met before." in words


def test_of_many_missed_plants_the_first_are_named():
    many = tuple(PLANTED.but(name=f"bug_{i}") for i in range(37))
    words = page(Book((), campaign(subjects=many[:8]))).all_words
    named = ", ".join(f"softmax/bug_{i}" for i in range(6))
    assert f"8 seeded bugs were not found: {named} and 2 more." in words
    assert f"37 seeded bugs were not found: {named} and 31 more." in page(Book((), campaign(subjects=many))).all_words
    seven = page(Book((), campaign(subjects=many[:7]))).all_words
    assert f"7 seeded bugs were not found: {named} and softmax/bug_6." in seven


def test_planted_bugs_have_their_own_table():
    f = finding(PLANTED)
    p = page(Book((f,), campaign([f], subjects=(MINE, PLANTED), by_subject={"softmax/bug_x": {"mismatch": 41}})))
    assert "1 of 1 seeded bugs earned their verdict" in p.all_words
    assert f"41{TIMES} softmax float32 x=1x2:ones" in p.all_words
    assert f"finding-{f.id}" in p.ids
    assert p.having("form") == []


def test_holes_are_named():
    c = coverage_of(campaign())
    assert {lack.name: lack.words for lack in c.holes} == {
        "softmax float32": "shape class small-tail; layouts broadcast or transposed; kernel bug_x",
        "softmax float64": "any input at all",
    }
    assert {lack.name: lack.words for lack in c.thin} == {"softmax float32": "kernel torch_softmax"}
    assert c.unreached == ["nan input"]
    planted = coverage_of(campaign(subjects=(CLEAN, MINE, PLANTED)))
    assert "bug_x" not in " ".join(lack.words for lack in planted.holes)


def test_holes_stand_out_in_the_maps():
    shapes, values, kernels = coverage_of(campaign()).maps
    assert shapes.columns == ("one", "small-tail", "contiguous", "broadcast", "transposed")
    assert [c.shade for c in shapes.rows[0].cells] == ["h2", "hole", "h2", "hole", "hole"]
    assert [c.shade for c in shapes.rows[1].cells] == ["hole", "none", "hole", "none", "none"]
    assert [c.label for c in values.rows[0].cells] == ["307"]
    assert [(r.name, [c.shade for c in r.cells]) for r in kernels.rows] == [
        ("mine", ["h2", "hole"]),
        ("torch_softmax", ["thin", "none"]),
        ("bug_x", ["hole", "none"]),
    ]


def test_a_run_that_does_not_know_its_space_names_no_holes():
    c = coverage_of(campaign(space={}))
    assert c.verdict == "The run does not say what its cases could have been, so holes cannot be named."
    assert c.holes == ()
    assert len(c.maps) == 3


def test_kernels_say_how_fast_and_how_close_they_were():
    said = Statistics(
        timed=10,
        nanoseconds=500_000,
        elements=10_000,
        rho=(5, 0, 3),
        ulps=(1, 2, 0, 4),
        classes={"nan": 3},
        skipped={"float64 is too wide": 2},
    )
    p = page(Book((), campaign(statistics={"softmax/mine": said})))
    assert f"softmax/ mine numpy 100 0 {DASH} 100 50 20M" in p.all_words
    assert "nan in 3 outputs" in p.all_words
    assert "2 cases: float64 is too wide" in p.all_words
    labels = [a["aria-label"] for a in p.having("svg")]
    assert f"Outputs by largest distance in ULP. 0: 1; 1: 2; 3{DASH}4: 4." in labels


def test_a_finding_shows_what_it_has():
    f = finding(
        exhibit=shown(detail="Traceback: boom"),
        variants=(
            Variant(subject="softmax/mine", dtype="float32", kind=Kind.MISMATCH, rho=7.25),
            Variant(subject="softmax/torch_softmax", dtype="float16", kind=Kind.PASS, rho=0.25),
        ),
        gates=("fails only if cols % 4 != 0",),
        probability=0.4,
        history=(Event(at="2026-11-21T10:19:31+00:00", state=State.CONFIRMED, what="5 of 5 runs failed"),),
        expect="fail",
        reason="waits for a repair",
        expires="9999-01-01",
    )
    p = page(Book((f,), campaign([f])))
    for words in (
        "mine is alone",
        "fails only if cols % 4 != 0",
        "shows in 40% of runs",
        "expected to fail until 9999-01-01: waits for a repair",
        "Smallest case that fails 2 elements softmax float32 x=1x2:ones",
        "As it was found 511 elements",
        "[0, 0] 1 0.5 1e-07 7.25 8,388,608 0x3f800000",
        "cosine >= 0.999 1 would pass it",
        "NMSE <= 5e-4 1 would fail it",
        "mine mismatch 7.25",
        "torch_softmax pass 0.25",
        "2026-11-21 10:19 UTC confirmed 5 of 5 runs failed",
        "Traceback: boom",
        f"kassay replay {f.id}",
    ):
        assert words in p.all_words, words
    assert {a["data-name"] for a in p.having("button") if "data-name" in a} == {f"reproduce_{f.id}.py"}


def test_the_bits_that_were_wanted_stand_where_nothing_else_tells():
    alike = Element(index=(0, 1), got=math.nan, wanted=math.nan, bits=0x7FC00000, wanted_bits=0xFFC00001)
    plain = Element(index=(0, 0), got=1.0, wanted=0.5, bits=0x3F800000, wanted_bits=0x3F000000)
    words = page(Book((finding(exhibit=shown(elements=(alike, plain))),))).all_words
    assert "nan (0xffc00001)" in words
    assert "0x3f000000" not in words


def test_a_finding_of_a_law_shows_the_other_case():
    f = finding(exhibit=shown(partner=case((1, 3)), factor=2.0))
    words = page(Book((f,))).all_words
    assert "The other case of the pair; its output must be 2 times the other's 3 elements" in words


def test_a_law_says_which_part_of_the_other_output_and_how_closely():
    shape = {"view": ((None, None, None), (-1, None, None)), "whole": (4, 3), "within": 2.0}
    f = finding(exhibit=shown(partner=case((1, 3)), **shape))
    must = "its output must be [:, -1:] of the other's, to within 2 error budgets and rounding"
    said = f"the other case of the pair; {must}"
    assert f"T{said[1:]} 3 elements" in page(Book((f,))).all_words
    assert f"{said}\n  {f.exhibit.partner.label}\n" in closeup(Book((f,)), f)
    backwards = shown(partner=case((1, 3)), factor=-1.0, view=((None, None, -1),))
    assert relation(backwards) == "; its output must be -1 times [::-1] of the other's"
    assert relation(shown(partner=case((1, 3)))) == ""


def test_findings_of_one_group_link_to_one_another():
    a, b = finding(), finding(pattern="tail")
    links = page(Book((a, b), campaign([a, b]))).links
    assert links.count(f"#finding-{a.id}") == 3  # in the list, from the other one, and its own id
    assert links.count(f"#finding-{b.id}") == 3


# what comes from records is never trusted


def nasty_finding():
    nasty = Subject(op="softmax", name=NASTY, backend=NASTY, path=NASTY, function="run", summary=NASTY)
    return finding(
        nasty,
        message=NASTY,
        case=Case(
            op="softmax",
            tensors={NASTY: TensorRecipe(shape=(1,), dtype=NASTY, layout=NASTY, fill=Fill(distribution=NASTY))},
            attrs={NASTY: NASTY},
        ),
        exhibit=shown(
            output=NASTY, dtype=NASTY, detail=NASTY, opinions=(Opinion(check=NASTY, value=NASTY, passes=True),)
        ),
        variants=(Variant(subject=NASTY, dtype=NASTY, kind=Kind.CRASHED),),
        gates=(NASTY,),
        history=(Event(at=NASTY, state=State.NEW, what=NASTY),),
        aliases=(NASTY,),
        environment=Environment(python=NASTY, platform=NASTY, machine=NASTY, packages={NASTY: NASTY}),
        contract=NASTY,
        first_seen=NASTY,
        found_by=NASTY,
        expect="fail",
        reason=NASTY,
    )


def nasty_campaign(f):
    return campaign(
        [f],
        run=NASTY,
        ops=(NASTY,),
        subjects=(f.subject, CLEAN),
        revision=NASTY,
        environment=f.environment,
        options={NASTY: NASTY},
        estimated=(NASTY,),
        contracts={NASTY: NASTY},
        goals={NASTY: -1},
        space={f"{NASTY}|{NASTY}": Space(shapes=(NASTY,), layouts=(NASTY,), values=(NASTY,), subjects=(NASTY,))},
        coverage={f"{NASTY}|{NASTY}|{NASTY}|{NASTY}|{NASTY}|{NASTY}": 3},
        statistics={f.subject.key: Statistics(classes={NASTY: 1}, skipped={NASTY: 1}, rho=(1,))},
    )


def test_markup_in_records_stays_text(monkeypatch):
    monkeypatch.setattr(html, "reproducer", lambda _: NASTY)
    f = nasty_finding()
    p = page(Book((f,), nasty_campaign(f), corpus=NASTY))
    assert [t for t, _ in p.elements if t in {"script", "img"}] == ["script"]
    assert [a for _, a in p.elements if any(name.startswith("on") for name in a)] == []
    assert p.text[f"code-{f.id}"] == NASTY.replace("\x1b", "\u241b").replace("\x00", "\u2400")
    assert "\x00" not in p.source
    assert p.all_words.count("<script>alert(1)</script>") > 30


def test_a_recipe_that_cannot_be_made_has_its_section_all_the_same(monkeypatch):
    def refuse(_):
        raise UsageError("distribution 'gone' is not known")

    monkeypatch.setattr(html, "reproducer", refuse)
    f = finding()
    assert page(Book((f,))).text[f"code-{f.id}"] == "# There is no reproducer: distribution 'gone' is not known\n"


def test_text_that_is_no_unicode_can_be_written():
    html.render(Book((finding(message="\udc80 broke"),))).encode()


# what may be missing or strange


STRANGE = {
    "without an exhibit": {},
    "an exhibit of nothing": {"exhibit": Exhibit()},
    "no message": {"message": ""},
    "a number as output": {
        "exhibit": shown(
            shape=(),
            elements=(Element(index=(), got=math.nan, wanted=-math.inf, bound=math.inf, rho=math.inf),),
            picture=Picture(lines=("#",), height=1, width=1),
        )
    },
    "an empty output": {"exhibit": shown(shape=(0, 3), elements=(), picture=Picture(lines=(), height=0, width=3))},
    "a huge label": {"case": Case(op="softmax", tensors={"x" * 9000: TensorRecipe(shape=(1,) * 60, dtype="int8")})},
    "a scalar input": {"case": case(())},
    "bits of no known type": {"case": case(pokes=((0, 1 << 40),)), "exhibit": shown(dtype="float7")},
    "many elements written out": {"case": case((1, 100), pokes=tuple((i, i) for i in range(100)))},
    "the original is as small": {"original": case()},
    "metrics that are no numbers": {
        "verdict": Verdict(
            kind=Kind.MISMATCH,
            rule="a rule of old",
            measurements=(
                Measurement(metric="nmse", value=math.nan),
                Measurement(metric="rho", value=math.inf, limit=1.0, index=(), got=math.nan, wanted=-math.inf),
                Measurement(metric="psnr", value=-math.inf),
            ),
        )
    },
    "a subject nobody knows": {"subject": Subject(op="gone", name="stranger", backend="none")},
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize(
    "run", [None, campaign(), campaign(timeline=(Moment(seconds=1, judged=1, cells=1, findings=0),))]
)
def test_strange_findings_have_their_section(strange, run):
    f = finding(**strange)
    p = page(Book((f,), run))
    assert f"finding-{f.id}" in p.ids
    assert broken_links(p) == []


def test_a_run_that_has_just_begun():
    p = page(Book((), Campaign(run="r", seed=1, environment=HERE)))
    assert "Nothing was judged" in p.all_words


def test_the_maker_makes_findings_that_differ():
    maker = Maker(Random(3))
    made = maker.findings(maker.subjects(), 20)
    assert len({f.id for f in made}) == 20
