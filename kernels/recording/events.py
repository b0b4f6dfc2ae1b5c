"""What a trace tells: who made a NaN or Inf, who passed it on, where it went; and the case that shows it again.

Like watch.py it runs inside programs that have none of our packages: it needs the standard library and their torch.
"""

from __future__ import annotations

import json
import linecache
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

MOST_NAMED = 6
"""Places that are listed of those that passed something on, and that it reached."""
GRADIENT = "the gradient of "
MOST_CASES = 16
"""Events whose inputs are written to files."""
REPLAYS = '''\
"""{title}.

This runs that one call again, says how much is not finite, and keeps the outputs.
"""

import sys
from pathlib import Path

import torch

inf, nan = float("inf"), float("nan")
here = Path(sys.argv[0])
t = torch.load(here.with_suffix(".pt"), weights_only=True)
out = torch.ops.{op}({arguments})
outs = [one for one in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(one, torch.Tensor)]
torch.save({{f"out_{{i}}": one for i, one in enumerate(outs)}}, here.with_suffix(".again.pt"))
bad = sum(int((~torch.isfinite(one)).sum()) for one in outs if one.is_floating_point() or one.is_complex())
print(f"{op}: {{bad}} of {{sum(one.numel() for one in outs)}} elements are not finite")
print(f"kassay compare {{here.with_suffix('.out.pt')}} {{here.with_suffix('.again.pt')}}")
sys.exit(bad > 0)
'''


class Site(NamedTuple):
    """The place of an operator in a program."""

    module: str = ""
    """Path of the module, beginning with the class of the model; empty outside of modules."""
    file: str = ""
    line: int = 0
    node: str = ""
    """The node of autograd that ran it; the rest is then about the forward pass."""

    def __str__(self) -> str:
        """Where it is, in words."""
        inside = f" in {self.module}" if self.module else ""
        if self.node:
            return f"{inside}, backward pass ({self.node.rpartition(':')[2]})"
        return f"{inside}, forward pass" if inside else " outside of modules"

    def source(self) -> str:
        """The line of the program, with its number."""
        if not self.file:
            return ""
        text = linecache.getline(self.file, self.line).strip()
        return f"{Path(self.file).name} line {self.line}{': ' if text else ''}{text}"


@dataclass
class Event:
    """Non-finite numbers with one origin."""

    kind: str
    """NaN, Inf or -Inf."""
    origin: str
    """made; came in (with data, or memory that nobody wrote); given (an infinity that the program wrote down); unseen
    (it came out of a call that was not watched)."""
    op: str
    site: Site
    when: str
    """The call of the model, and the steps of the optimizer before it."""
    found: str
    """The first element, how many there are, and what the inputs were."""
    count: int = 1
    parents: list[int] = field(default_factory=list)
    """Events whose numbers it made into others, as -Inf into NaN."""
    through: list[str] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)
    gone: str = ""
    """The first that had it in and finite numbers out."""
    case: str = ""
    """The files of its inputs: this and .py, .pt, .out.pt."""

    @property
    def failed(self) -> bool:
        """Whether it came through to where it matters, or at least was not seen to go."""
        if self.origin == "given":  # masks hold -Inf, gradients do not
            return bool(self.site.node) and any(one.startswith(GRADIENT) for one in self.reached)
        if self.origin == "came in" and self.kind != "NaN":
            return False
        return bool(self.reached or not self.gone)

    def title(self) -> str:
        """One sentence."""
        if self.origin == "made":
            return f"{self.op} made {self.kind}{self.site}, {self.when}: {self.found}"
        if self.origin == "unseen":
            return f"{self.kind} came out of a call that was not watched, {self.when}: {self.found}"
        came = "was given by the program" if self.origin == "given" else "came in"
        return f"{self.kind} {came} at {self.op}{self.site}, {self.when}: {self.found}"

    def lines(self) -> Iterator[str]:
        """All that is known of it."""
        yield self.title()
        if source := self.site.source():
            yield f"  {'forward   ' if self.site.node else 'line      '}{source}"
        if self.count > 1:
            yield f"  times     {self.count:,}"
        for name, told in (("passed on ", self.through), ("reached   ", self.reached)):
            if told:
                more = len(told) - MOST_NAMED
                yield f"  {name}{'; '.join(told[:MOST_NAMED])}{f'; and {more} more' if more > 0 else ''}"
        if self.gone and not self.reached:
            yield f"  gone      behind {self.gone}"
        if self.case:
            yield f"  case      {self.case}.py runs it again, with the inputs in {Path(self.case).name}.pt"


