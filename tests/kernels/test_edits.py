"""Kernels that are edits of others: what they make, what is refused, and that they are kernels like any other."""

import shutil
import tomllib
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.kernels.backends.cuda_support.front_matter import read_front_matter
from kernel_assay.kernels.backends.support.edits import CUDA, Edit, apply, is_kernel, present, read_edits, read_source
from kernel_assay.kernels.backends.support.head_comment import head_comment
from kernel_assay.kernels.backends.support.includes import included, standalone
from kernel_assay.kernels.catalog import resolve, shown_on_gpu, size_hints, source_digest, subjects_of, user_subject
from kernel_assay.oracles.catalog import load_contracts

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
EDITS = sorted(KERNELS.glob("*/*.toml"))
PLANTED = Path(__file__).with_name("planted_cuda.txt").read_text("utf-8").splitlines()

BASE = """/*
One thread an element.

---
op = "silu"
entry = "silu"
args = ["out", "x", "n"]
dims = { n = "x.size" }
grid = "ceil_div(n, 64)"
block = 64
---
*/
#include "one.cuh"

__global__ void silu(float* out, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] / (ONE + expf(-x[i]));
}
"""
BUG = """base = "right.cu"
planted = "out_of_bounds"
summary = "Bug: a thread too many."

[[edit]]
old = "if (i < n)"
new = "if (i <= n)"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "one.cuh").write_text("#pragma once\n#define ONE 1\n")
    (tmp_path / "right.cu").write_text(BASE)
    (tmp_path / "bug.toml").write_text(BUG)
    return tmp_path


def refusal(path):
    with pytest.raises(UsageError) as caught:
        read_front_matter(path)
    (sentence,) = str(caught.value).splitlines()
    return sentence


# ---- the seeded bugs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EDITS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_each_applies_and_makes_another_kernel(path):
    base, made = (path.parent / read_edits(path).base).read_text("utf-8"), read_source(path).text
    code, changed = (text[text.index("*/") :] for text in (base, made))
    before, after = read_front_matter(path.parent / read_edits(path).base), read_front_matter(path)
    launches = [(f.entry, f.grid, f.block, f.shared, f.numerics) for f in (before, after)]
    assert code != changed or launches[0] != launches[1]
    assert (before.planted, after.op) == ("", path.parent.name)
    assert after.planted
    assert after.summary.startswith("Bug: ")


def test_the_set_of_planted_bugs_is_what_it_was_when_each_was_a_copy():
    bugs = [s for op in load_contracts() for s in subjects_of(op) if s.planted and s.backend == "cuda"]
    assert sorted(f"{s.key} {s.planted}" for s in bugs) == PLANTED
    assert sum(resolve(s).suffix == ".toml" for s in bugs) == len(EDITS)


# ---- what is made, and what is refused -------------------------------------------------------------------------------


def test_the_text_is_the_bases_with_the_edits_made_and_its_own_front_matter(folder):
    source = read_source(folder / "bug.toml")
    assert source.text.replace("i <= n", "i < n").partition("*/")[2] == BASE.partition("*/")[2]
    assert source.text.count("\n") == BASE.count("\n") + 2
    assert (source.place, source.home) == (folder / "bug.cu", folder)
    front = read_front_matter(folder / "bug.toml")
    assert (front.planted, front.summary, front.function) == ("out_of_bounds", "Bug: a thread too many.", "silu")


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ('dims = { n = "x.size", m = "n // 2" }', "dims", {"n": "x.size", "m": "n // 2"}),
        (
            'numerics = { fast_math = true, accumulate = "float16" }',
            "numerics",
            {"fast_math": True, "accumulate": "float16"},
        ),
        ('summary = "\\"A\\" \\\\ é"', "summary", '"A" \\ é'),
        ('grid = [2, "n"]', "grid", [2, "n"]),
        ('choices = { "a b" = ["x"] }', "choices", {"a b": ["x"]}),
    ],
)
@pytest.mark.parametrize("lines", [False, True], ids=["block", "lines"])
def test_a_key_replaces_the_bases_own_whatever_the_comment(folder, line, key, value, lines):
    if lines:
        head, _, code = BASE.partition("*/\n")
        (folder / "right.cu").write_text("".join(f"// {one}\n" for one in head.splitlines()[1:]) + code)
    (folder / "bug.toml").write_text(f'base = "right.cu"\n{line}\n')
    comment = head_comment(read_source(folder / "bug.toml").text)
    said = tomllib.loads(comment.inside)
    assert said[key] == value
    assert said["entry"] == "silu"


def test_edits_are_made_in_the_base_whatever_their_order():
    text = "one two three"
    edits = [Edit(old="three", new="one"), Edit(old="one", new="two"), Edit(old=" two ", new="")]
    assert apply(text, edits) == "twoone"
    assert apply(text, []) == text


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("i < n)", "i > n)", "edit 1: old must stand in the base once, and stands there 0 times: 'if (i > n)'"),
        ("if (i < n)", "x[i]", "edit 1: old must stand in the base once, and stands there 2 times: 'x[i]'"),
        ("i <= n", "i < n", "edit 1: old and new are the same, 'if (i < n)'"),
        ('new = "if (i <= n)"', "", "edit.0.new: field required"),
        ('old = "if (i < n)"', 'old = ""', "edit.0.old: string should have at least 1 character"),
        ('base = "right.cu"', "", "base: field required"),
        ("right.cu", "gone.cu", "base = 'gone.cu' must be a .cu file, seen from this one"),
        ("right.cu", "bug.toml", "base = 'bug.toml' must be a .cu file, seen from this one"),
        ("planted", "plantet", "'plantet' is not a key of front matter; there are entry, "),
        ("planted = ", "planted ", "bug.toml is not TOML: "),
        ("[[edit]]", '[[edit]]\nold = "i < n"\nnew = "1"\n[[edit]]', "edit 1 changes a place that edit 2 changes, too"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_sentence(folder, before, after, words):
    (folder / "bug.toml").write_text(BUG.replace(before, after))
    said = refusal(folder / "bug.toml")
    assert said.startswith(str(folder / "bug.toml"))
    assert words in said


def test_a_base_that_has_drifted_is_refused(folder):
    assert read_front_matter(folder / "bug.toml").planted
    (folder / "right.cu").write_text(BASE.replace("i < n", "i < min(n, n)"))
    assert "old must stand in the base once, and stands there 0 times" in refusal(folder / "bug.toml")
    (folder / "right.cu").write_text(BASE + "// if (i < n)\n")
    assert "stands there 2 times" in refusal(folder / "bug.toml")


def test_a_base_without_front_matter_has_none_to_be_changed(folder):
    (folder / "right.cu").write_text(BASE.partition("*/\n")[2])
    assert refusal(folder / "bug.toml").endswith("'right.cu' has no front matter, so there is none to be changed")


def test_a_name_that_messages_would_give_two_kernels_is_refused(folder):
    shutil.copy(folder / "right.cu", folder / "bug.cu")
    assert "cannot lie beside bug.cu" in refusal(folder / "bug.toml")


def test_which_files_may_be_kernels(folder):
    (folder / "pyproject.toml").write_text("[project]\n")
    (folder / "broken.toml").write_text("base")
    names = ["right.cu", "bug.toml", "pyproject.toml", "broken.toml", "one.cuh", "mine.py"]
    assert [is_kernel(folder / name) for name in names] == [True, True, False, False, False, True]
    assert {".cu", ".toml"} == CUDA


# ---- a kernel like any other -----------------------------------------------------------------------------------------


def test_the_digest_is_of_what_is_made_and_included(folder):
    path = folder / "bug.toml"
    first = source_digest(path)
    path.write_text(f"# A remark.\n{BUG}")
    assert source_digest(path) == first
    digests = {first}
    for name, text in [("right.cu", BASE.replace("expf", "exp")), ("one.cuh", "#define ONE 1.0f\n")]:
        (folder / name).write_text(text)
        digests.add(source_digest(path))
    path.write_text(BUG.replace("<= n", "<= n + 1"))
    assert len({*digests, source_digest(path)}) == 4


def test_headers_are_looked_for_beside_the_base(folder):
    (folder / "apart").mkdir()
    path = folder / "apart" / "bug.toml"
    path.write_text(BUG.replace("right.cu", "../right.cu"))
    assert included(path) == [(folder / "one.cuh").resolve()]
    assert read_source(path).place == path.with_suffix(".cu")


def test_a_source_that_stands_alone_has_each_header_once(folder):
    (folder / "two.cuh").write_text('#pragma once\n#include "one.cuh"\n#define TWO (ONE + ONE)\n')
    text = BASE.replace(
        '#include "one.cuh"', '#include <cuda_fp16.h>\n#include "two.cuh"\n#include "one.cuh"\n#include "no.h"'
    )
    (folder / "right.cu").write_text(text)
    alone = standalone(folder / "bug.toml")
    assert alone.count("#define ONE") == alone.count("#define TWO") == 1
    assert [line for line in alone.splitlines() if line.startswith("#include")] == [
        "#include <cuda_fp16.h>",
        '#include "no.h"',
    ]
    assert "#pragma once" not in alone
    (folder / "mine.py").write_text('"""\n#include "one.cuh"\n"""\n')
    assert standalone(folder / "mine.py") == '"""\n#include "one.cuh"\n"""\n'


def test_what_the_catalog_knows_of_it(folder):
    subject = user_subject(str(folder / "bug.toml"), ())
    assert (subject.op, subject.name, subject.backend, subject.planted) == ("silu", "bug", "cuda", "out_of_bounds")
    assert (subject.path, subject.line) == (str(folder / "bug.toml"), 1)
    assert (shown_on_gpu(subject), size_hints(subject)) == ("out_of_bounds", (64,))


def test_a_copy_that_has_become_edits_is_found_by_its_old_name_and_the_other_way_round(folder):
    assert present(folder / "bug.cu") == folder / "bug.toml"
    assert present(folder / "right.toml") == folder / "right.cu"
    for name in ("bug.toml", "right.cu", "gone.cu", "bug.py"):
        assert present(folder / name) == folder / name
