"""Decide one execution. Pure: no clock, no randomness, no I/O.

Rules in order, the first that speaks decides: what the sandbox saw (status, red zones, inputs), form (shape, dtype,
aliasing, layout), poison that stayed, two runs that differ, then values, of both runs if they may differ: class,
exactness, rho, Z. There is no rtol and no atol anywhere (numerics.md 0).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from kernel_assay.corpus.errors import InternalError
from kernel_assay.corpus.formats import FORMATS, Array, Format, format_of
from kernel_assay.corpus.inputs.materialize import Tensors
from kernel_assay.corpus.model.execution import Execution, OutputReport
from kernel_assay.corpus.model.kinds import Kind, Status
from kernel_assay.corpus.model.subject import Subject
from kernel_assay.corpus.model.verdict import Measurement, Signature, Verdict
from kernel_assay.oracles.judging.arbiter import Ruling, arbitrate
from kernel_assay.oracles.judging.failure_mask import Mask, failing, failing_bits, ideal_z, sign_failures, tie_failures
from kernel_assay.oracles.judging.measure import Measured, measure
from kernel_assay.oracles.judging.measure_numpy import OVERFLOW, facts_of
from kernel_assay.oracles.judging.patterns import at_index, error_pattern, index_pattern, place_of
from kernel_assay.oracles.judging.reference import Reference
from kernel_assay.oracles.spec.contract import Budget, Reals

Z_FLOOR, Z_SPREAD = 1.05, 3.0
"""The line of the Z statistic: 1.05 + 3/sqrt(independent rows) (numerics.md 2.3)."""

MANY = 1e6
"""Times a budget beyond which the number says nothing more to a person, only what the budget is."""

UNWRITTEN, UNSET = 0xFF, 0xFE
"""Bytes that fill memory before a run (the guard's, and shared memory's in backends/simt/runtime/block.cpp), and local
variables in the emulator (g++'s pattern, kernels/backends/simt/toolchain.py)."""

REMEMBERED = 1 << 18
"""Bytes of outputs that are remembered when they pass: measuring so many takes longer than comparing them."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence that a rule may look at."""

    reference: Reference
    subject: Subject
    execution: Execution
    outputs: Tensors

    def want(self, name: str) -> Reals:
        """The numbers wanted of an output that was given; of several right answers the one that was chosen."""
        want, got = self.reference.want[name], self.outputs[name]
        right = self.reference.chosen(name, got)
        if right is None:
            return self.reference.budget(self.subject.numerics)[name].settled(want)
        return np.where(right, got.astype(np.float64), want)

    def verdict(self, kind: Kind, rule: str, message: str, output: str = "", index: str = "none", error: str = "none",
                measurements: Iterable[Measurement] = (), rho: float = 0.0) -> Verdict:  # fmt: skip
        """A failing verdict with its signature."""
        case = self.reference.case
        signature = Signature(
            op=case.op,
            subject=self.subject.name,
            kind=kind,
            rule=rule,
            dtype=case.dtype,
            index_pattern=index,
            error_pattern=error,
        )
        return Verdict(
            kind=kind,
            rule=rule,
            message=message,
            output=output,
            signature=signature,
            measurements=tuple(measurements),
            rho=rho,
        )


Rule = Callable[[Evidence], Verdict | None]


def judge(reference: Reference, subject: Subject, execution: Execution, outputs: Tensors) -> Verdict:
    """The verdict on one execution.

    outputs: by name, host arrays, what the first run left. Raises InternalError if the worker ran other inputs than
    the reference saw, or if the reference breaks its own form.
    """
    evidence = Evidence(reference, subject, execution, outputs)
    with np.errstate(all="ignore"):  # values of any kind are looked at
        for rule in RULES:
            if verdict := rule(evidence):
                return verdict
        return _judge_second(evidence, _judge_values(evidence))


_STATUS = {
    Status.RAISED: (Kind.RAISED, "it raised {}"),
    Status.TIMEOUT: (Kind.TIMEOUT, "{}"),
    Status.CRASHED: (Kind.CRASHED, "it crashed: {}"),
    Status.LAUNCH_FAILED: (Kind.CRASHED, "its launch failed: {}"),
    Status.OUT_OF_MEMORY: (Kind.OUT_OF_MEMORY, "it ran out of memory: {}"),
    Status.BUILD_FAILED: (Kind.BUILD_FAILED, "it could not be built: {}"),
}


def _status(e: Evidence) -> Verdict | None:
    status = e.execution.status
    if status is Status.OK:
        return None
    if status is Status.UNSUPPORTED:
        return unsupported(e.execution)
    if status is Status.FAULTED and e.execution.fault:
        return _caught(e, e.execution.fault)
    kind, words = _STATUS[status]
    reason = e.execution.message.partition(":")[0].replace("killed by ", "").replace(" ", "_")[:40]
    pattern = "none" if kind in {Kind.TIMEOUT, Kind.BUILD_FAILED} else reason
    return e.verdict(kind, "status", words.format(e.execution.message), error=pattern)


def _caught(e: Evidence, kind: Kind) -> Verdict:
    """What was seen while it ran; who touches what is not its own breaks the same rule as if it showed afterwards."""
    message = e.execution.message
    if e.execution.mutated:
        return e.verdict(kind, "inputs", message)
    if e.execution.damage:
        d = e.execution.damage[0]
        return e.verdict(kind, "guard", message, output=d.buffer, index="before" if d.offset < 0 else "behind")
    return e.verdict(kind, "check", message)


def unsupported(execution: Execution) -> Verdict:
    """The verdict on a case that its subject does not take: that says nothing about the subject."""
    return Verdict(kind=Kind.UNSUPPORTED, rule="status", message=execution.message)


def _guards(e: Evidence) -> Verdict | None:
    if not e.execution.damage:
        return None
    d = e.execution.damage[0]
    side = "before" if d.offset < 0 else "behind"
    away = abs(d.offset)
    where = f"{away} byte{'s' * (away != 1)} before its start" if d.offset < 0 else f"at byte {away} from its start"
    message = f"it wrote {d.count} byte{'s' * (d.count != 1)} outside the elements of {d.buffer!r}, {where}"
    return e.verdict(Kind.OUT_OF_BOUNDS, "guard", message, output=d.buffer, index=side)


def _inputs(e: Evidence) -> Verdict | None:
    if not e.execution.mutated:
        return None
    names = ", ".join(map(repr, e.execution.mutated))
    return e.verdict(Kind.INPUT_MUTATED, "inputs", f"it changed its input {names}")


def _form(e: Evidence) -> Verdict | None:
    for report in e.execution.outputs:
        spec = e.reference.specs[report.name]
        if report.shape != spec.shape:
            text = f"{report.name} has shape {report.shape}, wanted {spec.shape}"
            return e.verdict(Kind.WRONG_SHAPE, "structure", text, report.name)
        if report.dtype != spec.dtype:
            text = f"{report.name} has dtype {report.dtype}, wanted {spec.dtype}"
            return e.verdict(Kind.WRONG_DTYPE, "structure", text, report.name, error=report.dtype)
        if report.alias_of in e.reference.contract.outputs[report.name].views:
            continue  # a view, as the reference's own result is
        if report.alias_of:
            text = f"{report.name} is the memory of its input {report.alias_of!r}, not a result of its own"
            return e.verdict(Kind.ALIASED, "structure", text, report.name)
        if report.reused:
            text = (
                f"{report.name} of a second call lies in the memory of the first call's result, which is still held: "
                "whoever keeps a result finds it changed by the next call"
            )
            return e.verdict(Kind.ALIASED, "structure", text, report.name, error="reused")
        if not report.contiguous and e.reference.contract.elsewhere is None and _plain_inputs(e):
            text = (
                f"{report.name} is not contiguous although all inputs are: "
                "whoever takes its pointer reads other elements"
            )
            return e.verdict(Kind.WRONG_LAYOUT, "structure", text, report.name)
    return None


def _plain_inputs(e: Evidence) -> bool:
    """Whether all inputs are contiguous; a result may follow the strides of an input that is not."""
    return all(t.layout in {"contiguous", "offset_one", "offset_room"} for t in e.reference.case.tensors.values())


def _poison(e: Evidence) -> Verdict | None:
    for report in e.execution.outputs:
        if report.unwritten:
            size = int(np.prod(report.shape, dtype=np.int64))
            at = place_of(report.first_unwritten, report.shape)
            text = f"{report.name}{at} was never written ({report.unwritten} of {size} elements were not)"
            index = index_pattern(np.flatnonzero(unwritten(e, report)), report.shape)
            return e.verdict(Kind.UNWRITTEN, "poison", text, report.name, index)
    return None


def unwritten(e: Evidence, report: OutputReport) -> Mask:
    """True where an element kept the poison of both runs.

    Only what the first run left is known here. Where more elements look like its poison than were counted (-1 may be
    the right integer), those that are right were written.
    """
    got = e.outputs[report.name]
    raw = np.frombuffer(got.tobytes(), np.uint8).reshape(-1, got.itemsize)
    kept = (raw == UNWRITTEN).all(axis=1)
    kept[: max(0, report.first_unwritten)] = False
    if kept.sum() > report.unwritten:
        at = np.flatnonzero(kept)
        right = ~value_failures(e, report.name).reshape(-1)[at]
        right[0] = False  # the first is known
        kept[at[np.argsort(right, kind="stable")[report.unwritten :]]] = False
    mask: Mask = kept.reshape(got.shape)
    return mask


def value_failures(e: Evidence, name: str) -> Mask:
    """True where a value is refused, whatever else is wrong with the output."""
    got, budget = e.outputs[name], e.reference.budget(e.subject.numerics)[name]
    if budget.bitwise:
        return failing_bits(got, e.reference.copies[name]).reshape(got.shape)
    return failing(got, e.want(name), budget)


def _rerun(e: Evidence) -> Verdict | None:
    for report in e.execution.outputs:
        if report.differing and not (report.again and e.subject.numerics.order == "any"):
            return _differs(e, report)
    return None  # but if it is claimed, see _judge_second


def _differs(e: Evidence, report: OutputReport, more: str = "") -> Verdict:
    at = place_of(report.first_differing, report.shape)
    count = f"{report.differing} element{'s' * (report.differing != 1)}"
    text = f"two runs on the same input differ in {count}, first at {report.name}{at}{_both(report)}{more}"
    text += "".join(f"; also seen: {warning}" for warning in e.execution.warnings[:1])
    told = e.verdict(Kind.NONDETERMINISTIC, "rerun", text, report.name)
    return told.but(digests=(report.digest, report.digest_again)) if report.digest_again else told


def _judge_second(e: Evidence, first: Verdict) -> Verdict:
    """The verdict on both runs, by that on the first: where they differ, as is claimed, the second must be right."""
    differing = [report for report in e.execution.outputs if report.differing]
    if first.kind is not Kind.PASS or not differing:
        return first
    left = {r.name: bytearray(b64decode(r.again)) for r in differing}
    again = {r.name: np.frombuffer(left[r.name], format_of(r.dtype).dtype).reshape(r.shape) for r in differing}
    second = _judge_values(replace(e, outputs={**e.outputs, **again}))
    if second.failed:
        return _differs(e, differing[0], f"; the first run is right, but of the second {second.message}")
    return second.but(rho=max(first.rho, second.rho), ulps=max(first.ulps, second.ulps))


def _both(report: OutputReport) -> str:
    """Words for what the first element that differs was in each run, if that is known; NaN and such by their bits."""
    if not report.differing_bits or report.dtype not in FORMATS:
        return ""
    fmt = format_of(report.dtype)
    values = [np.array(bits, fmt.carrier).view(fmt.dtype)[()] for bits in report.differing_bits]
    words = [str(float(value) if fmt.is_float else value) for value in values]
    if len(set(words)) == 1:
        words = [f"{bits:#x}" for bits in report.differing_bits]
    return ": {}, then {}".format(*words)


RULES: tuple[Rule, ...] = (_status, _guards, _inputs, _form, _poison, _rerun)


def _judge_values(e: Evidence) -> Verdict:
    """The values of all outputs; those that another subject left, to the bit, are as right as they were there."""
    if e.execution.input_digest and e.execution.outputs == ():
        raise InternalError(f"{e.subject.key}: an execution without outputs cannot be judged")
    if sum(got.nbytes for got in e.outputs.values()) > REMEMBERED:
        return _judge_anew(e)
    passed = e.reference.passed.setdefault(e.subject.numerics.id, [])
    left = {name: got.tobytes() for name, got in e.outputs.items()}
    for outputs, verdict in passed:
        if outputs == left:
            return verdict
    verdict = _judge_anew(e)
    if verdict.kind is Kind.PASS:
        passed.append((left, verdict))
    return verdict


def _judge_anew(e: Evidence) -> Verdict:
    """Class, exactness, rho and Z of every output; the largest rho if all is well."""
    rho, ulps = 0.0, 0
    for name, budget in e.reference.budget(e.subject.numerics).items():
        got = e.outputs[name]
        if budget.bitwise:
            if verdict := _judge_bits(e, name, got):
                return verdict
            continue
        want = e.want(name)
        m = measure(got, want, budget.error, budget.accept, budget.sigma)
        ruling = arbitrate(e.reference, want, budget, got, m)
        if ruling is not None and ruling.doubt:
            text = f"{name} is off by {m.rho:.3g} times its error budget, but {ruling.doubt}"
            return Verdict(kind=Kind.INCONCLUSIVE, message=text, output=name, rho=m.rho)
        if m.bad if ruling is None else ruling.fails:
            return _value_failure(e, name, budget, m, ruling)
        said = _judge_ties(e, name, want, budget, m) or _judge_signs(e, name, want, budget, m)
        if verdict := said or _judge_z(e, name, budget, m):
            return verdict
        rho, ulps = max(rho, m.rho if ruling is None else ruling.rho), max(ulps, m.max_ulp)
    return Verdict(kind=Kind.PASS, rho=rho, ulps=ulps)


def _judge_bits(e: Evidence, name: str, got: Array) -> Verdict | None:
    want = e.reference.copies[name]
    if got.tobytes() == want.tobytes():
        return None
    bad = np.flatnonzero(failing_bits(got, want).reshape(-1))
    first = int(bad[0])
    pair = (got.reshape(-1)[first], want.reshape(-1)[first])
    text = (
        f"{name}{place_of(first, got.shape)} is {_exactly(pair[0])}, must be {_exactly(pair[1])} bit for bit "
        f"({bad.size} of {got.size} elements differ){_never_set(e, pair[0])}"
    )
    error = error_pattern(got, want.astype(np.float64), bad)
    where = Measurement(
        metric="bits",
        value=bad.size,
        limit=0,
        index=at_index(first, got.shape),
        got=float(pair[0]),
        wanted=float(pair[1]),
    )
    return e.verdict(Kind.MISMATCH, "exact", text, name, index_pattern(bad, got.shape), error, [where])


def _exactly(value: np.generic[object]) -> str:
    raw = value.tobytes()[::-1].hex()
    return f"{float(value) if format_of(value.dtype).is_float else int(value)!r} (0x{raw})"


_TELLING = {"float16", "float32", "float64"}


def _never_set(e: Evidence, value: np.generic[object]) -> str:
    """What its bytes give away: memory as it was filled before the run, a local variable as the emulator fills it."""
    raw = value.tobytes()
    telling = format_of(value.dtype).name in _TELLING  # of others a NaN that was computed may look like that
    if telling and np.isnan(float(value)) and set(raw) == {UNWRITTEN}:
        given = any(raw in array.tobytes() for array in e.reference.inputs.values())
        return "" if given else "; its bytes are 0xFF, as in an output, shared memory or a gap that nobody wrote to"
    if e.subject.backend == "cuda" and e.subject.device == "cpu" and _like_unset(value):
        return "; its bytes are 0xFE, as in a local variable that nobody set"
    return ""


def _like_unset(value: np.generic[object]) -> bool:
    """Whether it is such a variable of its own type, or of another one that was converted."""
    fills = [np.frombuffer(bytes([UNSET]) * 8, dtype)[0] for dtype in (value.dtype, np.float32, np.float64)]
    converted = (np.asarray(fill).astype(value.dtype)[()] for fill in fills)
    return value.itemsize > 1 and np.isfinite(float(value)) and any(value == fill for fill in converted)


def _value_failure(e: Evidence, name: str, budget: Budget, m: Measured, ruling: Ruling | None) -> Verdict:
    got, want = e.outputs[name], e.want(name)
    bad = np.flatnonzero(failing(got, want, budget).reshape(-1))
    if bad.size != m.bad:
        raise InternalError(f"{e.subject.key}: the fused pass counts {m.bad} failures, the mask {bad.size}")
    if ruling is not None and not m.bad:
        bad = np.array([ruling.at])
    worst, rho = (m.worst_index, m.rho) if ruling is None else (ruling.at, ruling.rho)
    y, r = float(got.reshape(-1)[worst]), float(want.reshape(-1)[worst]) if ruling is None else ruling.true
    limit = float(np.broadcast_to(np.asarray(budget.error, np.float64), want.shape).reshape(-1)[worst])
    kind = Kind.NONFINITE if m.class_bad else Kind.MISMATCH
    rule = "class" if m.class_bad else "exact" if limit == 0 else "rho"
    share = f"{bad.size} of {m.count} elements fail"
    given, due = apart(y, r, whole=not format_of(got.dtype).is_float)
    where = f"{name}{place_of(worst, got.shape)} is {given}"
    if m.class_bad:
        text = f"{where}, wanted {due} ({share})"
    elif limit == 0:
        text = f"{where}, must be exactly {due} after rounding ({share})"
    elif rho >= MANY:
        text = f"{where}, must be {due} to within {limit:.3g} ({share})"
    else:
        text = (
            f"{where}, wanted {due}: {rho:.3g} times its {'estimated ' * budget.estimated}error budget of {limit:.3g}"
            f"{', confirmed in ball arithmetic' * (ruling is not None)} ({share})"
        )
    if budget.instead and not m.class_bad:
        text += f"; the reference cancels, and is computed as {' and '.join(budget.instead)}"
    text += _never_set(e, got.reshape(-1)[worst])
    found = measurements(m, got, want, limit)
    if ruling is not None:
        place = at_index(worst, got.shape)
        found.insert(1, Measurement(metric="rho_rigorous", value=rho, limit=1.0, index=place, got=y, wanted=r))
    return e.verdict(kind, rule, text, name, index_pattern(bad, got.shape), error_pattern(got, want, bad), found, rho)


def apart(y: float, r: float, *, whole: bool = False) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to tell them apart; whole: of integers."""
    if whole and all(map(float.is_integer, (y, r))):
        return f"{y:.0f}", f"{r:.0f}"
    short = f"{y:.9g}", f"{r:.9g}"
    return short if short[0] != short[1] else (f"{y:.17g}", f"{r:.17g}")


def _judge_ties(e: Evidence, name: str, want: Reals, budget: Budget, m: Measured) -> Verdict | None:
    """Without any error before the rounding, a tie must go to the even neighbour; both lie in cells that touch it."""
    got, error = e.outputs[name], np.asarray(budget.error)
    if np.count_nonzero(error) == error.size or not (m.max_ulp or _at_the_end(want, format_of(got.dtype))):
        return None
    bad = np.flatnonzero(tie_failures(got, want, budget).reshape(-1))
    return _not_exact(e, name, want, m, bad, "tie", lambda y, r: f"{y:.9g}, must be {r!r} rounded to nearest even")


def _judge_signs(e: Evidence, name: str, want: Reals, budget: Budget, m: Measured) -> Verdict | None:
    """Judge signs of zeros where they count: they are those of the reference."""
    got = e.outputs[name]
    bad = np.flatnonzero(sign_failures(got, want, budget).reshape(-1)) if budget.signed else np.zeros(0, np.int64)
    return _not_exact(e, name, want, m, bad, "sign", lambda y, r: f"{y:g}, must be {-y:g}: the sign of {r!r}")


def _not_exact(
    e: Evidence,
    name: str,
    want: Reals,
    m: Measured,
    bad: Array,
    pattern: str,
    said: Callable[[float, float], str],
) -> Verdict | None:
    """The verdict on elements that are not the ones they must be; said: what the first is, and what it must be."""
    if not bad.size:
        return None
    got, first = e.outputs[name], int(bad[0])
    words = said(float(got.reshape(-1)[first]), float(want.reshape(-1)[first]))
    text = f"{name}{place_of(first, got.shape)} is {words} ({bad.size} of {got.size} elements fail)"
    found = measurements(m, got, want, 0.0)
    return e.verdict(Kind.MISMATCH, "exact", text, name, index_pattern(bad, got.shape), pattern, found, m.rho)


def _at_the_end(want: Reals, fmt: Format) -> bool:
    """Whether there is a tie between the largest number and Inf, which steps between numbers do not see."""
    return bool((np.abs(want) == facts_of(fmt.name)[OVERFLOW]).any())


def _judge_z(e: Evidence, name: str, budget: Budget, m: Measured) -> Verdict | None:
    if m.z is None or not _z_applies(e, name):
        return None
    line = Z_FLOOR + Z_SPREAD / float(np.sqrt(max(1, min(budget.rows, m.z_count))))  # what overflows has no part in it
    got, want = e.outputs[name], e.want(name)
    z = m.z if m.z <= line else m.z / ideal_z(got, want, budget)
    if z <= line:
        return None
    text = f"{name}: errors are {z:.3g} times as large as rounding explains, over all elements (line {line:.3g})"
    found = [Measurement(metric="z", value=z, limit=line), *measurements(m, got, want, 0.0)]
    return e.verdict(Kind.MISMATCH, "z", text, name, "all", "small", found, m.rho)


def _z_applies(e: Evidence, name: str) -> bool:
    """Only narrow outputs of independent inputs, if not picked, have a known spread of errors (numerics.md 5)."""
    narrow = e.reference.specs[name].dtype in {"float16", "bfloat16"}
    return narrow and e.reference.iid and not e.reference.picked


def measurements(m: Measured, got: Array, want: Array, limit: float) -> list[Measurement]:
    """Collect everything informative about one output; only rho has a limit."""
    pair = (got.reshape(-1), want.reshape(-1))

    def at(metric: str, value: float, index: int, line: float | None = None) -> Measurement:
        if index < 0:
            return Measurement(metric=metric, value=value, limit=line)
        y, r = float(pair[0][index]), float(pair[1][index])
        return Measurement(metric=metric, value=value, limit=line, index=at_index(index, got.shape), got=y, wanted=r)

    return [
        at("rho", m.rho, m.worst_index, 1.0),
        Measurement(metric="budget", value=limit),
        at("max_ulp", float(m.max_ulp), m.max_ulp_index),
        Measurement(metric="nmse", value=m.nmse),
        Measurement(metric="cosine", value=m.cosine),
        Measurement(metric="psnr", value=m.psnr),
        at("max_abs", m.max_abs, m.max_abs_index),
        at("max_rel", m.max_rel, m.max_rel_index),
    ]


def stateful(verdict: Verdict, before: int) -> Verdict:
    """The verdict on a case that fails after so many others in one process, and passes alone."""
    assert verdict.signature is not None
    said = f"after {before} other case{'s' * (before != 1)} in the same process, and not alone"
    signature = verdict.signature.but(kind=Kind.STATEFUL, rule="sequence", index_pattern="none", error_pattern="none")
    text, kind = f"{said}: {verdict.message}", verdict.kind
    return verdict.but(kind=Kind.STATEFUL, rule="sequence", message=text, signature=signature, symptom=kind)
