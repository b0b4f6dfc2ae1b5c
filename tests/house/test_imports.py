"""Imports go down only, only kernels may import GPU libraries, and the accused never meets the judge."""

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tree import PACKAGES, ROOT

from kernel_assay.kernels.backends.support.signature import Interface
from kernel_assay.kernels.catalog import subjects_of
from kernel_assay.kernels.sandbox.sandbox import Sandbox

LINT = Path(sysconfig.get_path("scripts")) / "lint-imports"


def lint(folder):
    return subprocess.run([LINT, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


def test_contracts_are_kept():
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("kernels/backends/support/base.py", "import kernel_assay.oracles.judging.judge"),
        ("corpus/inputs/field.py", "import kernel_assay.reports.plain.run_text"),
        ("oracles/judging/judge.py", "import torch"),
        ("oracles/judging/judge.py", "import cuda.bindings.driver"),
        ("kernels/worker/worker.py", "import hypothesis"),
        ("corpus/model/base.py", "import kernel_assay.corpus.model.case"),
        ("corpus/inputs/fingerprint.py", "import kernel_assay.corpus.inputs.torch.recipes"),
        ("oracles/large/judge_large.py", "import kernel_assay.corpus.inputs.torch.recipes"),
    ],
)
def test_a_broken_contract_is_noticed(tmp_path, module, line):
    for name in (*PACKAGES, "kernel_assay"):
        ignored = shutil.ignore_patterns("__pycache__", "local")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    result = lint(tmp_path)
    assert result.returncode == 1, result.stdout
    assert re.search(r"[1-9] broken", result.stdout)


def test_without_a_device_nobody_loads_torch():
    """Importing any module of ours that is not about a device: a command must start without it."""
    named = [
        file.relative_to(ROOT) for name in ("corpus", "oracles", "reports") for file in (ROOT / name).rglob("*.py")
    ]
    apart = {"device", "torch", "local"}
    modules = [".".join(("kernel_assay", *p.with_suffix("").parts)) for p in named if not apart & set(p.parts)]
    assert len(modules) > 80
    assert "torch" not in packages_after("import " + ", ".join(m.removesuffix(".__init__") for m in modules))
    assert "torch" in packages_after("import kernel_assay.corpus.inputs.torch.recipes")


def packages_after(code):
    """Top-level names of what is loaded in a fresh interpreter after these statements."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_the_worker_never_meets_the_judge():
    subjects = [s for s in subjects_of("silu") if s.backend in {"numpy", "torch"} and not s.planted]
    with Sandbox(subjects, {"silu": Interface(("x",), ("out",), ())}) as sandbox:
        assert [sandbox.ask(s.key, {"probe": s.key}, 60.0)["modules"] for s in subjects] == [[]] * len(subjects)


def test_a_worker_that_meets_the_judge_is_noticed(tmp_path):
    file = tmp_path / "nosy.py"
    file.write_text(
        '"""Looks at the judge."""\nimport kernel_assay.oracles.judging.failure_mask\n\n\ndef run(x):\n    return x\n'
    )
    nosy = subjects_of("silu")[0].but(name="nosy", path=str(file), function="run", backend="numpy")
    with Sandbox([nosy], {"silu": Interface(("x",), ("out",), ())}, closed=False) as sandbox:
        said = sandbox.ask(nosy.key, {"probe": nosy.key}, 60.0)
        assert "kernel_assay.oracles.judging.failure_mask" in said["modules"]


def test_processes_of_ours_are_named_by_modules_that_are_there():
    """They are named within kernel_assay: the same name at the top level would be another project's, once installed."""
    names = {
        ast.literal_eval(call.args[0])
        for folder in PACKAGES
        for path in (ROOT / folder).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"start", "ChildProcess", "_started"}
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    assert len(names) >= 4
    assert [name for name in names if importlib.util.find_spec(f"kernel_assay.{name}") is None] == []
