"""The simplest rule that fits what the neighbours did, and nothing when none fits."""

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.verdict import Verdict
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.triage.failure_conditions import explain, learn_gates
from kernel_assay.fuzz.triage.shrinker import SEED_TRIALS, Shrinker, shrink
from kernel_assay.kernels.backend_registry import loader_of
from kernel_assay.kernels.backends.simt.schedule import is_checked
from kernel_assay.kernels.catalog import subjects_of, user_subject


def fails(sizes, rule):
    return {n: rule(n) for n in sizes}


NEAR = range(1, 70)


@pytest.mark.parametrize(
    ("sizes", "rule", "text"),
    [
        (NEAR, lambda k: k >= 33, "fails only if k >= 33"),
        (NEAR, lambda k: k == 17, "fails only if k == 17"),
        (NEAR, lambda k: k % 32 != 0, "fails only if k % 32 != 0"),
        (NEAR, lambda k: k % 32 != 0 and k > 32, "fails only if k % 32 != 0 and k >= 33"),
        (NEAR, lambda k: k % 2 == 1, "fails only if k % 2 != 0"),
        (NEAR, lambda k: k % 8 == 3, "fails only if k % 8 == 3"),
        (NEAR, lambda k: k % 8 == 3 and k > 8, "fails only if k % 8 == 3 and k >= 11"),
        (NEAR, lambda k: 5 <= k <= 9, "fails only if 5 <= k <= 9"),
        ((*NEAR, 127, 128, 129), lambda k: 5 <= k <= 68, "fails only if 5 <= k <= 68"),
        ((*NEAR, 127, 128, 129), lambda k: 5 <= k <= 70, ""),
        ((*NEAR, 127, 128, 129), lambda k: 5 <= k <= 127, "fails only if 5 <= k <= 127"),
        ((*range(4, 70), 255, 256, 257), lambda k: k <= 255, "fails only if k <= 255"),
        (range(2, 70, 2), lambda k: 6 <= k <= 8, "fails only if 6 <= k <= 8"),
        (NEAR, lambda k: True, ""),
        (NEAR, lambda k: False, ""),
        (NEAR, lambda k: k in {2, 3, 5, 7, 11, 13, 17, 61}, ""),
        ((4, 5), lambda k: k == 5, ""),
        ((), lambda k: True, ""),
    ],
)
def test_explain(sizes, rule, text):
    assert explain("k", fails(sizes, rule)) == text


def test_a_rule_speaks_of_its_dimension():
    assert explain("cols", fails(NEAR, lambda n: n > 4)).endswith("cols >= 5")


BOTH = """OP = "silu"
def run(out, x):
    import numpy as np
    out[...] = (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64))))
    if x.shape[1] % 8 == 3 or x.shape[0] == 7:
        out[...] = 9
"""


def test_the_case_it_was_found_with_may_contradict_a_rule(tmp_path):
    """Two causes: seen from the smallest case only one counts, but the first one failed without it."""
    (tmp_path / "both.py").write_text(BOTH)

    def case(rows, cols):
        recipe = TensorRecipe(shape=(rows, cols), dtype="float32", fill=Fill(distribution="ones"))
        return Case(op="silu", tensors={"x": recipe})

    with Examiner([user_subject(str(tmp_path / "both.py"), ())]) as examiner:
        small = case(1, 3)
        verdict = examiner.check([CheckRequest(small, ("silu/both",))])[0].verdicts["silu/both"]
        shrinker = Shrinker(examiner, "silu/both", verdict)
        assert "fails only if cols % 8 == 3" in learn_gates(shrinker, small, case(4, 11))
        assert not [gate for gate in learn_gates(shrinker, small, case(7, 16)) if "cols" in gate]


def test_a_tile_of_48_is_no_single_size(tmp_path):
    """Just beyond a tile of any size: it is so again beyond two and three."""
    (tmp_path / "tile.py").write_text(BOTH.replace("x.shape[1] % 8 == 3 or x.shape[0] == 7", "x.shape[1] % 48 == 1"))

    def case(rows, cols):
        recipe = TensorRecipe(shape=(rows, cols), dtype="float32", fill=Fill(distribution="ones"))
        return Case(op="silu", tensors={"x": recipe})

    with Examiner([user_subject(str(tmp_path / "tile.py"), ())]) as examiner:
        verdict = examiner.check([CheckRequest(case(1, 49), ("silu/tile",))])[0].verdicts["silu/tile"]
        assert learn_gates(Shrinker(examiner, "silu/tile", verdict), case(1, 49), case(3, 97)) == ()


