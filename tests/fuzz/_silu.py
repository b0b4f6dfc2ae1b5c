"""Kernels of silu, right and wrong, and a failure filed as a run would file it."""

from kernel_assay.corpus.model.findings import State
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.fuzz.checking.check import Examiner
from kernel_assay.fuzz.checking.requests import CheckRequest
from kernel_assay.fuzz.triage.failures import Failure, Observed, event, file
from kernel_assay.kernels.catalog import user_subject


def right(*dtypes):
    """A kernel without fault, to which lines may be added; dtypes: all that it takes, if it says so."""
    says = f"DTYPES = {dtypes}\n" if dtypes else ""
    return f"""import numpy as np
OP = "silu"
{says}
def run(out, x):
    w = x.astype(np.float64)
    with np.errstate(all="ignore"):
        out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
"""


RIGHT = right()
WRONG = RIGHT + "    out[:, 3:4] = 5\n"


def finding_of(kernel, case, *, law="", state=State.NEW, look=False, **fields):
    """What a run files of a kernel, by itself or by its file, that fails; look: with its exhibit."""
    subject = kernel if isinstance(kernel, Subject) else user_subject(str(kernel), ())
    with Examiner([subject], timeout=5.0) as examiner:
        checked = examiner.check([CheckRequest(case, (subject.key,), (law,) if law else ())])[0]
        verdict = checked.verdicts[subject.key]
        assert verdict.failed, verdict
        if look:
            fields["exhibit"] = examiner.look(case, subject.key).exhibit
    seen = Observed(case, verdict, checked.input_digest, **fields)
    return file(Failure(case, subject, verdict, "r1:0"), seen, [event(state, "found by r1:0")])
