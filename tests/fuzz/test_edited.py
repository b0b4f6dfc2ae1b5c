"""Commands take a kernel that is edits of another; what was found when it was a copy of its own still replays."""

import json
import runpy
import shutil
from pathlib import Path

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.replay.replay import Outcome, gather, replay
from kernel_assay.kernels.backends.cuda_support.device_code import compilers
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.catalog import resolve
from kernel_assay.reports.book import code_file, stopped_at

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

OLD = Path(__file__).with_name("finding_of_a_whole_copy.json")
"""Written when kernels/row_sum/bug_cuda_no_barrier.cu was a file."""
BASE = """// ---
// op = "silu"
// entry = "silu"
// args = ["out", "x", "n"]
// dims = { n = "x.size" }
// grid = "ceil_div(n, 64)"
// block = 64
// ---
#include "one.cuh"
__global__ void silu(float* out, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] / (ONE + expf(-x[i]));
}
"""
MINE = """base = "parts/right.cu"
summary = "A thread too many."

[[edit]]
old = "i < n"
new = "i <= n"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("parts").mkdir()
    Path("parts/one.cuh").write_text("#pragma once\n#define ONE 1.0f\n")
    Path("parts/right.cu").write_text(BASE)
    Path("mine.toml").write_text(MINE)
    return tmp_path


def found():
    with Store(Path("corpus")) as store:
        return next(f for f in store.findings() if f.verdict.rule == "check")


def test_a_finding_of_the_version_before_is_replayed_with_the_edits(tmp_path):
    shutil.copy(OLD, tmp_path)
    with Store(tmp_path / "corpus") as store:
        (item,) = gather(store, [str(tmp_path / OLD.name)])
        assert item.subject.path == "kernels/row_sum/bug_cuda_no_barrier.cu"
        assert resolve(item.subject).name == "bug_cuda_no_barrier.toml"
        (replayed,) = replay([item], store, timeout=30.0, memory_mb=4096)
    assert replayed.outcome is Outcome.FAILS_AS_EXPECTED
    assert replayed.verdict.kind is Kind.RACE
    assert replayed.verdict.message.partition(" (")[2].startswith("bug_cuda_no_barrier.cu, line ")


def test_a_finding_of_a_file_that_is_nowhere_is_refused(tmp_path):
    said = json.loads(OLD.read_text())
    said["subject"]["path"] = "kernels/row_sum/bug_cuda_gone.cu"
    (tmp_path / "gone.json").write_text(json.dumps(said))
    with Store(tmp_path / "corpus") as store, pytest.raises(UsageError, match=r"bug_cuda_gone\.cu does not exist"):
        gather(store, [str(tmp_path / "gone.json")])


def test_a_persons_own_edits_are_run_shown_written_out_and_replayed(folder, capsys):
    words = ["--cases", "24", "--seed", "1", "--quiet"]
    assert main(["run", "--subject", "mine.toml", *words]) == 1
    finding = found()
    assert finding.verdict.kind is Kind.OUT_OF_BOUNDS
    assert finding.subject.path == str(folder / "mine.toml")
    assert (code_file(finding), stopped_at(finding)) == ("mine.cu", 13)
    capsys.readouterr()

    assert main(["show", finding.id]) == 0
    assert "mine.cu, line 13 (of what `show --source FILE` writes)" in capsys.readouterr().out
    assert main(["show", finding.id, "--source", "out/whole.cu"]) == 0
    lines = Path("out/whole.cu").read_text().splitlines()
    assert lines[12] == "  if (i <= n) out[i] = x[i] / (ONE + expf(-x[i]));"
    assert '// summary = "A thread too many."' in lines

    assert main(["show", finding.id, "--reproducer", "apart/program.py"]) == 0
    whole = "\n".join(lines) + "\n"
    assert Path("apart/mine.cu").read_text() == whole.replace('#include "one.cuh"', "#define ONE 1.0f")
    assert main(["run", "--subject", "apart/mine.cu", *words, "--corpus", "other"]) == 1
    assert "--subject mine.cu" in Path("apart/program.py").read_text()
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path("apart/program.py", run_name="__main__")
    Path("apart/mine.cu").write_text(BASE)
    assert main(["show", finding.id, "--reproducer", "apart/program.py"]) == 2
    assert "apart/mine.cu exists and is another kernel" in capsys.readouterr().err
    assert Path("apart/mine.cu").read_text() == BASE

    assert main(["replay", finding.id]) == 1
    Path("mine.toml").write_text(MINE.replace("i <= n", "n > i"))
    assert main(["replay", finding.id]) == 0


def test_a_base_that_drifted_is_one_sentence(folder, capsys):
    Path("parts/right.cu").write_text(BASE.replace("i < n", "n > i"))
    assert main(["run", "--subject", "mine.toml", "--cases", "4"]) == 2
    assert "edit 1: old must stand in the base once, and stands there 0 times: 'i < n'" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_launch_keys_replace_those_of_edits(capsys):
    words = ["run", "--subject", "mine.toml", "--launch", 'requires = ["n > 10000000"]', "--cases", "4", "--seed", "1"]
    assert main([*words, "--peer", "none", "--quiet"]) == 2
    assert "nothing of silu/mine was tested in 4 cases: requires n > 10000000" in capsys.readouterr().err


@pytest.mark.skipif(not compilers(), reason="neither nvcc nor NVRTC is installed")
@pytest.mark.usefixtures("folder")
def test_they_compile_for_a_gpu(capsys):
    assert main(["compile", "mine.toml", "--arch", "sm_90"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["mine.toml", "sm_90", "1"]
