"""Check mode beside a GPU: what the hardware hides is found on its processors, filed as usual, and replayed there."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.storage.file_store import Store
from kernel_assay.fuzz.campaign.parallel import ParallelSearch
from kernel_assay.fuzz.campaign.search import Limits, Search
from kernel_assay.fuzz.checking import check_mode
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.check_mode import EmulatingExaminer
from kernel_assay.fuzz.generation.engines import BATCH
from kernel_assay.fuzz.planning.plan import new_campaign
from kernel_assay.kernels.backends.simt.schedule import is_checked
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.boundary.devices import Place
from kernel_assay.kernels.catalog import user_subject

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
ROOT = Path(__file__).resolve().parents[2]
GPU = Path(__file__).with_name("_gpu")
"""Where a module lies that makes a GPU of every process's CPU: one order of threads, and no checks."""
HEAD = """/*
---
op = "silu"
entry = "silu"
args = ["out", "x", "n"]
dims = { n = "x.size" }
grid = "ceil_div(n, 64)"
block = 64
---
*/
__global__ void silu(float* out, const float* x, int n) {
  __shared__ float tile[64];
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
"""
RIGHT = HEAD + "  if (i < n) out[i] = x[i] / (1 + expf(-x[i]));\n}\n"
BUGS = {
    "race": "tile[t] = i < n ? x[i] : 0; __syncthreads(); float a = tile[63 - t]; tile[t] = 2;"
    " if (i < n && a != 1e30f) out[i] = x[i] / (1 + expf(-x[i]));",
    "uninitialized": "if (t == 63) tile[t] = 1; if (i < n && tile[t] != 1e30f) out[i] = x[i] / (1 + expf(-x[i]));",
    "out_of_bounds": "if (i <= n && x[i] != 1e30f && i < n) out[i] = x[i] / (1 + expf(-x[i]));",
    "divergent": "if (t < 32) __syncthreads();\n  else __syncthreads();\n"
    "  if (i < n) out[i] = x[i] / (1 + expf(-x[i]));",
}
WAITS = "__shared__ volatile int go; go = 0; while (!go) {}"


def on_gpu(folder, *words):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(GPU), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def summary(folder):
    (path,) = Path(folder, "corpus", "local", "runs").glob("*/summary.json")
    return json.loads(path.read_text())


def written(folder, body):
    path = folder / "mine.cu"
    path.write_text(HEAD + body + "\n}\n")
    return path


def emulated(path):
    return EmulatingExaminer([user_subject(str(path), ()).but(device="cuda")], timeout=5.0, memory_mb=1024)


def silu(*shape, seed=0):
    fill = Fill(distribution="normal", seed=seed)
    return Case(op="silu", tensors={"x": TensorRecipe(shape=shape, dtype="float32", fill=fill)})


def test_a_race_is_found_beside_a_gpu_and_replayed_there(tmp_path):
    path = written(tmp_path, BUGS["race"])
    told = ["--device", "cuda", "--peer", "none", "--cases", "48", "--seed", "1", "--jobs", "1"]
    code, out, err = on_gpu(tmp_path, "run", "--subject", str(path), *told)
    assert code == 1, out + err
    assert "silu/mine: race (check), minimized, new" in out
    assert "ran in    check mode, on the processors beside the GPU" in out
    found = summary(tmp_path)
    assert found["subjects"][0]["statistics"]["checked"] > 4
    assert {f["kind"] for f in found["findings"]} == {"race"}, "the stand-in shows nothing itself"
    code, out, err = on_gpu(tmp_path, "replay", "--device", "cuda")
    assert (code, "fails: silu/mine" in out) == (1, True), out + err