@dataclass
class Story:
    """All that was seen in one process, in the order in which it happened."""

    events: list[Event] = field(default_factory=list)
    operators: int = 0
    checked: int = 0
    """Outputs that were looked at."""
    calls: int = 0
    """Of models."""
    passed: int = 0
    """Of these, calls that were not watched."""
    extremes: dict[str, list[int]] = field(default_factory=dict)
    """By operator and module: elements looked at, subnormal ones, those of the largest magnitude that the dtype has."""
    trouble: str = ""

    @property
    def failures(self) -> list[Event]:
        """Events that came through, but those that others were made into."""
        return [one for one in self.events if one.failed and not any(self.events[i].failed for i in one.parents)]

    @property
    def gone(self) -> list[Event]:
        """Events that were made, and went again."""
        return [one for one in self.events if one.origin == "made" and not one.failed]

    def lines(self) -> Iterator[str]:
        """The report."""
        failures = self.failures
        for i, one in enumerate(failures):
            first, *rest = one.lines()
            yield f"{i + 1}. {first}"
            yield from (f" {line}" for line in rest)
        for one in self.gone:
            times = f", {one.count:,} times" if one.count > 1 else ""
            yield f"made, and gone behind {one.gone}: {one.kind} by {one.op}{one.site}{times}"
        for kind, at in (("subnormal", 1), ("largest of the dtype", 2)):
            most = sorted((n[at], n[0], where) for where, n in self.extremes.items() if n[at])
            for n, of, where in most[:-4:-1]:
                yield f"{kind}, no failure: {n:,} of {of:,} elements that were looked at, out of {where}"
        if self.passed:
            few = f"{self.passed:,} of {self.calls:,} calls were not watched"
            yield f"{few}, so that all takes 10 % longer at most; --every-call watches all"
        if self.trouble:
            yield f"not everything was seen: {self.trouble}"
        none = "" if failures else "nothing came through that is not finite; "
        yield f"{none}operators {self.operators:,}, outputs checked {self.checked:,}"

    def record(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)


class Told:
    """A file for the story of each process, whole at any time."""

    def __init__(self, folder: Path) -> None:
        """folder: where it is written."""
        self._folder = folder
        self._token = os.urandom(8).hex()  # a program that execs another keeps its number

    def write(self, story: Story) -> None:
        """Write it anew."""
        path = self._folder / f"{os.getpid()}-{self._token}.jsonl"
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(story.record()) + "\n", "utf-8")
        beside.replace(path)


def story_of(record: dict[str, Any]) -> Story:
    """What `Story.record` gave."""
    events = [Event(**{**one, "site": Site(*one["site"])}) for one in record["events"]]
    return Story(**{**record, "events": events})


def write_case(torch: Any, stem: Path, event: Event, func: Any, args: Sequence[Any], kwargs: Any, outs: Any) -> None:
    """Write inputs and outputs of an operator, and a program that runs it again."""
    names = [one.name for one in func._schema.arguments]  # noqa: SLF001
    kept: dict[str, Any] = {}
    said = [_literal(torch, one, name, kept) for name, one in zip(names, args)]  # noqa: B905  defaults
    said += [f"{name}={_literal(torch, one, name, kept)}" for name, one in kwargs.items()]
    op = str(func).replace("::", ".")
    stem.parent.mkdir(parents=True, exist_ok=True)
    torch.save(kept, stem.with_suffix(".pt"))
    torch.save({f"out_{i}": _copy(one) for i, one in enumerate(outs)}, f"{stem}.out.pt")
    text = REPLAYS.format(title=event.title().replace("\\", ""), op=op, arguments=", ".join(said))
    stem.with_suffix(".py").write_text(text, "utf-8")
    event.case = str(stem)


def _copy(tensor: Any) -> Any:
    """The elements alone: a view would be stored with all that it is a view of."""
    return tensor.detach().clone().cpu()


def _literal(torch: Any, value: Any, name: str, kept: dict[str, Any]) -> str:
    """An argument as it is written in a program."""
    if isinstance(value, torch.Tensor):
        kept[name] = _copy(value)
        return f't["{name}"]'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_literal(torch, one, f'{name}_{i}', kept) for i, one in enumerate(value))}]"
    if isinstance(value, torch.device):
        return 'torch.device("cpu")'
    if isinstance(value, (bool, int, float, str, complex, torch.dtype, torch.layout, torch.memory_format)):
        return str(value) if not isinstance(value, str) else repr(value)
    return "None"


def named(value: float) -> str:
    """A non-finite number's name, as NaN."""
    if math.isnan(value):
        return "NaN"
    return "Inf" if value > 0 else "-Inf"
