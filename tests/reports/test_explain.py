"""Every verdict and every rule is explained, with the numbers of the code and with examples that the tool is run on."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Signature, Verdict
from kernel_assay.fuzz.campaign.batches import LAW_EVERY, MOST_DEATHS
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.cli.replay import _line
from kernel_assay.fuzz.generation.engines import FIRST_CHECKED
from kernel_assay.fuzz.replay.replay import Item, replay
from kernel_assay.fuzz.triage.failures import Failure, Observed, event, file
from kernel_assay.fuzz.triage.shrinker import HANG_SECONDS
from kernel_assay.fuzz.triage.triage import CONFIRMATIONS
from kernel_assay.kernels.backends import cuda
from kernel_assay.kernels.backends.simt import schedule
from kernel_assay.kernels.backends.simt.toolchain import Mode, missing
from kernel_assay.kernels.backends.support import guard
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.kernels.sandbox import crash_attribution
from kernel_assay.kernels.worker import exceptions, zygote
from kernel_assay.oracles.judging import judge, laws
from kernel_assay.reports.explain import explain, related, sections, short, topics

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {path.stem: path.read_text("utf-8") for path in sorted((ROOT / "reports" / "verdicts").iterdir())}
SOURCES = [path for folder in ("oracles", "fuzz/cliffs") for path in (ROOT / folder).rglob("*.py")]
KINDS = {kind.value for kind in Kind}
SECTIONS = ["How it is decided", "What usually causes it", "What to do", "Example"]
NEVER = {"inconclusive"}
"""Kinds that no kernel can earn with the ops of this version."""
TIMED = "cliff"
"""It is told of times, which no page can foretell (tests/fuzz/test_cliff_command.py)."""
REFUSED = "build_failed"
"""Its example is refused before a run."""
LONGEST = {"python": (35, 8), "cpp": (42, 16)}
"""Lines of a text, and of the kernel in it: CUDA C++ says in six more how it is launched."""


def rules_of(source):
    """Every rule that a verdict can name, read from the calls that make verdicts; of `law:NAME` the part before."""
    tree = ast.parse(source)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "rule":
            found |= _strings(node.value)
        if isinstance(node, ast.Call):
            method = isinstance(node.func, ast.Attribute) and node.func.attr == "verdict"
            said = [node.args[1]] if method else [k.value for k in node.keywords if k.arg == "rule"]
            found |= {word for value in said for word in _strings(value)}
    return found - {""}


def _strings(node):
    constants = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return {text.partition(":")[0] for text in constants}


@cache
def rules_in_the_code():
    return {rule for path in SOURCES for rule in rules_of(path.read_text("utf-8"))}


# ---- the texts -------------------------------------------------------------------------------------------------------


def test_every_verdict_and_every_rule_is_explained_and_nothing_else():
    assert len(rules_in_the_code()) > 8
    assert len(topics()) == len(set(topics()))
    assert set(topics()) == KINDS | rules_in_the_code()
    assert KINDS <= set(TEXTS) <= set(topics())


def test_a_new_rule_would_be_noticed():
    source = (
        'rule = "a" if x else "b"\ne.verdict(K.X, rule, "text")\ne.verdict(K.X, f"law:{n}", "t")\nV(kind=k, rule="c")'
    )
    assert rules_of(source) == {"a", "b", "c", "law"}


def test_kinds_and_rules_name_one_another():
    for topic in topics():
        others = KINDS if topic not in KINDS else rules_in_the_code()
        assert set(related(topic)) <= others
        assert all(topic in related(other) for other in related(topic))
    assert {topic for topic in topics() if not related(topic)} == {*NEVER, "pass"}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_has_its_form(name):
    text = TEXTS[name]
    head, sentence, listed, _ = text.split("\n\n", 3)
    assert head == f"# {name}"
    assert re.fullmatch(r"[A-Z].*[^.]\.", sentence)
    assert not re.search(r"[.!?] ", sentence)
    assert sentence == short(name)
    assert re.fullmatch(rf"{'rules' if name in KINDS else 'kinds'}: [a-z_]+(, [a-z_]+)*", listed)
    assert list(sections(name)) == SECTIONS
    assert all(sections(name).values())
    assert 13 <= len([line for line in text.splitlines() if line]) <= LONGEST[language_of(name)][0]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert max(map(len, prose.splitlines())) <= 120


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_text_refers_to_exists(name):
    named = re.findall(r"`([a-z_]+)`", TEXTS[name])
    words = {"smallest", "consensus", "condition", "tf32", "exp", "accumulate", "asarray", "element"}
    words |= {"__syncthreads", "__syncwarp", "__ballot_sync", "__device__"}
    assert set(named) <= words | set(topics())


# ---- the words on the command line -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("rho", "rho"),
        ("law:negation", "law"),
        ("guard", "out_of_bounds"),
        ("class", "nonfinite"),
        ("Wrong-Shape", "wrong_shape"),
    ],
)
def test_a_topic_is_found(asked, name):
    assert explain(asked) == TEXTS[name]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("mismach", "'mismach' is neither a verdict nor a rule; did you mean mismatch?"),
        ("wrong_size", "'wrong_size' is neither a verdict nor a rule; did you mean wrong_shape or wrong_dtype?"),
        ("", f"'' is neither a verdict nor a rule; there are {', '.join(topics())}"),
        ("42", f"'42' is neither a verdict nor a rule; there are {', '.join(topics())}"),
    ],
)
@pytest.mark.parametrize("question", [explain, short, sections, related])
def test_an_unknown_topic_is_one_sentence(question, asked, said):
    with pytest.raises(UsageError) as refused:
        question(asked)
    assert str(refused.value) == said


# ---- the facts -------------------------------------------------------------------------------------------------------

FACTS = [
    ("out_of_bounds", "two red zones of {} bytes", guard.ZONE),
    ("unwritten", "is 0x{0[0]:X} before the first run and 0x{0[1]:X} before the second", guard.POISONS),
    ("nondeterministic", "(0x{0[0]:X} in every byte, then 0x{0[1]:X})", guard.POISONS),
    ("nonfinite", "hold the byte 0x{:X}", guard.GAP),
    ("nondeterministic", "is run {} times more", {5: "five"}[CONFIRMATIONS]),
    ("z", "is 1.05 + 3 / sqrt(rows)", judge.Z_FLOOR == 1.05 and judge.Z_SPREAD == 3.0),
    ("law", "one case in {} is run", {4: "four"}[LAW_EVERY]),
    ("race", "the first {} cases and in half of the others", FIRST_CHECKED),
    ("race", "in half of the others (large ones, and built-in kernels, in {})", {4: "a quarter"}[schedule.CHECKED]),
    ("check", "The second run of many cases (see `race`)", True),
    ("uninitialized", "(see `race` for how often)", True),
    ("law", "outside 2**-30 to 2**30", laws.TAME == (2.0**-30, 2.0**30)),
    ("raised", "which {} characters are kept", exceptions.MAX_MESSAGE),
    ("crashed", "must do so {}:", {2: "twice"}[crash_attribution.GUILTY_DEATHS]),
    ("crashed", "after {} the kernel is skipped", {3: "three"}[MOST_DEATHS]),
    ("timeout", "hangs in {} cases of a batch", {3: "three"}[MOST_DEATHS]),
    ("unsupported", "hung in {} other cases", {3: "three"}[MOST_DEATHS]),
    ("crashed", "The last {} bytes", zygote.TAIL),
    ("timeout", "{} is enough", {0.5: "half a second"}[HANG_SECONDS]),
    ("timeout", "`--timeout` says (10 if", True),
    ("out_of_memory", "`--memory` megabytes (4096 if", True),
]


@pytest.mark.parametrize(("topic", "words", "fact"), FACTS)
def test_the_numbers_are_those_of_the_code(topic, words, fact):
    assert fact
    assert words.format(fact) in " ".join(TEXTS[topic].split())


# ---- the examples ----------------------------------------------------------------------------------------------------


def block(name, language):
    """The lines of the only block of that language in a text's example, or an empty string."""
    found = re.findall(rf"^```{language}\n(.*?)^```", sections(name)["Example"], re.MULTILINE | re.DOTALL)
    assert len(found) <= 1
    return found[0] if found else ""