def searched(folder, crew, *cuts):
    """What a search tells whose kernel is right where it runs, and races in the emulator."""
    plain = folder / "mine.py"
    plain.write_text(
        "import numpy as np\n\n\ndef silu(x):\n    with np.errstate(all='ignore'):\n"
        "        return (x / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)\n"
    )
    on_device = user_subject(str(plain), ("silu",)).but(dtypes=("float32",))
    racing = user_subject(str(written(folder, BUGS["race"])), ())
    with Store(folder / "corpus") as store, Examiner([on_device]) as examiner:
        examiner.beside = EmulatingExaminer([racing], timeout=5.0, memory_mb=1024)
        store.prepare()
        campaign = new_campaign("r1", 1, "conjecture", [on_device])
        store.start_run(campaign)
        for cases in cuts:
            with ParallelSearch(examiner, campaign, crew) if crew else nullcontext() as fleet:
                campaign = Search(examiner, store, campaign, Limits(600.0, cases), fleet=fleet).run()
        (found,) = store.findings()
    return campaign.statistics[racing.key].checked, campaign.kinds, campaign.judged, found


def test_any_number_of_processes_emulates_the_same_cases_and_a_run_goes_on_with_them(tmp_path, own_zygotes):
    folders = [tmp_path / name for name in ("alone", "two")]
    for folder in folders:
        folder.mkdir()
    alone = searched(folders[0], [], 3 * BATCH)
    two = searched(folders[1], [Place("cpu")] * 2, BATCH + 5, 3 * BATCH)
    assert alone[0] > 10
    assert alone[:3] == two[:3]
    for found in (alone[3], two[3]):
        assert (found.verdict.kind, found.subject.device) == (Kind.RACE, "cpu")
        assert found.count == alone[1]["race"] == alone[0], "each is counted"


@pytest.mark.parametrize("kind", BUGS)
def test_what_the_emulator_catches_counts(tmp_path, kind):
    path = written(tmp_path, BUGS[kind])
    with emulated(path) as there:
        (key,) = there.subjects
        case = silu(3, 7)
        (checked,) = there.check([there.request(0, case)])
    assert checked.verdicts[key].kind is Kind(kind)
    assert checked.verdicts[key].rule == "check"


def test_what_a_gpu_has_to_judge_does_not_count(tmp_path):
    wrong = written(tmp_path, "if (i < n) out[i] = 2 * x[i];")
    with emulated(wrong) as there:
        (key,) = there.subjects
        (checked,) = there.check([there.request(0, silu(3, 7))])
    assert checked.verdicts[key].kind is Kind.PASS


def test_who_waits_for_what_is_not_emulated_is_asked_once(tmp_path, monkeypatch):
    monkeypatch.setattr(check_mode, "SECONDS", 0.3)
    with emulated(written(tmp_path, WAITS)) as there:
        (key,) = there.subjects
        (checked,) = there.check([there.request(0, silu(3, 7))])
        assert checked.verdicts[key].kind is Kind.INCONCLUSIVE
        assert there.request(1, silu(3, 7)) is None


def test_a_share_of_the_small_cases_is_emulated(tmp_path):
    with emulated(written(tmp_path, RIGHT.removeprefix(HEAD).removesuffix("}\n"))) as there:
        drawn = [silu(3, 7, seed=s) for s in range(1, 400)]
        early = [c for c in drawn if there.request(5, c)]
        late = [c for n, c in enumerate(drawn) if there.request(check_mode.FIRST + n, c)]
        assert all(map(is_checked, early))
        assert 60 < len(early) < 140
        assert 2 < len(late) < 30
        assert there.request(0, silu(300, 300)) is None


def test_who_cannot_be_emulated_is_told_and_the_others_are(tmp_path):
    path = written(tmp_path, "if (i < n) out[i] = x[i] / (1 + expf(-x[i]));")
    other = tmp_path / "ptx.cu"
    other.write_text(HEAD + "#include <cute/tensor.hpp>\n  if (i < n) out[i] = x[i];\n}\n")
    subjects = [user_subject(str(p), ()).but(device="cuda") for p in (path, other)]
    with EmulatingExaminer(subjects, timeout=5.0, memory_mb=1024) as there:
        assert set(there.subjects) == {"silu/mine"}
        assert "uses cute/tensor.hpp" in there.wrong["silu/ptx"]
