"""Each kind of job, executed in this process as an executor does it."""

from pathlib import Path

import pytest
from _silu import right

from kernel_assay.corpus.model.campaign import Campaign, Moment
from kernel_assay.fuzz import api
from kernel_assay.fuzz.service.protocol import MADE, SENT, Checkout, JobRequest, JobState, Sources
from kernel_assay.fuzz.service.work.assignment import Work
from kernel_assay.fuzz.service.work.execute import _quiet, execute, load_seconds
from kernel_assay.fuzz.service.work.portable import BUNDLE, Places
from kernel_assay.fuzz.service.work.warm import WarmPools

KERNEL = right("float32")
WRONG = KERNEL + "    out.reshape(-1)[-1:] = 77\n"
REFERENCE = "import numpy as np\ndef reference(x, a):\n    return a * x\n"
SOLUTION = "def solution(x, a):\n    y = a * x\n    if x.shape[1] % 2:\n        y[:, -1] = 0\n    return y\n"
PROBLEM = 'name: scaled\ninputs:\n  x: "float32[rows, cols] -4..4"\nattrs: {a: 1.5}\n'


@pytest.fixture(scope="module")
def pools():
    with WarmPools([]) as made:
        yield made


@pytest.fixture
def do(tmp_path, pools):
    def done(files, request, **more):
        sources = tmp_path / "sources"
        for name, text in files.items():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).write_text(text)
        with pools.scratch() as store:
            places = Places(sources, store)
            return execute(Work(JobRequest.model_validate(request), places, ahead=pools.ahead, **more))

    return done


def test_a_search_says_for_how_long_it_met_nothing_new():
    moments = [Moment(seconds=at, judged=0, cells=cells, findings=0) for at, cells in ((1, 5), (4, 9), (6, 9), (8, 9))]
    assert _quiet(Campaign.model_construct(timeline=tuple(moments), seconds=10.0)) == 6.0
    assert _quiet(Campaign.model_construct(timeline=(), seconds=10.0)) == 0.0


def judging(subject="kernel.py", **settings):
    return {"kind": "judge", "target": {"ops": ["silu"], "subjects": [subject]}, "settings": {"cases": 16, **settings}}


def test_judges_right_and_wrong_kernels_and_replays_and_shrinks_what_it_found(do):
    right = do({"kernel.py": KERNEL}, judging(), seed=1)
    assert (right.verdict, right.artifacts) == ("right", ())
    wrong = do({"kernel.py": WRONG}, judging(), seed=1)
    assert (wrong.state, wrong.verdict, len(wrong.findings)) == (JobState.DONE, "wrong", 1)
    (finding,) = wrong.findings
    assert finding.subject.path == f"{SENT}/kernel.py"
    texts = {one.name: one.text for one in wrong.artifacts}
    assert set(texts) == {"report.txt", BUNDLE}
    assert Sources.model_validate_json(texts[BUNDLE]).files == {"sources/kernel.py": WRONG}
    about = {"finding": finding.plain()}
    assert do({"kernel.py": WRONG}, {"kind": "replay", **about}).verdict == "fails"
    assert do({"kernel.py": KERNEL}, {"kind": "replay", **about}).verdict == "fixed"
    shrunk = do({"kernel.py": WRONG}, {"kind": "shrink", **about, "settings": {"seconds": 3}})
    assert shrunk.verdict == "fails"
    assert shrunk.findings[0].case.elements == 1
    assert do({"kernel.py": KERNEL}, {"kind": "shrink", **about}).verdict == "fixed"
    broken = do({"kernel.py": "def run(:\n"}, {"kind": "replay", **about})
    assert (broken.state, broken.verdict) == (JobState.FAILED, "")
    assert "SyntaxError" in broken.reason


def test_the_same_seed_makes_the_same_cases(do):
    runs = [do({"kernel.py": WRONG}, judging(), seed=seed) for seed in (5, 5, 6)]
    assert all(run.verdict == "wrong" for run in runs)
    found = [[f.original.id for f in run.findings] for run in runs]
    assert found[0] == found[1] != found[2]


def test_a_layout_comes_with_its_adapters(do):
    files = {"problem.yaml": PROBLEM, "reference.py": REFERENCE, "solution.py": SOLUTION}
    wrong = do(files, {"kind": "judge", "target": {"folder": "."}, "settings": {"cases": 16}}, seed=3)
    assert wrong.verdict == "wrong"
    finding = wrong.findings[0]
    assert MADE in finding.contract
    about = {"finding": finding.plain(), "target": {"folder": "."}}
    assert do(files, {"kind": "replay", **about}).verdict == "fails"
    mended = SOLUTION.replace("= 0", "= a * x[:, -1]")
    assert do({**files, "solution.py": mended}, {"kind": "replay", **about}).verdict == "fixed"


def test_proves_and_says_what_is_no_job(do):
    proof = {"kind": "prove", "target": {"ops": ["convert"], "subjects": ["numpy_cast"]}}
    missing = do({"a.py": ""}, proof)
    assert missing.state is JobState.FAILED
    good = {"kind": "prove", "target": {"ops": ["silu"], "subjects": ["numpy_float32"]}}
    done = do({"a.py": ""}, good | {"settings": {"dtypes": ["float16"]}})
    assert (done.verdict, done.artifacts[0].name) == ("right", "proof.txt")
    assert "one op" in do({"a.py": ""}, {"kind": "time"}).reason


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("../secret.py", "no path within"),
        ("/etc/passwd.py", "no path within"),
        ("gone.py", "is not among the files"),
        ("kernel.py:run@/usr/bin/python3", "names an interpreter"),
        ("link.py", "no path within"),
    ],
)
def test_runs_nothing_but_what_was_sent(do, tmp_path, subject, said):
    (tmp_path / "secret.py").write_text(KERNEL)
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "link.py").symlink_to(tmp_path / "secret.py")
    outcome = do({"kernel.py": KERNEL}, judging(subject))
    assert outcome.state is JobState.FAILED
    assert said in outcome.reason
    assert str(tmp_path) not in outcome.reason