def language_of(name):
    """Which of the languages of kernels the example of a text is in."""
    return "cpp" if block(name, "cpp") else "python"


def kernel_of(name):
    return block(name, language_of(name))


_TENSOR = re.compile(
    r"(?P<name>\w+)=(?P<shape>[\dx]+):(?P<of>\w+)(?:\*(?P<scale>\d+))?(?:#(?P<seed>\d+))?(?::(?P<type>\w+))?"
)


def case_of(label):
    """The case that a label speaks of, as far as the examples need it."""
    op, usual, *words = label.split()
    tensors, attrs = {}, {}
    for word in words:
        if found := _TENSOR.fullmatch(word):
            fill = Fill(distribution=found["of"], scale=float(found["scale"] or 1), seed=int(found["seed"] or 0))
            shape = tuple(map(int, found["shape"].split("x")))
            tensors[found["name"]] = TensorRecipe(shape=shape, dtype=found["type"] or usual, fill=fill)
        else:
            name, _, value = word.partition("=")
            attrs[name] = value if value.isalnum() else float(value)
    case = Case(op=op, tensors=tensors, attrs=attrs)
    assert case.label == label
    return case


def label_of(name):
    return re.match(r"[a-z ]+: \w+/\w+  (.*)", block(name, "text"))[1]


