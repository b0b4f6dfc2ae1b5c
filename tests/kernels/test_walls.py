"""Who leaves the inputs it was given, or writes to them, is seen in some cases; who reads them only never is."""

from itertools import pairwise

import numpy as np
import pytest

from kernel_assay.corpus.inputs.layouts import LAYOUTS
from kernel_assay.corpus.inputs.materialize import materialize_all
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.kernels.backends.support.walls import PAGE, SHARE, Walled, is_walled, order_of, touched, walls_of
from kernel_assay.kernels.catalog import subjects_of, user_subject

PEER = next(s for s in subjects_of("silu") if s.name == "numpy_float32")
RIGHT = "    w = x.astype(np.float64)\n    return (w / (1.0 + np.exp(-w))).astype(x.dtype)\n"
HEAD = 'import ctypes\nimport numpy as np\nOP = "silu"\n\n\ndef run(x):\n'
TORCH = 'import ctypes\nimport torch\nOP = "silu"\nBACKEND = "torch"\n\n\ndef run(x):\n'


def silu(shape=(3, 5), seed=0, layout="contiguous"):
    recipe = TensorRecipe(shape=shape, dtype="float32", layout=layout, fill=Fill(distribution="normal", seed=seed))
    return Case(op="silu", tensors={"x": recipe})


def seeds(walled, half=0):
    """Those whose cases are run between walls, which end with a page (0) or begin with one (1); or are not."""
    orders = ((seed, order_of(silu(seed=seed))) for seed in range(1, 400))
    return [seed for seed, o in orders if is_walled(o) is walled and o // SHARE % 2 == half]


BEYOND = "memory behind its input 'x', at byte {} from its start, which has 60 bytes"
AT_END, AT_BEGINNING, OPEN = seeds(walled=True)[0], seeds(walled=True, half=1)[0], seeds(walled=False)[0]


@pytest.fixture
def judged(tmp_path):
    def judge(body, cases, head=HEAD, right=RIGHT):
        path = tmp_path / "odd.py"
        path.write_text(f"{head}{body}{right}")
        odd = user_subject(str(path), ())
        with Examiner([odd, PEER]) as examiner:
            checked = examiner.check([CheckRequest(case, (odd.key, PEER.key)) for case in cases])
        assert {c.verdicts[PEER.key].kind for c in checked} == {Kind.PASS}
        return [c.verdicts[odd.key] for c in checked]

    return judge


def test_the_share_of_cases_is_as_said_and_a_case_without_seeds_is_one():
    assert is_walled(order_of(silu()))
    share = len(seeds(walled=True) + seeds(walled=True, half=1)) / 399
    assert 0.6 / SHARE < share < 1.5 / SHARE


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (1024,), (64, 17), (0, 3), ()])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", [0, SHARE])
def test_tensors_between_walls_have_their_values_and_strides_and_touch_a_wall(shape, layout, order):
    case = silu(shape, seed=3, layout=layout)
    inputs = materialize_all(case)
    walled = Walled(case.tensors, inputs, order)
    view, (wall,) = walled.views["x"], walled.walls
    assert np.array_equal(view, inputs["x"])
    assert [s // 4 for s in view.strides] == list(LAYOUTS[layout](shape).strides)
    if view.size:
        assert view.ctypes.data == walled.address + wall.start
        assert (wall.start if order else wall.stop) % PAGE == 0
        assert walled.holds(view.ctypes.data) == "x"
    assert walled.holds(walled.address) == ""


def test_several_tensors_have_a_wall_between_any_two():
    recipes = {name: TensorRecipe(shape=(n,), dtype="float32") for name, n in (("a", 1024), ("b", 1), ("c", 3000))}
    for order in (0, SHARE):
        walls = walls_of(recipes, order)
        for left, right in pairwise(walls):
            assert right.pages[0] - left.pages[1] >= PAGE


@pytest.mark.parametrize(
    ("at", "error", "kind", "words"),
    [
        (
            0,
            4,
            Kind.OUT_OF_BOUNDS,
            f"it reads {BEYOND.format(60)}",
        ),
        (
            1,
            6,
            Kind.OUT_OF_BOUNDS,
            f"it writes {BEYOND.format(61)}",
        ),
        (-60, 6, Kind.INPUT_MUTATED, "it writes to its input 'x', at byte 0 from its start"),
        (-61, 6, Kind.OUT_OF_BOUNDS, "it writes memory before its input 'x', 1 byte before its start"),
    ],
)
def test_a_place_is_told_by_the_nearest_tensor(at, error, kind, words):
    touch = touched(silu().tensors, 0, 2 * PAGE + at, error)
    assert (touch.kind, touch.describe()) == (kind, words)


def test_what_lies_elsewhere_is_no_touch():
    assert touched(silu().tensors, 0, -1, 4) is None
    assert touched(silu().tensors, 0, 3 * PAGE, 4) is None


BEHIND = "    ctypes.string_at({x} + {size} * 4, 4)\n"
BEFORE = "    ctypes.string_at({x} - 4, 4)\n"
RESTORED = "    at = ctypes.c_uint32.from_address({x} + 8)\n    was = at.value\n    at.value = 7\n    at.value = was\n"
NUMPY = {"x": "x.ctypes.data", "size": "x.size"}
TENSOR = {"x": "x.data_ptr()", "size": "x.numel()"}
OF_TORCH = {"head": TORCH, "right": "    return torch.nn.functional.silu(x)\n"}


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("body", "seed", "kind", "rule", "words"),
    [
        (BEHIND, AT_END, Kind.OUT_OF_BOUNDS, "guard", "it reads memory behind its input 'x', at byte 60"),
        (BEFORE, AT_BEGINNING, Kind.OUT_OF_BOUNDS, "guard", "it reads memory before its input 'x', 4 bytes before"),
        (RESTORED, AT_END, Kind.INPUT_MUTATED, "inputs", "it writes to its input 'x', at byte 8 from its start"),
    ],
)
def test_who_leaves_its_inputs_or_changes_and_restores_them_is_told_what_it_did(
    judged, backend, body, seed, kind, rule, words
):
    if backend == "torch":
        pytest.importorskip("torch")
    names, files = (NUMPY, {}) if backend == "numpy" else (TENSOR, OF_TORCH)
    seen, unseen = judged(body.format(**names), [silu(seed=seed), silu(seed=OPEN)], **files)
    assert (seen.kind, seen.rule) == (kind, rule)
    assert words in seen.message
    assert unseen.kind is Kind.PASS, "nothing is left of it where there are no walls"