def test_where_sizes_begin_to_fail_is_looked_for_far_below(tmp_path):
    (tmp_path / "wide.py").write_text(BOTH.replace("x.shape[1] % 8 == 3 or x.shape[0] == 7", "x.shape[1] > 4096"))

    def case(rows, cols):
        recipe = TensorRecipe(shape=(rows, cols), dtype="float32", fill=Fill(distribution="ones"))
        return Case(op="silu", tensors={"x": recipe})

    with Examiner([user_subject(str(tmp_path / "wide.py"), ())]) as examiner:
        verdict = examiner.check([CheckRequest(case(1, 6000), ("silu/wide",))])[0].verdicts["silu/wide"]
        shrinker = Shrinker(examiner, "silu/wide", verdict)
        assert learn_gates(shrinker, case(1, 6000), case(2, 7000)) == ("fails only if cols >= 4097",)


DIES = """OP = "silu"
def run(out, x):
    import ctypes
    import numpy as np
    out[...] = (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64))))
    if RULE:
        ctypes.string_at(0)
"""


@pytest.mark.parametrize(
    ("rule", "cols", "layout", "learned"),
    [
        ("x.shape[1] % 4", 1, "contiguous", "fails only if cols % 4 != 0"),
        ("x.shape[1] % 64 and x.shape[1] > 32", 33, "contiguous", "fails only if cols % 64 != 0 and cols >= 33"),
        ("x.ctypes.data % 16", 1, "offset_one", "fails only if x.layout is offset_one"),
        ("x.size >= 40", 40, "contiguous", ""),
        ("x.flat[0] > 0.5", 1, "contiguous", ""),
    ],
)
def test_crashes_that_cost_a_worker_teach_too(tmp_path, rule, cols, layout, learned):
    (tmp_path / "dies.py").write_text(DIES.replace("RULE", rule))

    def case(seed, *shape):
        fill = Fill(distribution="normal", seed=seed)
        return Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype="float32", layout=layout, fill=fill)})

    with Examiner([user_subject(str(tmp_path / "dies.py"), ())]) as examiner:
        checked = examiner.check([CheckRequest(case(seed, 1, cols), ("silu/dies",)) for seed in range(9)])
        verdicts = [c.verdicts["silu/dies"] for c in checked]
        seed = next(i for i, verdict in enumerate(verdicts) if verdict.kind is Kind.CRASHED)
        shrinker = Shrinker(examiner, "silu/dies", verdicts[seed])
        assert learn_gates(shrinker, case(seed, 1, cols), case(seed, 33, cols + 64)) == ((learned,) if learned else ())


def test_nothing_is_learned_of_what_takes_long(tmp_path):
    (tmp_path / "hangs.py").write_text(DIES.replace("RULE", "x.shape[1] % 4").replace("ctypes.string_at(0)", "input()"))
    recipe = TensorRecipe(shape=(1, 1), dtype="float32", fill=Fill(distribution="ones"))
    with Examiner([user_subject(str(tmp_path / "hangs.py"), ())]) as examiner:
        target = Verdict(kind=Kind.TIMEOUT, rule="timeout")
        shrinker = Shrinker(examiner, "silu/hangs", target)
        small = Case(op="silu", tensors={"x": recipe})
        assert learn_gates(shrinker, small, small) == ()
        assert shrinker.executions == 0


def test_more_rows_may_contradict_a_rule_too(tmp_path):
    """As of a kernel that goes wrong from so many elements on, which a case of one row needs many columns for."""
    (tmp_path / "many.py").write_text(BOTH.replace("x.shape[1] % 8 == 3 or x.shape[0] == 7", "x.size >= 4"))
    recipe = TensorRecipe(shape=(1, 4), dtype="float32", fill=Fill(distribution="ones"))
    small = Case(op="silu", tensors={"x": recipe})
    with Examiner([user_subject(str(tmp_path / "many.py"), ())]) as examiner:
        verdict = examiner.check([CheckRequest(small, ("silu/many",))])[0].verdicts["silu/many"]
        assert not [
            gate for gate in learn_gates(Shrinker(examiner, "silu/many", verdict), small, small) if "cols" in gate
        ]


HIDDEN = """OP = "silu"
def run(out, x):
    import numpy as np
    if x.shape[1] == 0:
        raise ValueError("nothing")
    if x.shape[1] > 60:
        raise NotImplementedError("too wide")
    out[...] = (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64))))
    if x.shape[1] > 40:
        out[...] = np.nan
    elif x.shape[1] > 4:
        out[...] = 9
"""


def test_sizes_that_are_declined_or_fail_otherwise_say_nothing(tmp_path):
    (tmp_path / "hidden.py").write_text(HIDDEN)
    recipe = TensorRecipe(shape=(1, 5), dtype="float32", fill=Fill(distribution="ones"))
    case = Case(op="silu", tensors={"x": recipe})
    with Examiner([user_subject(str(tmp_path / "hidden.py"), ())]) as examiner:
        verdict = examiner.check([CheckRequest(case, ("silu/hidden",))])[0].verdicts["silu/hidden"]
        assert learn_gates(Shrinker(examiner, "silu/hidden", verdict), case, case) == ("fails only if cols >= 5",)
        assert learn_gates(Shrinker(examiner, "silu/hidden", verdict, deadline=0.0), case, case) == ()


