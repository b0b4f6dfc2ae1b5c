"""`kassay compare`: exit codes, criteria, the table, and which of two is nearer to a truth."""

import json
from pathlib import Path

import numpy as np
import pytest
from _tensor_files import of_bits, safetensors

from kernel_assay.corpus.formats import FORMATS
from kernel_assay.fuzz.comparing.compare import Allowed, compare
from kernel_assay.reports.words import extent


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def numbers():
    return np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32)


def save(**files):
    """One tensor a file."""
    for name, values in files.items():
        np.save(f"{name}.npy", values)


def steps(x, n):
    return of_bits(x.view(np.uint32) + np.uint32(n), "float32")


def test_another_payload_of_nan_is_no_difference_in_silence(fuzz, numbers):
    other = numbers.copy()
    numbers[0, 0], other[0, 0] = np.nan, of_bits(0xFF800001, "float32")
    save(a=numbers, b=other)
    for words in ((), ("--dtype", "bf16")):
        code, _, err = fuzz("compare", "a.npy", "b.npy", *words)
        assert (code, err) == (0, "")


def test_logits_are_told_beside_a_truth_too(fuzz, numbers):
    other = numbers[:, ::-1].copy()
    save(truth=numbers.astype(np.float64), a=numbers, b=other)
    _, out, _ = fuzz("compare", "a.npy", "b.npy", "--truth", "truth.npy", "--logits", "*")
    assert "of 16 rows with another first choice" in out


def test_a_copy_agrees(fuzz, numbers):
    save(a=numbers, b=numbers)
    code, out, err = fuzz("compare", "a.npy", "b.npy")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "the tensor agrees (equal in the narrower type)"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 1),
        (("--ulp", "2"), 1),
        (("--ulp", "3"), 0),
        (("--dtype", "bf16"), 0),
        (("--dtype", "bf16", "--ulp", "0"), 1),
        (("--nmse", "1e-11"), 0),
        (("--nmse", "1e-17"), 1),
        (("--cosine", "0.999"), 0),
        (("--cosine", "0.999", "--ulp", "1"), 1),
    ],
)
def test_the_exit_code_says_whether_they_agree(fuzz, numbers, words, code):
    numbers[0, 0] = of_bits(0x3F807FFF, "float32")  # three more, and it rounds to the next bfloat16
    save(a=numbers, b=steps(numbers, 3))
    assert fuzz("compare", "a.npy", "b.npy", *words)[0] == code


@pytest.mark.parametrize(
    "words", [(), ("--nmse", "1e9"), ("--cosine", "-1"), ("--ulp", "99999999999"), ("--dtype", "bf16")]
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nothing_allows_another_class(fuzz, numbers, words, bad):
    other = numbers.copy()
    other[3, 4] = bad
    save(a=numbers, b=other)
    for pair in (("a.npy", "b.npy"), ("b.npy", "a.npy")):
        code, out, _ = fuzz("compare", *pair, *words)
        assert code == 1
        assert "1 element of another class" in " ".join(out.split())


def test_what_is_on_one_side_only_and_what_has_another_shape_do_not_agree(fuzz, numbers):
    safetensors(Path("a.safetensors"), {"x": numbers, "y": numbers, "z": numbers})
    safetensors(Path("b.safetensors"), {"x": numbers, "y": numbers.T, "w": numbers})
    code, out, _ = fuzz("compare", "a.safetensors", "b.safetensors", "--top", "3")
    text = " ".join(out.split())
    assert code == 1
    assert all(
        words in text
        for words in (f"{extent((16, 8))} in A, {extent((8, 16))} in B", "not in A", "not in B", "and 1 more tensor")
    )
    assert text.endswith("3 of 4 tensors do not agree (equal in the narrower type)")


def test_the_farthest_is_told_first(fuzz, numbers):
    safetensors(Path("a.safetensors"), {"near": numbers, "same": numbers, "far": numbers})
    safetensors(Path("b.safetensors"), {"same": numbers, "near": steps(numbers, 1), "far": numbers * 2})
    _, out, _ = fuzz("compare", "a.safetensors", "b.safetensors")
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["far", "near", "same"]
    assert "far: B against A" in out


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.is_float])
def test_a_file_that_was_converted_agrees_with_what_it_was_made_of(name, numbers):
    np.save("a.npy", numbers)
    safetensors(Path("b.safetensors"), {"other": numbers.astype(FORMATS[name].dtype)})
    found = compare(Path("a.npy"), Path("b.safetensors"))
    assert found.agrees
    assert found.tensors[0].dtypes == ("float32", name)


