"""A CUDA file without front matter is a subject, too: the same keys stand on the command line."""

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.__main__ import main
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.checking.selection import placed, select
from kernel_assay.fuzz.generation.strategies import build
from kernel_assay.kernels.backends.simt.toolchain import missing
from kernel_assay.kernels.catalog import size_hints, user_subject
from kernel_assay.oracles.catalog import contract_of

PLAIN = """__global__ void mine(float* y, const float* x, long long n) {
  long long i = 96LL * blockIdx.x + threadIdx.x;
  if (i < n) y[i] = x[i] / (1.0f + expf(-x[i]));
}
"""
LAUNCH = ('entry = "mine"', 'args = ["out", "x", "x.size"]', 'grid = "ceil_div(x.size, 96)"', "block = 96")


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "plain.cu"
    path.write_text(PLAIN, "utf-8")
    return str(path)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_file_is_launched_as_the_command_line_says(plain):
    chosen = select(["silu"], files=[plain], peers=["none"], launch=LAUNCH)
    assert [(s.key, s.launch) for s in chosen] == [("silu/plain", "\n".join(LAUNCH))]
    case = build(contract_of("silu"), lambda low, high: min(max(low, 1), high), dtypes=("float32",))
    with Examiner(chosen) as examiner:
        assert (
            next(iter(examiner.check([CheckRequest(case, ("silu/plain",))]))).verdicts["silu/plain"].kind is Kind.PASS
        )


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_stored_case_is_run_again_as_the_command_line_says(plain, tmp_path, capsys):
    case = build(contract_of("silu"), lambda low, high: min(max(low, 1), high), dtypes=("float32",))
    words = ["--subject", plain, *(word for line in LAUNCH for word in ("--launch", line)), "--corpus", str(tmp_path)]
    assert main(["replay", case.token, *words]) == 0
    assert "passes: silu/plain" in capsys.readouterr().out
    assert main(["shrink", case.token, *words]) == 0
    assert main(["show", case.token, *words]) == 0
    assert main(["replay", case.token, *words[:4], "--corpus", str(tmp_path)]) == 2
    assert "its front matter lacks args" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["replay", "shrink", "show"])
def test_keys_for_no_file_are_refused_by_commands_on_stored_cases(command, tmp_path, capsys):
    assert main([command, "x", "--launch", "block = 1", "--corpus", str(tmp_path)]) == 2
    assert "--launch says how a CUDA file is launched, but no --subject is one" in capsys.readouterr().err


def test_the_keys_are_part_of_what_it_is(plain):
    one, two = (user_subject(plain, ("silu",), "\n".join((*LAUNCH[:3], f"block = {n}"))) for n in (96, 192))
    assert one.source_digest != two.source_digest
    assert size_hints(one) == (96,)
    assert size_hints(two) == (96, 192)


def test_a_key_replaces_the_one_in_the_file(tmp_path):
    path = tmp_path / "own.cu"
    keys = "\n".join((*LAUNCH, 'dtypes = ["float32"]'))
    path.write_text(f"/*\n---\n{keys}\n---\n*/\n{PLAIN}", "utf-8")
    assert user_subject(str(path), ("silu",)).dtypes == ("float32",)
    assert user_subject(str(path), ("silu",), 'numerics = { exp = "fast" }').numerics.exp == "fast"


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (("entry = mine",), "--launch is not TOML"),
        (('entry = "mine"',), "its front matter lacks args"),
        (("speed = 3",), "'speed' is not a key of front matter"),
    ],
)
def test_keys_that_make_no_sense_are_one_sentence(plain, launch, words):
    with pytest.raises(UsageError, match=words) as refused:
        select(["silu"], files=[plain], launch=launch)
    assert "\n" not in str(refused.value)


def test_keys_for_nobody_are_refused():
    with pytest.raises(UsageError, match="no --subject is one"):
        select(["silu"], launch=LAUNCH)


def test_a_digest_follows_what_a_file_includes(tmp_path):
    path, header = tmp_path / "own.cu", tmp_path / "own.h"
    path.write_text(f'#include "own.h"\n{PLAIN}', "utf-8")
    digests = []
    for text in ("// one\n", "// two\n"):
        header.write_text(text, "utf-8")
        digests.append(user_subject(str(path), ("silu",), "\n".join(LAUNCH)).source_digest)
    assert digests[0] != digests[1]


def test_a_device_that_is_not_there_is_refused(plain, monkeypatch):
    chosen = select(["silu"], files=[plain], peers=["none"], launch=LAUNCH)
    with pytest.raises(
        UsageError, match="device 'tpu' is not known; the known ones are cpu, cuda, cuda:NUMBER and cuda:all"
    ):
        placed(chosen, "tpu")
    monkeypatch.setattr("kernel_assay.kernels.boundary.devices.device_count", lambda: 0)
    with pytest.raises(UsageError, match="there is no CUDA device"):
        placed(chosen, "cuda")


def test_on_a_gpu_only_what_can_run_there_is_placed_there(monkeypatch):
    monkeypatch.setattr("kernel_assay.kernels.boundary.devices.device_count", lambda: 1)
    monkeypatch.setattr("kernel_assay.kernels.backends.cuda_support.gpu_memory.device_count", lambda: 1)
    monkeypatch.setattr("kernel_assay.kernels.backends.cuda.compilers", lambda: ("nvrtc",))
    monkeypatch.setattr("kernel_assay.kernels.backends.cuda_support.gpu_memory.find_spec", lambda package: object())
    devices = {s.backend: s.device for s in placed(select(["silu"]), "cuda")}
    assert devices["numpy"] == "cpu"
    assert devices["torch"] == "cuda"