def test_a_read_by_strides_that_are_wrong_is_seen(judged):
    body = "    np.lib.stride_tricks.as_strided(x, (x.size + 1,), (4,)).sum()\n"
    assert judged(body, [silu(seed=AT_END)])[0].kind is Kind.OUT_OF_BOUNDS


def test_an_input_that_stays_changed_is_one_finding_with_walls_and_without(judged):
    signatures = {v.signature.key for v in judged("    x[...] = 0\n", [silu(seed=AT_END), silu(seed=OPEN)])}
    assert len(signatures) == 1


def test_who_cannot_do_with_inputs_that_lie_there_is_not_judged_there(judged):
    """As one that wants its input where vectors begin: what it declines or raises there is no news."""
    body = "    if x.ctypes.data % 64:\n        raise ValueError('not aligned')\n"
    assert judged(body, [silu(seed=AT_END), silu(seed=OPEN)])[0].kind is Kind.PASS


def test_who_crashes_where_inputs_do_not_lie_where_vectors_begin_is_not_accused(judged):
    """As instructions do that load a whole vector; contiguous inputs lie there wherever results count."""
    body = "    if x.ctypes.data % 64:\n        ctypes.string_at(64)\n"
    assert [v.kind for v in judged(body, [silu(seed=AT_END), silu(seed=OPEN)])] == [Kind.PASS, Kind.PASS]


def test_another_crash_stays_one(judged):
    (verdict,) = judged("    ctypes.string_at(64)\n", [silu(seed=AT_END)])
    assert (verdict.kind, verdict.message) == (Kind.CRASHED, "it crashed: killed by SIGSEGV")


def test_a_line_of_the_kernel_is_kept_with_what_it_did(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(f"{HEAD}    ctypes.string_at(x.ctypes.data + 4 * x.size, 1)\n{RIGHT}")
    odd = user_subject(str(path), ())
    with Examiner([odd]) as examiner:
        execution = examiner.check([CheckRequest(silu(), (odd.key,))])[0].executions[odd.key]
    assert execution.status is Status.FAULTED
    assert f'File "{odd.path}", line 7 in run' in execution.detail
