from pathlib import Path

import pytest

from kernel_assay.corpus.storage.reading import load_record

REGRESSIONS = Path(__file__).parents[3] / "corpus" / "regressions" / "silu"


@pytest.fixture
def stored():
    """A finding that shows each time."""
    return load_record(min(REGRESSIONS.glob("*.json"))).but(probability=1.0)