@pytest.mark.parametrize(
    "change",
    [
        {"contract": "/tmp/evil.py"},
        {"contract": "/tmp/evil.py:reference#0123456789abcdef"},
        {"subject": {"path": "../../../../tmp/evil.py"}},
        {"subject": {"path": "/tmp/evil.py"}},
        {"subject": {"python": "/tmp/evil"}},
    ],
)
def test_a_finding_that_names_other_files_is_refused(do, stored, change):
    said = stored.plain()
    said = {**said, **{k: {**said[k], **v} if isinstance(v, dict) else v for k, v in change.items()}}
    outcome = do({"kernel.py": KERNEL}, {"kind": "replay", "finding": said})
    assert outcome.state is JobState.FAILED
    assert outcome.reason


def test_what_is_stopped_is_cancelled_and_limits_are_the_workers(do):
    stop = api.Stop()
    stop.ask()
    assert do({"kernel.py": KERNEL}, judging(), stop=stop).state is JobState.CANCELLED
    work = Work(JobRequest.model_validate(judging(timeout=60)), Places(Path(), Path()), memory_mb=512)
    assert (work.limits.timeout, work.limits.memory_mb, work.limits.closed) == (60.0, 512, True)


def test_a_commit_without_kernels_of_the_job_is_read_from_its_file(do):
    toml = '[[kernels]]\nfile = "kernel.py"\nop = "silu"\n'
    checkout = Checkout(repository="/r", commit="0" * 40).plain()
    asked = {"kind": "fuzz", "checkout": checkout, "settings": {"peers": ["none"]}}
    assert do({"kernel.py": KERNEL, "kassay.toml": toml}, asked, cases=16).verdict == "right"
    assert "no stored cases" in do({"kernel.py": WRONG}, {"kind": "replay", "checkout": checkout}).message


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [({}, 35), ({"cases": 9}, 35), ({"seconds": 3}, 8), ({"seconds": 3, "device": "cuda"}, 100)],
)
def test_imports_end_a_little_beyond_the_budget(settings, seconds):
    assert load_seconds(JobRequest(kind="judge", settings=settings)) == seconds


SHARES = """import numpy as np
def run(x):
    e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return (e / e.sum(axis=-1, keepdims=True)).astype(x.dtype)
"""
DOUBLE = "INPUTS = {'x': 'float32[rows, cols]'}\ndef double(x):\n    return 2 * x\n"
TOML = """[[kernels]]
file = "softmax.py:run"
op = "softmax"
[[kernels]]
file = "silu.py"
op = "silu"
[[kernels]]
file = "twice.py"
reference = "right.py:double"
[[kernels]]
file = "thrice.py"
reference = "right.py:treble"
[[kernels]]
file = "sub/../silu.py"
op = "silu"
"""
BROKEN = """[[kernels]]
file = "bad.py"
op = "silu"
[[kernels]]
file = "missing.py"
reference = "right.py:double"
[[kernels]]
file = "twice.py:run"
reference = "gone.py:double"
"""


def test_each_kernel_of_a_project_is_held_to_what_its_file_says(do):
    files = {
        "kassay.toml": TOML,
        "softmax.py": SHARES,
        "silu.py": KERNEL,
        "right.py": DOUBLE + DOUBLE.replace("double", "treble").replace("2 *", "3 *").partition("\n")[2],
        "twice.py": "def run(x):\n    return x + x\n",
        "thrice.py": "def run(x):\n    return x + x\n",
    }
    checkout = Checkout(repository="/r", commit="0" * 40).plain()
    done = do(files, {"kind": "fuzz", "checkout": checkout, "settings": {"peers": ["none"]}}, cases=64)
    assert done.verdict == "wrong", done.reason
    assert {finding.subject.path.rpartition("/")[2] for finding in done.findings} == {"thrice.py"}
    files |= {"bad.py": "def run(out, x:\n", "kassay.toml": BROKEN + TOML, "sub/here": ""}
    some = do(files, {"kind": "fuzz", "checkout": checkout, "settings": {"peers": ["none"]}}, cases=64)
    assert {finding.subject.path.rpartition("/")[2] for finding in some.findings} == {"thrice.py"}
    assert "not searched: bad.py does not import: SyntaxError" in some.message
    assert some.message.endswith("; missing.py is not among the files; gone.py is not among the files")
    files["thrice.py"] = "def run(x):\n    return x + x + x\n"
    files["silu.py"] = "import no_such_module_here\n" + KERNEL
    rest = do(files, {"kind": "fuzz", "checkout": checkout, "settings": {"peers": ["none"]}}, cases=16)
    assert (rest.verdict, rest.state) == ("declined", JobState.DONE), rest.reason
    assert "; silu.py does not import: ModuleNotFoundError" in rest.message
    files["kassay.toml"] = BROKEN
    assert do(files, {"kind": "fuzz", "checkout": checkout}, cases=16).reason.startswith("/kassay/sources/bad.py does")
