"""Who wants a run, a replay or a report calls the Python API: only tests start our own command line in a subprocess."""

import ast
import itertools

import pytest
from tree import PACKAGES, ROOT

OURS = ("fuzz", "reports", "kernel_assay.fuzz", "kernel_assay.reports")
KILLED = {"scripts/bench/_service.py"}
"""Programs that start servers and workers to kill them."""
COMMANDS = ("kernel_assay.fuzz.__main__", "kernel_assay.fuzz.cli", "kernel_assay.reports.__main__")


def programs():
    """All modules that are no tests, and the scripts."""
    yield from (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    scripts = (
        path for path in sorted((ROOT / "scripts").rglob("*")) if path.is_file() and "__pycache__" not in path.parts
    )
    yield from (path for path in scripts if path.suffix in {"", ".py"})


def words_of(node):
    """The words of a list, a tuple or a call, a command line perhaps; None for each that is no literal."""
    parts = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.List | ast.Tuple) else []
    return [part.value if isinstance(part, ast.Constant) else None for part in parts]


def command_lines(text):
    """Lines in which a command line of ours is made."""
    for node in ast.walk(ast.parse(text)):
        words = words_of(node)
        module = any(a == "-m" and str(b).startswith(OURS) for a, b in itertools.pairwise(words))
        program = isinstance(node, ast.List) and words[:1] == ["kassay"]
        launched = isinstance(node, ast.Call) and str(words[0] if words else "").startswith(COMMANDS)
        if module or program or (launched and ast.unparse(node.func).endswith("command_of")):
            yield node.lineno


def test_nothing_but_tests_starts_our_command_line():
    paths = list(programs())
    assert {path.name for path in paths} > {"api.py", "nightly", "demo", "budget", "_run.py"}
    assert {str(p.relative_to(ROOT)) for p in paths if list(command_lines(p.read_text("utf-8")))} == KILLED


@pytest.mark.parametrize(
    "line",
    [
        'subprocess.run([sys.executable, "-m", "fuzz", "run", *words])',
        'steps.call("-m", "kernel_assay.fuzz", "doctor")',
        'Popen(["kassay", "replay"])',
        'Popen(command_of("kernel_assay.fuzz.__main__", "run"))',
    ],
)
def test_one_that_does_is_noticed(line):
    assert list(command_lines(line)) == [1]
    assert list(command_lines('subprocess.run([sys.executable, "-m", "pytest", name]); f(f"kassay run {name}")')) == []
