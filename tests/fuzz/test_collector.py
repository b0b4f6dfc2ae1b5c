"""While a search is on, the collector of cycles looks rarely; afterwards it is as it was, whatever happened."""

import gc

import pytest

from kernel_assay.fuzz.campaign.garbage import ALLOCATIONS, seldom


class Ring:
    """Holds itself, so that only the collector frees it."""

    def __init__(self, freed):
        self.me, self.freed = self, freed

    def __del__(self):
        self.freed.append(1)


def test_it_looks_rarely_and_is_as_before_in_the_end():
    before, freed = gc.get_threshold(), []
    with seldom():
        assert gc.get_threshold() == (ALLOCATIONS, *before[1:])
        assert gc.get_freeze_count() > 1000
        Ring(freed)
        gc.collect()
        assert freed, "what is made meanwhile is freed all the same"
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_an_error_changes_nothing_about_that():
    before = gc.get_threshold()
    with pytest.raises(KeyError), seldom():
        raise KeyError
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
