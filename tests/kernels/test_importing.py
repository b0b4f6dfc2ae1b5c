"""A kernel is imported where it lies: by its package, with what lies beside it, and apart from others' neighbours."""

import sys

import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.generation.engines import Target, generate
from kernel_assay.kernels.backends.support.importing import file_of_module, import_file, package_of
from kernel_assay.kernels.catalog import user_subject
from kernel_assay.oracles.catalog import contract_of

KERNEL = """import numpy as np

OP = "silu"
DTYPES = ("float32",)


def silu(x):
    with np.errstate(all="ignore"):
        return (FACTOR * x / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)
"""


def written(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def verdicts(*texts):
    from random import Random

    subjects = [user_subject(str(text), ()) for text in texts]
    case, _ = generate(Target(contract_of("silu"), dtypes=("float32",), max_elements=64), Random(3))
    with Examiner(subjects) as examiner:
        checked = examiner.check([CheckRequest(case, tuple(s.key for s in subjects))])[0]
    return [checked.verdicts[s.key].kind for s in subjects]


def test_a_file_of_a_package_imports_relatively(tmp_path):
    written(tmp_path, "mine/__init__.py", "")
    written(tmp_path, "mine/parts/__init__.py", "")
    written(tmp_path, "mine/constants.py", "FACTOR = 1\n")
    path = written(tmp_path, "mine/parts/kernel.py", f"from ..constants import FACTOR\n{KERNEL}")
    assert package_of(path) == (tmp_path, "mine.parts.kernel")
    assert verdicts(path) == [Kind.PASS]


def test_a_package_is_found_by_its_absolute_name_too(tmp_path):
    written(tmp_path, "mine/__init__.py", "")
    written(tmp_path, "mine/constants.py", "FACTOR = 1\n")
    path = written(tmp_path, "mine/kernel.py", f"from mine.constants import FACTOR\n{KERNEL}")
    assert verdicts(path) == [Kind.PASS]


def test_neighbours_of_the_same_name_are_not_mixed_up(tmp_path):
    """Both run in one worker; the second one's neighbour makes it wrong."""
    for folder, factor in (("one", 1), ("two", 2)):
        written(tmp_path, f"{folder}/constants.py", f"FACTOR = {factor}\n")
    paths = [written(tmp_path, f"{n}/kernel_{n}.py", f"from constants import FACTOR\n{KERNEL}") for n in ("one", "two")]
    assert verdicts(*paths) == [Kind.PASS, Kind.MISMATCH]


def test_a_neighbour_hides_nothing_that_is_installed(tmp_path):
    written(tmp_path, "numpy.py", "raise RuntimeError('hidden')\n")
    path = written(tmp_path, "kernel.py", f"FACTOR = 1\n{KERNEL}")
    assert verdicts(path) == [Kind.PASS]


def test_a_module_names_its_file_and_is_not_imported(tmp_path, monkeypatch):
    written(tmp_path, "mine/__init__.py", "raise RuntimeError('imported')\n")
    path = written(tmp_path, "mine/kernel.py", f"FACTOR = 1\n{KERNEL}")
    monkeypatch.chdir(tmp_path)
    assert file_of_module("mine.kernel") == path
    assert file_of_module("mine.nothing") is None
    assert file_of_module("mine..kernel") is None
    subject = user_subject("mine.kernel:silu", ())
    assert (subject.path, subject.function) == (str(path), "silu")
    assert "mine" not in sys.modules
    assert verdicts("mine.kernel:silu") == [Kind.PASS]


def test_an_exception_without_words_is_its_type(tmp_path):
    path = tmp_path / "silent.py"
    path.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(UsageError, match=r"silent\.py does not import: KeyboardInterrupt$"):
        import_file(path)


def test_a_module_that_is_nowhere_is_one_sentence():
    with pytest.raises(UsageError, match="nor a module found here"):
        user_subject("no_such.module:silu", ("silu",))


@pytest.mark.parametrize("imported", ["", "from .constants import FACTOR\n"])
def test_a_package_is_a_module_too(tmp_path, monkeypatch, imported):
    """Its folder stands beside it under the same name."""
    written(tmp_path, "mine/constants.py", "FACTOR = 1\n")
    path = written(tmp_path, "mine/__init__.py", f"FACTOR = 1\n{imported}{KERNEL}")
    monkeypatch.chdir(tmp_path)
    subject = user_subject("mine:silu", ())
    assert (subject.name, subject.path) == ("mine:silu", str(path))
    assert package_of(path) == (tmp_path, "mine")
    assert verdicts("mine:silu") == [Kind.PASS]
