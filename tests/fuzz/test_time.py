"""`kassay time`: interleaved rounds, judged outputs, times that cannot be true, baselines, shapes, tables."""

import json
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.timing import Peaks, Timed, TimingRun, noise_of
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz import api
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.timing import baselines, shapes, text
from kernel_assay.fuzz.timing.costs import bytes_of, least_bytes_of, operations_of, too_fast
from kernel_assay.fuzz.timing.measure import measure
from kernel_assay.fuzz.timing.rounds import TimingLimits
from kernel_assay.oracles.catalog import builtin_ops, contract_of
from kernel_assay.oracles.spec.plain_case import plain_case

HEAD = """import os
import numpy as np
OP = "row_sum"
BACKEND = "numpy"
DTYPES = ("float32",)
KEPT = {}
CALLS = [0]


def run(x):
    CALLS[0] += 1
"""
RIGHT = "    return x.astype(np.float64).sum(axis=-1).astype(x.dtype)\n"
SLOW = "    np.sin(np.ones(400_000))\n" + RIGHT
WRONG = "    return x[:, :-1].astype(np.float64).sum(axis=-1).astype(x.dtype)\n"
BY_POINTER = """    key = x.__array_interface__["data"][0], x.shape
    if key not in KEPT:
        KEPT[key] = x.astype(np.float64).sum(axis=-1).astype(x.dtype)
    return KEPT[key].copy()
"""
BY_VALUES = """    key = float(x[0, 0]), float(x[-1, -1])
    if key not in KEPT:
        np.sin(np.ones(400_000))
        KEPT[key] = x.astype(np.float64).sum(axis=-1).astype(x.dtype)
    return KEPT[key].copy()
"""
AHEAD = """    import threading, time
    key, mark = x.__array_interface__["data"][0], x.tobytes()

    def work(array, mark):
        np.sin(np.ones(400_000))
        KEPT[key] = array, mark, array.astype(np.float64).sum(axis=-1).astype(array.dtype)

    def watch():
        while True:
            for array, mark, _ in list(KEPT.values()):
                if (now := array.tobytes()) != mark:
                    time.sleep(0.0005)
                    if array.tobytes() == now:
                        work(array, now)
            time.sleep(0.0002)

    if CALLS[0] == 1:
        threading.Thread(target=watch, daemon=True).start()
    if KEPT.get(key, "  ")[1] != mark:
        work(x, mark)
    return KEPT[key][2].copy()
"""
DIES = "    if CALLS[0] > 20:\n        os.abort()\n" + RIGHT
HANGS = "    while CALLS[0] > 20:\n        pass\n" + RIGHT
RAISES = '    raise ValueError("no")\n'
TAMPERS = (
    """    from kernel_assay.kernels.worker import exceptions
    exceptions._perf_counter_ns = lambda: CALLS[0]
"""
    + RIGHT
)
QUICK = TimingLimits(seconds=1.0)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, no_references):
    monkeypatch.chdir(tmp_path)


def kernels(folder, **bodies):
    """Subjects of these names."""
    for name, body in bodies.items():
        (folder / f"{name}.py").write_text(HEAD + body)
    return UserKernels(tuple(f"{name}.py" for name in bodies)).subjects(["row_sum"])


def row_sum_case(rows=64, cols=100):
    return plain_case(contract_of("row_sum"), {"rows": rows, "cols": cols}, "float32")


def by_name(run):
    return {one.subject.partition("/")[2]: one for one in run.timed}


def test_rounds_are_paired_judged_and_in_the_order_of_subjects(tmp_path):
    seen = []
    cases = [row_sum_case(), row_sum_case(3, 7)]
    run = measure(cases, kernels(tmp_path, right=RIGHT, slow=SLOW), limits=QUICK, on_event=seen.append, roofline=False)
    assert [(one.subject, one.case.id) for one in run.timed] == [
        (key, case.id) for case in cases for key in ("row_sum/right", "row_sum/slow")
    ]
    for _, (right, slow) in run.by_case():
        assert len(right.seconds) == len(slow.seconds) >= 2
        assert right.ranked
        assert slow.ranked
        assert slow.median > 3 * right.median > 0
        assert slow.median > 1e-3  # 400,000 sines
        assert right.bytes == sum(4 * n for n in (right.case.elements, right.case.tensors["x"].shape[0]))
    assert {event.number for event in seen} == {0, 1}
    assert run.peaks is None
    assert TimingRun.model_validate(json.loads(json.dumps(run.plain()))) == run