POSITIVE = """OP = "silu"
def run(out, x):
    import numpy as np
    out[...] = (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64))))
    if x.shape[1] > 32 and x[0, 0] > 0:
        out[...] = 9
"""


def test_sizes_are_asked_for_where_values_decide_nothing(tmp_path):
    """Whatever was so of the case that was found: a smaller one may have lost values that it took, or be of such."""
    (tmp_path / "positive.py").write_text(POSITIVE)

    def case(distribution, seed):
        fill = Fill(distribution=distribution, seed=seed)
        return Case(op="silu", tensors={"x": TensorRecipe(shape=(1, 33), dtype="float32", fill=fill)})

    with Examiner([user_subject(str(tmp_path / "positive.py"), ())]) as examiner:

        def said(small, seeds):
            verdict = examiner.check([CheckRequest(small, ("silu/positive",))])[0].verdicts["silu/positive"]
            assert verdict.failed
            return learn_gates(Shrinker(examiner, "silu/positive", verdict, seeds=seeds), small, small)

        assert said(case("ones", 0), seeds=1) == said(case("ones", 0), seeds=5) == ("fails only if cols >= 33",)
        checked = examiner.check([CheckRequest(case("normal", n), ("silu/positive",)) for n in range(16)])
        random = next(c.case for c in checked if c.verdicts["silu/positive"].failed)
        assert said(random, seeds=1) == said(random, seeds=5) == ()


LONG = """OP = "silu"
def run(out, x):
    import numpy as np
    out[...] = (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64))))
    if x.shape[1] > 4110:
        out[...] = 9
"""


def test_the_smallest_case_counts_where_it_lies_beyond_the_range_of_its_op(tmp_path):
    """Shapes of language models do: of the neighbours only those within the range are tried."""
    (tmp_path / "long.py").write_text(LONG)
    subject = user_subject(str(tmp_path / "long.py"), ())

    def case(cols):
        recipe = TensorRecipe(shape=(1, cols), dtype="float32", fill=Fill(distribution="ones"))
        return Case(op="silu", tensors={"x": recipe})

    with Examiner([subject]) as examiner:
        verdict = examiner.check([CheckRequest(case(4111), (subject.key,))])[0].verdicts[subject.key]
        shrinker = Shrinker(examiner, subject.key, verdict)
        assert learn_gates(shrinker, case(4111), case(14336)) == ("fails only if cols >= 4111",)


TAIL = """OP = "row_sum"
DTYPES = ("float32",)
def run(out, x):
    cols = x.shape[1]
    wrong = x[:, 0] - x[:, -1] if cols > 8 else 1
    out[...] = x.astype("float64").sum(axis=1) + (cols % 8 != 0) * wrong
"""


@pytest.mark.parametrize("original", ["normal", "ones"])
def test_what_plain_values_hide_does_not_make_a_rule(tmp_path, original):
    """Where columns are not a multiple of 8 it is wrong; of ones only up to 8 columns, as they all are alike."""
    (tmp_path / "hidden.py").write_text(TAIL)

    def case(rows, cols, distribution):
        recipe = TensorRecipe(shape=(rows, cols), dtype="float32", fill=Fill(distribution=distribution, seed=1))
        return Case(op="row_sum", tensors={"x": recipe})

    with Examiner([user_subject(str(tmp_path / "hidden.py"), ())]) as examiner:
        small = case(1, 1, "ones")
        verdict = examiner.check([CheckRequest(small, ("row_sum/hidden",))])[0].verdicts["row_sum/hidden"]
        shrinker = Shrinker(examiner, "row_sum/hidden", verdict)
        assert "fails only if cols % 8 != 0" in learn_gates(shrinker, small, case(3, 5, original))


@pytest.mark.skipif(bool(loader_of("cuda").unavailable()), reason="CUDA C++ is not emulated here")
def test_what_only_check_mode_sees_is_looked_for_in_check_mode():
    """On most fields of a size no run is checked, and none of them says anything about it."""
    subject = next(s for s in subjects_of("row_sum") if s.name == "bug_cuda_idle_threads")
    fill = Fill(distribution="normal")
    sizes = (TensorRecipe(shape=(3, 40), dtype="float32", fill=fill.but(seed=n)) for n in range(1, 64))
    seen = next(c for c in (Case(op="row_sum", tensors={"x": x}) for x in sizes) if is_checked(c))
    with Examiner([subject], timeout=10.0) as examiner:
        verdict = examiner.check([CheckRequest(seen, (subject.key,))])[0].verdicts[subject.key]
        assert (verdict.kind, verdict.rule) == (Kind.UNINITIALIZED, "check")
        shrinker = Shrinker(examiner, subject.key, verdict)
        assert shrinker.hits(seen) == SEED_TRIALS
        assert "fails only if cols <= 255" in learn_gates(shrinker, seen, seen)
        small = shrink(shrinker, seen)
    assert small.verdict.kind is Kind.UNINITIALIZED
    assert is_checked(small.case)
