import importlib.util
from pathlib import Path

import pytest

from kernel_assay.corpus.storage.reading import load_record

REGRESSIONS = Path(__file__).parents[3] / "corpus" / "regressions" / "silu"


@pytest.fixture
def stored():
    """A finding that shows each time."""
    return load_record(min(REGRESSIONS.glob("*.json"))).but(probability=1.0)


_PLACES = importlib.util.spec_from_file_location("places_of_stores", Path(__file__).parents[2] / "corpus/conftest.py")
_places = importlib.util.module_from_spec(_PLACES)
_PLACES.loader.exec_module(_places)
server = _places.server
"""A PostgreSQL server, where one is installed."""