def write_kernel(name, folder):
    """The kernel of an example as a file, named as its first line says."""
    code = kernel_of(name)
    path = folder / re.match(r"(?:#|//) (\w+\.(?:py|cu))(: .*)?\n", code)[1]
    assert not path.exists()
    path.write_text(code, "utf-8")
    return path


RUN = sorted(n for n in set(TEXTS) - NEVER - {REFUSED, TIMED} if language_of(n) == "python" or not missing())


def subject_of(name, folder):
    """The kernel of an example, compiled if it has to be: what takes long on a first day is not the kernel's time."""
    subject = user_subject(str(write_kernel(name, folder)), (case_of(label_of(name)).op,))
    if subject.backend == "cuda":
        cuda.CudaLoader().load(Path(subject.path), subject.function).build(Mode.CHECK)
    return subject


BEFORE = {"stateful": "silu float32 x=1x1:zeros"}
"""What must run before the case of an example."""


def item_of(name, subject):
    """What is run again: the case of an example, or a finding where it takes more than one."""
    case = case_of(label_of(name))
    if name not in BEFORE:
        return Item(name, case, subject)
    signature = Signature(op=case.op, subject=subject.name, kind=name, rule="sequence", dtype=case.dtype)
    failure = Failure(case, subject, Verdict(kind=name, rule="sequence", signature=signature))
    seen = Observed(case, failure.verdict, before=(case_of(BEFORE[name]),))
    return Item(name, case, subject, file(failure, seen, [event(State.NEW, "")]))


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """What comes of every example, under the short timeout that one of them names."""
    folder = tmp_path_factory.mktemp("examples")
    items = [item_of(name, subject_of(name, folder)) for name in RUN]
    python = [item for item in items if item.subject.backend != "cuda"]
    compiled = [item for item in items if item.subject.backend == "cuda"]
    done = replay(python, None, timeout=2.0, memory_mb=4096)
    done += replay(compiled, None, timeout=30.0, memory_mb=4096)  # to find a line takes another process
    return {r.item.name: r for r in done}


def test_only_what_cannot_occur_has_no_example():
    assert {name for name in TEXTS if not kernel_of(name)} == NEVER
    assert {name for name in TEXTS if not block(name, "text")} == NEVER
    assert all("this version" in sections(name)["Example"] for name in NEVER)


@pytest.mark.parametrize("name", sorted(set(TEXTS) - NEVER))
def test_an_example_is_short(name):
    assert len([line for line in kernel_of(name).splitlines() if line]) <= LONGEST[language_of(name)][1]


@pytest.mark.parametrize("name", RUN)
def test_an_example_is_told_what_the_text_says(replayed, name):
    verdict = replayed[name].verdict
    rule = "law" if verdict.law else verdict.rule
    assert name in {verdict.kind, rule}
    assert related(verdict.kind) == () if rule == "" else rule in related(verdict.kind)
    said = _line(replayed[name])
    assert [line for line in block(name, "text").splitlines() if line not in said] == []


def test_what_cannot_be_loaded_is_refused(tmp_path):
    subject = user_subject(str(write_kernel(REFUSED, tmp_path)), ("silu",))
    with pytest.raises(UsageError, match=re.escape(block(REFUSED, "text").strip())):
        Examiner([subject])


def test_the_command_prints_the_same(tmp_path):
    label = "silu float32 x=1x1:zeros"
    names = [name for name in RUN if label_of(name) == label]
    assert {"pass", "unsupported", "crashed"} <= set(names)
    assert bool(missing()) != ({"race", "uninitialized"} <= set(names))
    (tmp_path / "case.json").write_text(case_of(label).model_dump_json(), "utf-8")
    files = [word for name in names for word in ("--subject", subject_of(name, tmp_path).path)]
    command = [sys.executable, "-m", "fuzz", "replay", "case.json", *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    lost = [line for name in names for line in block(name, "text").splitlines() if line not in done.stdout]
    assert lost == []