def test_what_is_wrong_or_untrue_is_not_ranked_and_the_others_go_on(tmp_path):
    bodies = {
        "right": RIGHT,
        "wrong": WRONG,
        "pointer": BY_POINTER,
        "values": BY_VALUES,
        "ahead": AHEAD,
        "dies": DIES,
        "raises": RAISES,
        "tampers": TAMPERS,
    }
    run = measure([row_sum_case()], kernels(tmp_path, **bodies), limits=QUICK, roofline=False)
    found = by_name(run)
    assert [name for name, one in found.items() if one.ranked] == ["right"]
    assert found["wrong"].verdict.kind == "mismatch"
    assert found["pointer"].verdict.kind == "mismatch"  # old results for new values in the same place
    for name in ("values", "ahead"):
        assert "there before the call: with new inputs it takes" in found[name].finding
    assert "SIGABRT" in found["dies"].finding + found["dies"].verdict.message
    assert found["raises"].verdict.kind == "raised"
    assert found["tampers"].verdict.kind == "cheated" or "cannot be trusted" in found["tampers"].finding
    assert all(one.failed for name, one in found.items() if name != "right")


@pytest.mark.slow
def test_who_hangs_is_told_and_the_others_go_on(tmp_path):
    subjects = kernels(tmp_path, right=RIGHT, hangs=HANGS)
    limits = api.SandboxLimits(timeout=1.0)
    found = by_name(measure([row_sum_case()], subjects, limits=QUICK, sandbox=limits, roofline=False))
    assert found["right"].ranked
    assert "timeout" in found["hangs"].finding + str(found["hangs"].verdict.kind)


