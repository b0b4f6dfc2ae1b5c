"""Exit codes are a promise to CI: 0 nothing found, 1 findings, 2 usage, 3 a fault of the tool itself."""

import pytest

from kernel_assay.corpus.errors import InternalError, UsageError
from kernel_assay.fuzz import __main__ as commands


@pytest.mark.parametrize(
    ("trouble", "code", "words"),
    [
        (UsageError("no such thing"), 2, "kassay: no such thing"),
        (InternalError("a broken promise"), 3, "kassay: internal error, please report it: a broken promise"),
        (ValueError("math domain error"), 3, "ValueError: math domain error"),
    ],
)
def test_trouble_has_its_code(monkeypatch, capsys, trouble, code, words):
    def fail():
        raise trouble

    monkeypatch.setattr(commands, "program", fail)
    assert commands.main(["list"]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["lsit"], ["list", "opps"], ["run", "--bugdet", "5s"], ["run", "no_such_op"]])
def test_a_wrong_request_is_one_sentence(capsys, arguments):
    assert commands.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


def test_success(capsys):
    assert commands.main(["list", "verdicts"]) == 0
    assert "mismatch" in capsys.readouterr().out
