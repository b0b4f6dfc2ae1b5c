"""What every test of a command asks."""

from pathlib import Path


def refused(answer, *words):
    """The command refuses in one sentence that has these words."""
    code, out, err = answer
    assert (code, out) == (2, ""), err
    assert err.startswith("kassay: ")
    assert err.count("\n") == 1, "one sentence"
    assert all(word in err for word in words), err
    assert "Traceback" not in err


def snapshot():
    """Every file of the corpus in this folder."""
    return {str(path): path.read_bytes() for path in Path("corpus").rglob("*") if path.is_file()}
