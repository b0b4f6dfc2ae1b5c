"""Everything in the pages runs, and prints what they show.

Of what a page shows every line is compared but for `...`, which stands for any lines; ` ...` at the end of a line, for
the rest of it. What differs from run to run and is no business of the page is taken out on both sides: lengths of time,
dates, names of runs, addresses of memory, and the width of columns.
"""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from kernel_assay.corpus.inputs import distributions
from kernel_assay.corpus.inputs.materialize import materialize
from kernel_assay.corpus.model.case import Fill, TensorRecipe
from kernel_assay.fuzz.cli import options
from kernel_assay.kernels.backends.cuda_support import front_matter
from kernel_assay.kernels.backends.simt.emulator import ORDERS
from kernel_assay.kernels.backends.simt.toolchain import missing as lacking

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
ACTED = [
    "add-a-metric.md",
    "add-a-subject.md",
    "add-an-op.md",
    "cheats.md",
    "compare.md",
    "debug-a-finding.md",
    "golden.md",
    "how-fast-is-it.md",
    "cuda-on-a-laptop.md",
    "cuda-programs.md",
    "fuzz-a-kernel.md",
    "gradients.md",
    "how-budgets-work.md",
    "in-your-tests.md",
    "a-matrix-of-tests.md",
    "a-shared-corpus.md",
    "judge-a-folder.md",
    "reading-a-verdict.md",
    "your-first-kernel.md",
    "your-own-reference.md",
    "other-arguments.md",
    "workloads.md",
    "trace.md",
    "triton-on-a-laptop.md",
]
"""Pages whose commands are run in the folder of a user."""
COMPILED = {"cuda-on-a-laptop.md", "debug-a-finding.md", "fuzz-a-kernel.md", "your-first-kernel.md"}
"""Pages with a kernel in CUDA C++."""
ON_A_LAPTOP = "Test your CUDA kernel on a laptop"
"""A section of the README."""
FOR_AUTHORS = [
    *(*ACTED, "add-a-distribution.md", "claims.md", "errors.md", "on-a-gpu.md", "performance-cliffs.md"),
    "service.md",
    *("found.md", "memory-order.md", "service-pages.md", "service-threats.md", "special-values.md"),
]
SHORTEST, LONGEST, WIDEST = 40, 140, 120
LOOKED_UP = {"cheats.md", "errors.md", "special-values.md"}
"""Tables, which nobody reads from end to end: they may be longer."""
VARIES = {
    r"\b20\d\d-\d\d-\d\dT[\d:]+(\+00:00)?": "WHEN",
    r"\b\d{8}-\d{6}-s(\d+)": r"RUN-s\1",
    r"in \d+(\.\d+)? ?s( \([\d,]+/s\))?": "in TIME",
    r"\b0x[0-9a-f]{8,}": "ADDRESS",
    r" +": " ",
}
"""Patterns, and what they are replaced by."""


def plain(line):
    for pattern, instead in VARIES.items():
        line = re.sub(pattern, instead, line)
    return line.strip()


def agrees(shown, printed):
    """Whether a line of a page says what was printed."""
    return printed.startswith(shown[:-4]) if shown.endswith(" ...") else printed == shown


def missing(text, output):
    """The lines of a text block that do not occur in the output, or not in this order."""
    rest = iter([plain(line) for line in output.splitlines()])
    wanted = [plain(line) for line in text.splitlines()]
    lost = []
    for line in (w for w in wanted if w not in {"", "..."}):
        if not any(agrees(line, printed) for printed in rest):
            lost.append(line)
            rest = iter([plain(line) for line in output.splitlines()])
    return lost


def lost_of(read):
    """The lines that no command of a page prints where it shows them."""
    lost, last = [], None
    for block in read.act():
        if block.language == "sh":
            last = block
        elif block.language == "text" and last is not None:
            lost += missing(block.text, last.output)
    return lost


@pytest.mark.parametrize("name", ACTED)
def test_a_page_shows_what_its_commands_print(page, name):
    if name in COMPILED and lacking():
        pytest.skip("no compiler")
    if name == "debug-a-finding.md" and not shutil.which("gdb"):
        pytest.skip("no gdb")
    read = page(name)
    assert lost_of(read) == []
    assert set(read.codes) <= {0, 1}, "a page has no command that is refused"


@pytest.mark.skipif(bool(lacking()), reason="no compiler")
def test_the_readme_shows_what_is_said_of_its_cuda_kernel(page):
    read = page(ROOT / "README.md", ON_A_LAPTOP)
    assert lost_of(read) == []
    assert read.codes == [1]