def test_a_clock_that_says_too_little_is_seen_from_outside(tmp_path, monkeypatch):
    """What a worker says is divided by a thousand on its way: its calls in a row take longer than that."""
    from kernel_assay.kernels.sandbox import decode

    def shortened(key, head, specs):
        return real(key, {**head, "nanoseconds": head.get("nanoseconds", 0) // 1000}, specs)

    real = decode.execution_of
    monkeypatch.setattr(decode, "execution_of", shortened)
    found = by_name(measure([row_sum_case()], kernels(tmp_path, slow=SLOW), limits=QUICK, roofline=False))
    assert found["slow"].finding.startswith("its clock cannot be trusted: a call takes")


@pytest.mark.parametrize("said", [0, -5, 10**15])
def test_a_time_that_cannot_be_is_an_error(tmp_path, monkeypatch, said):
    from kernel_assay.kernels.sandbox import decode

    real = decode.execution_of
    monkeypatch.setattr(
        decode, "execution_of", lambda key, head, specs: real(key, {**head, "nanoseconds": said}, specs)
    )
    found = by_name(measure([row_sum_case()], kernels(tmp_path, right=RIGHT), limits=QUICK, roofline=False))
    assert "its clock cannot be trusted" in found["right"].finding
    assert not found["right"].ranked


def test_large_cases_are_timed_and_judged_by_parts(tmp_path):
    case = row_sum_case(9000, 1024)
    found = by_name(measure([case], kernels(tmp_path, right=RIGHT, wrong=WRONG), limits=QUICK, roofline=False))
    assert found["right"].ranked
    assert found["right"].verdict.shares
    assert found["wrong"].failed


def test_other_dtypes_and_declined_cases_are_problems_in_a_sentence(tmp_path):
    case = plain_case(contract_of("row_sum"), {"rows": 4, "cols": 4}, "float16")
    declines = '    raise NotImplementedError("not today")\n'
    subjects = kernels(tmp_path, right=RIGHT, declines=declines)
    run = measure([case], [subjects[0], subjects[1].but(dtypes=())], limits=QUICK, roofline=False)
    assert [(one.problem, one.failed) for one in run.timed] == [
        ("it is for float32 only", False),
        ("not today", False),
    ]


def test_noise_is_the_error_of_the_median():
    rng = np.random.default_rng(1)
    found = [noise_of(tuple(rng.normal(1.0, 0.1, 100))) for _ in range(300)]
    medians = [np.median(rng.normal(1.0, 0.1, 100)) for _ in range(300)]
    assert np.mean(found) == pytest.approx(np.std(medians), rel=0.15)
    assert noise_of((1.0,)) == float("inf")
    assert noise_of((2.0, 2.0, 2.0)) == 0.0


def timed(seconds, **more):
    return Timed(subject="row_sum/a", case=row_sum_case(), seconds=(seconds,), **more)


def test_faster_than_physics():
    peaks = Peaks(device="here", at="", bandwidth=1e9, products={"float32": 1e9}, cache=10**6)
    moved = {"bytes": 11 * 10**6, "least_bytes": 11 * 10**6}  # a cache holds a million of them
    assert peaks.least_seconds(timed(1.0, **moved)) == pytest.approx(0.011)
    assert too_fast([timed(0.0094, **moved)], peaks, 1) != {}
    assert too_fast([timed(0.0096, **moved)], peaks, 1) == {}  # 5 % are let be
    assert too_fast([timed(0.0094, **moved)], peaks, 2) == {}
    assert too_fast([timed(1e-9, bytes=10**6, least_bytes=10**6)], peaks, 1) == {}
    product = {"operations": 10**7, "bytes": 0, "product": "float32"}
    assert too_fast([timed(0.009, **product)], peaks, 1) != {}
    assert too_fast([timed(0.011, **product)], peaks, 1) == {}
    assert too_fast([timed(0.009, **{**product, "product": "float8_e5m2"})], peaks, 1) == {}  # nobody measured that
    assert too_fast([timed(0.009, problem="no", **product)], peaks, 1) == {}


def test_the_peaks_are_measured_again_before_anybody_is_accused(tmp_path, monkeypatch):
    from kernel_assay.fuzz.timing import measure as measuring

    asked = []

    def peaks_of(place, *, anew=False):
        asked.append(anew)
        return Peaks(device="here", at="", bandwidth=1e12 if anew else 1.0)

    monkeypatch.setattr(measuring, "peaks_of", peaks_of)
    run = measure([row_sum_case()], kernels(tmp_path, right=RIGHT), limits=QUICK)
    assert asked == [False, True]
    assert not run.failed
    monkeypatch.setattr(measuring, "peaks_of", lambda place, anew=False: Peaks(device="here", at="", bandwidth=1.0))
    run = measure([row_sum_case()], kernels(tmp_path, right=RIGHT), limits=QUICK)
    assert run.timed[0].finding.startswith("it is faster than this machine can be")


@pytest.mark.parametrize(
    ("op", "dims", "operations", "moved"),
    [
        ("gemm", {"m": 3, "n": 5, "k": 7}, 2 * 3 * 5 * 7, 4 * (3 * 7 + 7 * 5 + 3 * 5)),
        ("gemv", {"m": 3, "k": 7}, 2 * 3 * 7, 4 * (3 * 7 + 7 + 3)),
        ("qgemv", {"m": 4, "blocks": 2}, 2 * 4 * 64, 4 * 2 * 18 + 2 * 36 + 4 * 4),
        ("softmax", {"rows": 3, "cols": 5}, 15, 4 * 30),
        ("embedding", {"vocab": 1000, "tokens": 3, "width": 8}, 8000, 4 * 3 * 8 + 8 * 3 + 4 * 3 * 8),
        (
            "attention",
            {"batch": 2, "kv_heads": 1, "group": 3, "queries": 5, "keys": 7, "head": 8},
            4 * 2 * 3 * 5 * 7 * 8,
            4 * (2 * 2 * 3 * 5 * 8 + 2 * 2 * 7 * 8),
        ),
    ],
)
def test_operations_and_bytes(op, dims, operations, moved):
    contract = contract_of(op)
    case = plain_case(contract, dims)
    case = case.but(tensors={name: t for name, t in case.tensors.items() if name not in contract.optional})
    assert operations_of(contract, case) == operations
    assert bytes_of(contract, case) == least_bytes_of(contract, case) == moved


def test_a_broadcast_input_has_fewer_bytes():
    case = row_sum_case(8, 16)
    (name,) = [one for one in LAYOUTS if one.startswith("broadcast")][:1] or [""]
    wide = case.but(tensors={"x": case.tensors["x"].but(layout=name)})
    assert bytes_of(contract_of("row_sum"), wide) < bytes_of(contract_of("row_sum"), case)


@pytest.mark.parametrize("name", shapes.NAMES)
@pytest.mark.parametrize("op", sorted(builtin_ops()))
def test_each_set_has_shapes_of_each_op(name, op):
    contract = contract_of(op)
    found = shapes.timing_cases(contract, [name], [], 0)
    assert len(found) >= 2
    assert all(min(contract.dims_of(case).values()) >= 1 for case in found)
    assert all(name not in contract.optional for case in found for name in case.tensors)


def test_shapes_of_files(tmp_path):
    contract = contract_of("row_sum")
    (tmp_path / "s.yaml").write_text("- {rows: 3, cols: 5}\n- {rows: 70000, cols: 2}\n")
    (tmp_path / "w.jsonl").write_text('{"inputs": {"x": "float16[6, 7]"}}\n{"inputs": {"x": "int32[2]"}}\n')
    found = shapes.timing_cases(contract, ["s.yaml", "w.jsonl"], ["float32", "float64"], 0)
    assert [(case.dtype, case.tensors["x"].shape) for case in found] == [
        *(("float32", (3, 5)), ("float64", (3, 5)), ("float32", (70000, 2)), ("float64", (70000, 2))),
        ("float16", (6, 7)),
    ]


@pytest.mark.parametrize("op", sorted(builtin_ops()))
def test_the_torch_baseline_is_right(op, monkeypatch):
    pytest.importorskip("torch")
    contract = contract_of(op)
    cases = [shapes.timing_cases(contract, ["small"], [t], 0)[0] for t in contract.dtypes if t != "float64"]
    subjects = baselines.baselines_of(op, ["torch"], "cpu")
    run = measure(cases, subjects, limits=TimingLimits(seconds=0.05), roofline=False)
    assert [(one.subject, one.case.dtype, one.verdict.message) for one in run.timed if one.failed] == []
    left = {one.case.dtype for one in run.timed} - {one.case.dtype for one in run.timed if one.ranked}
    assert all(dtype.startswith("float8") for dtype in left), run.timed


def test_baselines_are_named_in_one_sentence():
    assert [s.key for s in baselines.baselines_of("softmax", ["naive", "builtin:numpy_float32"], "cpu")] == [
        "softmax/numpy_float32"
    ]
    for op, name, why in (
        ("softmax", "fast", "not known"),
        ("softmax", "builtin:nix", "no such implementation"),
        ("softmax", "cublas", "of the GPU"),
        ("softmax", "reference", "there is none"),
    ):
        with pytest.raises(UsageError, match=why):
            baselines.baselines_of(op, [name], "cpu")


def test_a_missing_baseline_is_one_sentence(monkeypatch):
    from kernel_assay.kernels.backend_registry import loader_of

    monkeypatch.setattr(type(loader_of("ggml")), "unavailable", lambda _: "libggml-python is not installed")
    with pytest.raises(UsageError, match=r"^--baseline ggml is not available here, because libggml-python is not"):
        baselines.baselines_of("softmax", ["ggml"], "cpu")


def test_the_command_tells_keeps_and_writes(tmp_path, fuzz):
    kernels(tmp_path, right=RIGHT, wrong=WRONG)
    (tmp_path / "s.json").write_text('[{"rows": 33, "cols": 65}]')
    words = ["time", "--subject", "right.py", "--subject", "wrong.py", "--baseline", "naive", "--shapes", "s.json"]
    words += ["--limit", "1s", "--no-roofline", "--quiet", "--json", "t.json", "--junit", "t.xml", "--seed", "7"]
    code, out, err = fuzz(*words)
    assert code == 1, err
    assert "row_sum float32 x=33x65:normal" in out
    assert "  row_sum/wrong: WRONG, not ranked: mismatch: out[" in out
    assert "speed-up: over row_sum/numpy_float32" in out
    assert max(map(len, out.splitlines())) <= 160
    said = json.loads((tmp_path / "t.json").read_text())
    ranked = {one["subject"]: one for one in said["timed"]}
    assert ranked["row_sum/numpy_float32"]["speed_up"] == 1.0
    assert ranked["row_sum/right"]["median_seconds"] == pytest.approx(np.median(ranked["row_sum/right"]["seconds"]))
    assert [len(test) for test in ET.parse(tmp_path / "t.xml").getroot()] == [0, 1, 0]
    with Store(tmp_path / "corpus") as store:
        (name,) = store.timings()
        assert store.timing(name).run == said["run"] == name


def test_a_reference_of_ones_own_is_a_baseline(tmp_path, fuzz):
    pytest.importorskip("torch")
    (tmp_path / "ref.py").write_text('def twice(x: "float32[rows, cols]"):\n    return x + x\n')
    (tmp_path / "mine.py").write_text("def run(x):\n    return 2 * x\n")
    words = ["time", "--reference", "ref.py:twice", "--subject", "mine.py", "--limit", "1s", "--no-roofline", "--quiet"]
    code, out, err = fuzz(*words)
    assert (code, err) == (0, "")
    assert "speed-up: over twice/reference" in out


def test_the_table_shows_what_is_not_known_as_a_dash():
    run = TimingRun.model_construct(
        **{name: field.default for name, field in TimingRun.model_fields.items() if not field.is_required()},
        run="r",
        version="",
        at="",
        seed=0,
        device="cpu",
        noise=0.005,
        limit=1.0,
        environment=Environment(python="", platform="", machine="m", processor="p"),
    )
    run = run.model_copy(update={"timed": (timed(2e-6), timed(3e-6).but(problem="it takes no mask"))})
    out = "\n".join(text.told(run))
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["a"])
    assert row == ["a", "2.00", "2.00", "2.00", "2.00", "2.00", *"-----"]
    assert "row_sum/a: not timed: it takes no mask" in out


def test_peaks_are_kept_and_measured_anew_where_they_are_damaged(tmp_path, monkeypatch):
    from kernel_assay.kernels.boundary.devices import Place
    from kernel_assay.kernels.sandbox import peaks

    made = []

    def measured(name, place):
        made.append(name)
        return Peaks(device=name, at="", bandwidth=10.0 / len(made), products={"float32": float(len(made))})

    monkeypatch.setattr(peaks, "_measured", measured)
    monkeypatch.setattr(peaks, "cache_folder", lambda: tmp_path / "cache" / "cuda")
    first = peaks.peaks_of(Place("cpu"))
    assert peaks.peaks_of(Place("cpu")) == first
    better = peaks.peaks_of(Place("cpu"), anew=True)
    assert (better.bandwidth, better.products) == (10.0, {"float32": 2.0})
    assert peaks.peaks_of(Place("cpu")) == better
    (file,) = (tmp_path / "cache" / "peaks").iterdir()
    file.write_text("{")
    assert peaks.peaks_of(Place("cpu")).products == {"float32": 3.0}


def test_peaks_by_numpy_alone_are_measured_in_a_process(monkeypatch):
    from kernel_assay.kernels.boundary.devices import Place
    from kernel_assay.kernels.sandbox import peaks

    found = peaks._measured("here", Place("cpu"))
    assert found.bandwidth > 1e8
    assert found.products["float32"] > found.products["float64"] / 2 > 1e7
    assert found.cache > 1 << 20


def test_a_line_of_nvidia_smi_is_read():
    from kernel_assay.kernels import machine

    found = machine._sample(1.5, "1980, 2619, 41, 0x0000000000000044")
    assert (found.mhz, found.memory_mhz, found.celsius, found.throttled) == (
        *(1980, 2619, 41),
        ("power cap", "thermal slowdown by hardware"),
    )
    assert machine._sample(0.0, "[N/A], 1, 2, 0x0") is None
    assert machine._bytes("32768K\n") == 32 << 20


def test_ctrl_c_ends_it_within_seconds(tmp_path):
    kernels(tmp_path, right=RIGHT)
    words = ["time", "--subject", "right.py", "--limit", "60s", "--no-roofline"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel_assay.fuzz", *words],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    time.sleep(6)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - begin < 5
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_processes_are_new_now_and_then(tmp_path, monkeypatch):
    from kernel_assay.fuzz.timing import rounds
    from kernel_assay.kernels.sandbox.sandbox import Sandbox

    renewed = []
    monkeypatch.setattr(rounds, "RENEW", 2)
    real = Sandbox.renew
    monkeypatch.setattr(Sandbox, "renew", lambda self, *keys: (renewed.extend(keys), real(self, *keys)))
    limits = TimingLimits(seconds=4.0)
    run = measure([row_sum_case()], kernels(tmp_path, right=RIGHT, slow=SLOW), limits=limits, roofline=False)
    assert {"row_sum/right", "row_sum/slow"} <= set(renewed)
    assert [one.ranked for one in run.timed] == [True, True]
    assert len({len(one.seconds) for one in run.timed}) == 1
