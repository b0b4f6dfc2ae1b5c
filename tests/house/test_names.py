"""One thing, one file, one name: what does not match or stands twice is refused, with both named."""

import re
import sys
from collections import Counter

import pytest
from tree import ROOT

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.corpus.inputs.distributions import DISTRIBUTIONS, distribution
from kernel_assay.fuzz.checking.selection import select
from kernel_assay.kernels import backends
from kernel_assay.kernels.backend_registry import files as load_backends
from kernel_assay.oracles import contracts
from kernel_assay.oracles.catalog import load_contracts

SUBJECT = '"""A subject."""\n\n\ndef run(x):\n    return x\n'


@pytest.mark.parametrize(
    ("package", "noun", "load", "borrowed"),
    [(contracts, "CONTRACT", load_contracts, "silu"), (backends, "LOADER", load_backends, "numpy")],
)
def test_a_name_that_does_not_match_its_file(tmp_path, monkeypatch, package, noun, load, borrowed):
    (tmp_path / "stranger.py").write_text(f"from {package.__name__}.{borrowed} import {noun}\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    folder = package.__name__.removeprefix("kernel_assay.").replace(".", "/")
    wanted = f"{folder}/stranger.py must define 'stranger', not '{borrowed}'"
    try:
        with pytest.raises(InternalError, match=re.escape(wanted)):
            load.__wrapped__()
    finally:
        sys.modules.pop(f"{package.__name__}.stranger", None)


def test_a_subject_that_stands_twice(tmp_path):
    files = [tmp_path / "a" / "mine.py", tmp_path / "b" / "mine.py"]
    for file in files:
        file.parent.mkdir()
        file.write_text(SUBJECT)
    with pytest.raises(UsageError) as refused:
        select(["silu"], files=[str(f) for f in files])
    assert str(refused.value) == f"subject silu/mine stands twice: {files[0]} and {files[1]}"


def test_a_subject_named_like_one_of_the_house(tmp_path):
    (tmp_path / "torch_silu.py").write_text(SUBJECT)
    with pytest.raises(UsageError) as refused:
        select(["silu"], files=[str(tmp_path / "torch_silu.py")], peers=["torch_silu"])
    assert str(tmp_path / "torch_silu.py") in str(refused.value)
    assert "kernels/silu/torch_silu.py" in str(refused.value)


def test_two_distributions_of_one_name():
    before = dict(DISTRIBUTIONS)

    def normal(_):
        """Another."""

    with pytest.raises(InternalError, match="distribution 'normal' is defined twice"):
        distribution("iid")(normal)
    assert before == DISTRIBUTIONS


def test_no_two_modules_of_tests_share_a_name():
    """Pytest imports them all as top-level modules, and collects only the first of two that share a name."""
    counts = Counter(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_no_helper_of_tests_hides_one_of_a_script():
    """Tests import scripts, and what stands beside them: whichever module was there first would be taken for both."""
    tests, scripts = ({file.name for file in (ROOT / folder).rglob("_*.py")} for folder in ("tests", "scripts"))
    assert tests & scripts - {"__init__.py"} == set()
