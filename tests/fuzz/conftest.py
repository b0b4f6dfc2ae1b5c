"""What the tests of the commands share."""

import pytest

from kernel_assay.fuzz.__main__ import main


@pytest.fixture
def fuzz(capsys):
    """A command: its exit code, its output, and what it says beside."""

    def call(*words):
        code = main([*map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