def test_the_page_on_cuda_names_every_key_and_every_order():
    text = (ROOT / "docs" / "cuda-on-a-laptop.md").read_text("utf-8")
    assert [name for name in (*front_matter._KEYS, *ORDERS) if f"`{name}`" not in text] == []


def test_a_line_that_nobody_printed_is_noticed():
    printed = "run 20260101-120000-s1  seed 1\na  1\nb  2\nc 3 and more\n"
    assert missing("run 20270202-000000-s1 seed 1\n...\na 1\nc 3 ...\n", printed) == []
    assert missing("a 2\n", printed) == ["a 2"]
    assert missing("b 2\na 1\n", printed) == ["a 1"]
    assert missing("run 20270202-000000-s2 seed 1\n", printed) != []


def test_the_distribution_of_the_page_can_be_cut(page, monkeypatch):
    monkeypatch.setattr(distributions, "DISTRIBUTIONS", table := dict(distributions.DISTRIBUTIONS))
    monkeypatch.setattr("kernel_assay.corpus.inputs.materialize.DISTRIBUTIONS", table)
    block, _ = (b for b in page("add-a-distribution.md").blocks() if b.language == "python")
    exec(block.text, dict(vars(distributions)))
    name = list(table)[-1]
    whole = materialize(TensorRecipe(shape=(3, 40), dtype="float16", fill=Fill(distribution=name, seed=5)))
    part = materialize(
        TensorRecipe(shape=(2, 7), dtype="float16", origin=(1, 30), fill=Fill(distribution=name, seed=5))
    )
    assert f"{name}(w: Window)" in block.text
    assert sorted(set(whole.reshape(-1).tolist())) == [1 / 256, 256.0]
    assert part.tobytes() == whole[1:, 30:37].tobytes()


def test_the_twin_of_the_page_makes_the_same_bytes(page, monkeypatch):
    pytest.importorskip("torch")
    from kernel_assay.corpus.inputs.torch import distributions as twins
    from kernel_assay.corpus.inputs.torch import recipes

    monkeypatch.setattr(distributions, "DISTRIBUTIONS", table := dict(distributions.DISTRIBUTIONS))
    monkeypatch.setattr("kernel_assay.corpus.inputs.materialize.DISTRIBUTIONS", table)
    monkeypatch.setattr(twins, "SAMPLERS", dict(twins.SAMPLERS))
    block, twin = (b for b in page("add-a-distribution.md").blocks() if b.language == "python")
    exec(block.text, dict(vars(distributions)))
    exec(twin.text, dict(vars(twins)))
    recipe = TensorRecipe(shape=(3, 40), dtype="float16", fill=Fill(distribution=list(table)[-1], seed=5))
    assert recipes.materialize(recipe, "cpu").numpy().tobytes() == materialize(recipe).tobytes()


def house_docs():
    """The helpers with which the house reads commands."""
    spec = importlib.util.spec_from_file_location("house_docs", ROOT / "tests" / "house" / "test_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path", [p for p in [ROOT / "README.md", *DOCS] if p.name != "errors.md"], ids=lambda path: path.name
)
def test_every_command_parses(path, monkeypatch):
    monkeypatch.setattr(options, "add_contract", lambda _: None)  # the files of a page are not there
    monkeypatch.setattr("kernel_assay.reports.options.existing", lambda place: place)
    monkeypatch.syspath_prepend(ROOT / "tests" / "house")
    house = house_docs()
    assert [words for words in house.commands(path.read_text("utf-8")) if not house.parses(words)] == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    text = path.read_text("utf-8")
    named = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) + re.findall(r"\bdocs/([a-z-]+\.md)\b", text)
    assert [name for name in named if not any((ROOT / folder / name).exists() for folder in ("docs", "."))] == []


@pytest.mark.parametrize("name", FOR_AUTHORS)
def test_every_path_of_the_project_exists(name):
    text = (ROOT / "docs" / name).read_text("utf-8")
    named = re.findall(r"\b((?:corpus|fuzz|kernels|oracles|reports|tests|scripts)/[\w/]+\.\w+)", text)
    assert [path for path in named if not (ROOT / path).exists() and not path.startswith("corpus/local")] == []


@pytest.mark.parametrize("name", FOR_AUTHORS)
def test_a_page_fits_on_a_screen_or_three(name):
    lines = (ROOT / "docs" / name).read_text("utf-8").splitlines()
    assert len(lines) >= SHORTEST
    assert len(lines) <= LONGEST or name in LOOKED_UP
    assert [line for line in lines if len(line) > WIDEST and not line.startswith(("|", " "))] == []
