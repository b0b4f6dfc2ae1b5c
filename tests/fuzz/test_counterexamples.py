"""A rule is not said where the failing case itself, taken to the side that is said to pass, fails as well."""

import numpy as np
import pytest

from kernel_assay.corpus.formats import bits_of
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.triage.counterexamples import MAX_ELEMENTS, bases, contradicted, grown, mirrored, squeezed
from kernel_assay.fuzz.triage.failure_conditions import learn_gates
from kernel_assay.fuzz.triage.shrinker import Shrinker
from kernel_assay.kernels.catalog import user_subject


def tensor(shape, dtype="float32", fill="zeros", **pokes):
    """A tensor of plain numbers, but for those at named places: at3=1.5."""
    written = tuple((int(at[2:]), bits_of(value, np.dtype(dtype))) for at, value in pokes.items())
    return TensorRecipe(shape=shape, dtype=dtype, fill=Fill(distribution=fill), pokes=written)


def numbers(t):
    """What is written out, by place."""
    return {at: float(np.array(bits, np.uint32).view(np.float32)) for at, bits in t.pokes}


MASK = """OP = "softmax"
import numpy as np
@np.errstate(all="ignore")
def run(out, x, *, mask=None, scale=1.0):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32) * scale
    top = wide.max(axis=-1, keepdims=True, initial=-np.inf)
    wide = wide if mask is None else wide + mask
    e = np.exp(wide - top)
    out[...] = e / e.sum(axis=-1, keepdims=True)
"""
"""The largest score is looked for before the mask is added, which takes three columns and the right values to show."""
ROPE = """OP = "rope"
import numpy as np
@np.errstate(all="ignore")
def run(out, x, *, cos=None, sin=None, style, theta, offset, part):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    width, half = x.shape[-1] // part, x.shape[-1] // part // 2
    if cos is None:
        power = wide(theta) ** -(np.arange(0, width, 2).astype(wide) / wide(max(1, DIVISOR)))
        angle = np.arange(offset, offset + len(x)).astype(wide)[:, None] * power
        cos, sin = np.cos(angle), np.sin(angle)
    c, s, left, right = cos[:, None], sin[:, None], slice(0, half), slice(half, width)
    if style == "interleaved":
        left, right = slice(0, width, 2), slice(1, width, 2)
    a, b = x[..., left].astype(wide), x[..., right].astype(wide)
    out[...] = x
    out[..., left], out[..., right] = a * c - b * s, a * s + b * c
"""
"""Frequencies are those of the whole head, which shows in parts of it, and at any place but the first."""
MASKED = Case(
    op="softmax",
    tensors={
        "x": tensor((1, 5), at0=-53.12296, at1=9.682363, at4=-5.7807527), "mask": tensor((1, 5), at0=-np.inf)
    },
    attrs={"scale": -2.0},
)  # fmt: skip
HUGE = Case(
    op="softmax",
    tensors={"x": tensor((1, 2), "float64", at0=2e183), "mask": tensor((1, 2), "float64", at0=-np.inf)},
    attrs={"scale": 1.0},
)
TURNED = Case(
    op="rope",
    tensors={"x": tensor((1, 1, 8), fill="ones")},
    attrs={"style": "interleaved", "theta": 1e4, "offset": 1, "part": 2},
)
INFINITE = TURNED.but(tensors={"x": tensor((1, 1, 8), at2=np.inf)}, attrs={**TURNED.attrs, "offset": 1000})


@pytest.mark.parametrize(
    ("code", "case", "false", "true"),
    [
        (MASK, MASKED, "cols", ()),
        (MASK, HUGE, "scale", ("cols",)),
        (ROPE.replace("DIVISOR", "x.shape[-1]"), TURNED, "offset", ("half >= 2", "part != 1")),
        (ROPE.replace("DIVISOR", "x.shape[-1]"), INFINITE, "part == 2", ()),
    ],
)
def test_what_fails_on_the_other_side_makes_no_rule(tmp_path, code, case, false, true):
    (tmp_path / "mine.py").write_text(code)
    key = f"{case.op}/mine"
    with Examiner([user_subject(str(tmp_path / "mine.py"), ())]) as examiner:
        verdict = examiner.check([CheckRequest(case, (key,))])[0].verdicts[key]
        assert verdict.failed
        said = learn_gates(Shrinker(examiner, key, verdict), case, case)
    assert not [rule for rule in said if false in rule]
    assert all(any(word in rule for rule in said) for word in true)


def test_a_right_kernel_contradicts_nothing_and_what_is_not_known_does(tmp_path):
    (tmp_path / "right.py").write_text(ROPE.replace("DIVISOR", "width"))
    (tmp_path / "wrong.py").write_text(ROPE.replace("DIVISOR", "x.shape[-1]"))
    keys = "rope/right", "rope/wrong"
    with Examiner([user_subject(str(tmp_path / f"{key[5:]}.py"), ()) for key in keys]) as examiner:
        verdicts = examiner.check([CheckRequest(TURNED, keys)])[0].verdicts
        right, wrong = (Shrinker(examiner, key, verdicts[key]) for key in keys)
        assert not contradicted(right, [TURNED, grown(TURNED)])
        assert contradicted(wrong, [TURNED])
        large = TURNED.but(tensors={"x": tensor((MAX_ELEMENTS, 1, 8), fill="ones")})
        assert not contradicted(wrong, [large]), "it is not tried"
        right.stopping = lambda: True
        assert contradicted(right, [TURNED])


def test_places_that_are_written_out_stay():
    three = [{n: numbers(t) for n, t in c.tensors.items()} for c in squeezed(MASKED, "cols", 3)]
    first, last = np.float32(-53.12296), np.float32(-5.7807527)
    assert three == [{"x": {0: first, 1: np.float32(9.682363), 2: last}, "mask": {0: -np.inf}}]
    two = [numbers(c.tensors["x"]) for c in squeezed(MASKED, "cols", 2)]
    assert [list(x) for x in two] == [[0, 1]] * 3
    assert (two[1], [c.tensors["mask"].shape for c in squeezed(MASKED, "cols", 2)]) == (
        {0: first, 1: last},
        [(1, 2)] * 3,
    )
    assert [list(numbers(c.tensors["x"])) for c in squeezed(MASKED, "cols", 4)] == [[0, 1, 3]]
    assert list(squeezed(TURNED, "tokens", 1)) == list(squeezed(INFINITE, "half", 1)) == []


def test_signs_change_and_everything_grows():
    x, mask = mirrored(MASKED)
    assert numbers(x.tensors["x"]) == {at: -value for at, value in numbers(MASKED.tensors["x"]).items()}
    assert (x.tensors["mask"], mask.tensors["x"]) == (MASKED.tensors["mask"], MASKED.tensors["x"])
    assert numbers(mask.tensors["mask"]) == {0: np.inf}
    assert grown(MASKED).tensors["x"].shape == (33, 33)
    assert grown(MASKED, "cols").tensors["x"].shape == (33, 5)
    assert len(bases(MASKED, TURNED.but(tensors=MASKED.tensors, op="softmax", attrs=MASKED.attrs))) == 7