@pytest.mark.parametrize(
    ("scale", "words", "code"),
    [
        (1.0, (), 0),
        (1 + 1e-4, (), 0),
        (1 + 3e-4, (), 1),
        (1 + 3e-4, ("--factor", "10"), 0),
        (1 + 1e-4, ("--factor", "0.5"), 1),
    ],
)
def test_b_must_not_be_farther_from_the_truth_than_a(fuzz, numbers, scale, words, code):
    truth = numbers.astype(np.float64)
    save(truth=truth, a=(truth * (1 + 1e-4)).astype(np.float32), b=(truth * scale).astype(np.float32))
    found, out, _ = fuzz("compare", "a.npy", "b.npy", "--truth", "truth.npy", *words)
    assert found == code
    assert (" times as far from" in " ".join(out.split())) == bool(code)


def test_rounding_the_truth_to_a_coarser_type_is_allowed(fuzz, numbers):
    truth = numbers.astype(np.float64)
    save(truth=truth, a=numbers, b=numbers.astype(np.float16), c=(truth * 1.001).astype(np.float16))
    assert fuzz("compare", "a.npy", "b.npy", "--truth", "truth.npy")[0] == 0
    assert fuzz("compare", "a.npy", "c.npy", "--truth", "truth.npy")[0] == 1


def test_nan_where_the_truth_has_none_is_farther(fuzz, numbers):
    wrong = numbers.copy()
    wrong[0, 0] = np.nan
    save(truth=numbers.astype(np.float64), a=numbers, b=wrong)
    assert fuzz("compare", "a.npy", "b.npy", "--truth", "truth.npy")[0] == 1
    assert fuzz("compare", "b.npy", "a.npy", "--truth", "truth.npy")[0] == 0


def test_json_has_what_the_table_has_and_more(fuzz, numbers):
    save(a=numbers, b=steps(numbers, 3))
    code, out, _ = fuzz("compare", "a.npy", "b.npy", "--json", "-", "--logits", "a")
    told = json.loads(out)
    (one,) = told["tensors"]
    assert (code, told["agrees"], told["bytes"]) == (1, False, 2 * numbers.nbytes)
    assert one["distance"]["ulp_histogram"] == [0, 0, 0, numbers.size]
    assert one["rows"]["count"] == len(numbers)
    fuzz("compare", "a.npy", "b.npy", "--json", "out.json")
    assert json.loads(Path("out.json").read_text())["tensors"][0]["name"] == "a"


def test_an_empty_tensor_and_one_without_axes(fuzz):
    safetensors(Path("a.safetensors"), {"none": np.zeros((0, 3), np.float32), "one": np.array(1, np.float32)})
    safetensors(Path("b.safetensors"), {"none": np.zeros((0, 3), np.float32), "one": np.array(2, np.float32)})
    code, out, _ = fuzz("compare", "a.safetensors", "b.safetensors", "--logits", "*")
    assert code == 1
    assert "worst      the only one: A 1, B 2" in out


def test_what_is_allowed_is_said():
    assert Allowed().said() == "equal in the narrower type"
    assert Allowed(dtype="bf16").said() == "within 1 ULP of bfloat16"
    assert Allowed(ulp=3, nmse=1e-3, cosine=0.5).said() == (
        "within 3 ULP of the narrower type and NMSE <= 0.001 and cosine >= 0.5"
    )
