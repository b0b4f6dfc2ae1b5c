"""`emulate`: what it prints, writes and returns."""

import json

import pytest
from _command import refused

from kernel_assay.kernels.backends.simt.toolchain import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
TEXT = """__global__ void next(int* x) {
  if (threadIdx.x < 31) x[threadIdx.x] = x[threadIdx.x + BY];
}
int main() {
  int* x;
  cudaMalloc(&x, 32 * sizeof(int));
  cudaMemset(x, 0, 32 * sizeof(int));
  next<<<1, 32>>>(x);
  return cudaFree(x);
}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.cu").write_text(TEXT)
    (tmp_path / "folder.cu").mkdir()
    (tmp_path / "binary.cu").write_bytes(bytes(range(256)))
    return tmp_path


def test_findings_as_text_and_for_programs(folder, fuzz):
    code, out, _ = fuzz("emulate", "p.cu", "-DBY=2", "--json", "p.json", "--sarif", "p.sarif", "--seed", "6")
    message = (
        "p.cu:2: out-of-bounds: thread 30 of block 0 reads x[32] (p.cu, line 2), but it has 32 elements; kernel next"
    )
    assert message in out
    assert out.endswith("again: kassay emulate p.cu -DBY=2 --seed 6\n")
    told = json.loads((folder / "p.json").read_text())
    assert [f["kind"] for f in told["findings"] if not f["harmless"]] == ["out-of-bounds"]
    result = json.loads((folder / "p.sarif").read_text())["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]
    assert (result["ruleId"], result["level"], place["region"]) == ("out-of-bounds", "error", {"startLine": 2})
    assert place["artifactLocation"] == {"uri": "p.cu", "uriBaseId": "SRCROOT"}
    assert (code, result["properties"]["seed"]) == (1, 6)


def test_a_clean_program(folder, fuzz):
    assert fuzz("emulate", "p.cu", "-DBY=0")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.cu",), "none.cu cannot be read"),
        (("p.txt",), "p.txt is no source of a program"),
        (("folder.cu",), "folder.cu cannot be read (Is a directory)"),
        (("binary.cu",), "binary.cu is no text: it has bytes of value 0"),
        (("p.cu", "-D=3"), "-D=3 names no macro; -DNAME and -DNAME=VALUE do"),
        (("p.cu", "-D3x"), "-D3x names no macro"),
        (("p.cu", "--json", "no/p.json"), "no is no folder"),
        (("p.cu", "-DBY=)"), "p.cu, line 2: g++ says"),
        (("p.cu", "-DBY=0", "--std", "c++1"), "c++1"),
        (("p.cu", "--jobs", "2"), "--jobs needs --fast"),
    ],
)
def test_what_cannot_be_done(folder, fuzz, words, said):
    refused(fuzz("emulate", *words), said)
