"""A trace that would take more than a tenth of the program's time lets calls pass, and says what it did not see."""

import pytest
import torch

import kernel_assay
from kernel_assay.kernels.recording import sampling, watch


class Clock:
    """Seconds pass as the test says: so many in each operator's watching, and in each call of the model."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Model(torch.nn.Module):
    def __init__(self, clock, seconds=1.0):
        super().__init__()
        self.weight, self.clock, self.seconds = torch.nn.Parameter(torch.ones(4)), clock, seconds

    def forward(self, x):
        self.clock.now += self.seconds
        return self.weight / x


@pytest.fixture
def clock(monkeypatch):
    """Watching an operator takes 0.1 s, and a call of the model 1 s."""
    made = Clock()
    monkeypatch.setattr(sampling, "clock", made)
    monkeypatch.setattr(watch, "clock", made)
    looked = watch.Watch._after

    def after(self, *given):
        made.now += 0.1
        looked(self, *given)

    monkeypatch.setattr(watch.Watch, "_after", after)
    return made


def test_calls_pass_until_the_rest_takes_a_tenth(clock):
    model = Model(clock)
    with kernel_assay.trace(model) as traced:
        for _ in range(200):
            model(torch.ones(4)).sum().backward()
    story = traced.story
    watched = story.calls - story.passed
    assert story.calls == 200
    assert 4 < watched < 100
    assert clock.now - 100.0 < 200 * 1.0 * 1.11 + sampling.GRACE_SECONDS
    assert f"{story.passed} of 200 calls were not watched, so that all takes 10 % longer at most" in traced.report


@pytest.mark.parametrize("how", [{"every_call": True}, {}])
def test_all_are_watched_where_that_is_wanted_or_takes_little(clock, how):
    model = Model(clock, 1.0 if how else 99.0)
    with kernel_assay.trace(model, **how) as traced:
        for _ in range(50):
            model(torch.ones(4))
    assert (traced.story.calls, traced.story.passed) == (50, 0)
    assert "not watched" not in traced.report


@pytest.mark.parametrize("backward", [False, True])
def test_what_comes_out_of_a_call_that_passed_is_told_and_the_next_one_is_watched(clock, backward):
    model = Model(clock)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with kernel_assay.trace(model) as traced:
        for number in range(60):
            passed = traced.story.passed
            x = torch.ones(4)
            bad = number > 30 and passed > 5
            if bad:
                x[2] = torch.inf if backward else torch.nan
            out = model(x)
            if bad and traced.story.passed > passed:
                break
            out.sum().backward()
            optimizer.step()
        else:
            pytest.fail("no call passed")
        if backward:  # of an Inf in the data comes 0; and NaN, backward
            (out * torch.inf).sum().backward()
            optimizer.step()
    (event,) = traced.story.failures
    said = event.title()
    assert said.startswith(f"NaN came out of a call that was not watched, call {number + 1} of Model"), said
    assert ("a gradient" if backward else "an output of Model") in said
    assert "--every-call" in traced.report


def test_a_mask_that_comes_out_of_a_call_that_passed_is_no_alarm(clock):
    model = Model(clock)
    with kernel_assay.trace(model) as traced:
        for _ in range(100):
            model(torch.zeros(4))  # Inf, as masks hold
            traced.story.events.clear() if traced.story.passed else None
    assert traced.story.passed
    assert not [one for one in traced.story.events if one.origin == "unseen"]
