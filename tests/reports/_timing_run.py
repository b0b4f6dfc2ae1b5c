"""A run of times as a measurement makes them, without one."""

import numpy as np

from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.corpus.model.findings import Environment
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.timing import ClockSample, Compared, Peaks, Timed, TimingRun
from kernel_assay.fuzz.timing.compare import compare

LAUNCHES, ROUNDS = 24, 6
SPEEDS = {"my_softmax": 1.0, "my_softmax@HEAD~1": 1.06, "torch": 0.7, "numpy_float32": 2.5}
SIZES = (64, 256, 1024, 4096)


def timing_run(sizes=SIZES, **fields):
    """Four implementations on some sizes, an earlier version among them that is 6 % slower, and one that crashes."""
    random, names = np.random.default_rng(0), tuple(np.repeat(np.arange(LAUNCHES), ROUNDS).tolist())
    timed, compared = [], []
    for cols in sizes:
        recipe = TensorRecipe(shape=(256, cols), dtype="float32", fill=Fill(distribution="normal"))
        case, here = Case(op="softmax", tensors={"x": recipe}), {}
        for name, factor in SPEEDS.items():
            noise = np.exp(np.abs(random.standard_normal(len(names))) * 0.05)
            seconds = tuple(((2e-6 + factor * 256 * cols * 1e-9) * noise).tolist())
            here[name] = Timed(
                subject=f"softmax/{name}",
                case=case,
                seconds=seconds,
                launches=names,
                bytes=256 * cols * 8,
                operations=256 * cols,
            )
        timed += here.values()
        old, new = here["my_softmax@HEAD~1"], here["my_softmax"]
        said = compare(old.seconds, new.seconds, launches=names)
        compared.append(Compared(subject=new.subject, before=old.subject, case=case, comparison=said))
    timed.append(Timed(subject="softmax/broken", case=timed[0].case, problem="it crashed: killed by SIGSEGV"))
    usual = {
        "run": "20261125-212100-abcd",
        "version": "0",
        "at": "2026-11-25T21:21:00+00:00",
        "command": "time softmax --subject my_softmax.py --against HEAD~1",
        "seed": 1,
        "device": "cpu",
        "environment": Environment(python="3", platform="Linux", machine="x86_64", processor="a processor"),
        "noise": 0.005,
        "limit": 10.0,
        "peaks": Peaks(device="a processor", at="", bandwidth=2e10, products={"float32": 1e11}),
        "clocks": (ClockSample(at=0.0, mhz=2500.0, throttled=("SW Power Cap",)), ClockSample(at=1.0, mhz=2600.0)),
        "notes": ("the clock was held down while it ran: SW Power Cap",),
        "baseline": "softmax/torch",
        "subjects": tuple(Subject(op="softmax", name=name, backend="numpy") for name in SPEEDS),
        "timed": tuple(timed),
        "compared": tuple(compared),
    }
    return TimingRun(**{**usual, **fields})
