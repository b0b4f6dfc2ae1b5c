"""The part of a trace that runs inside the traced program: which operator made the first NaN or Inf, and from what.

It needs the standard library and the program's torch (hook.py loads it). Every output is checked when it is there, by
one sum, which is finite only if all elements are: that takes no longer than to look at fewer of them and to keep the
others until it is known that they were finite, because memory that is kept is not used again while it is in the cache.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .events import GRADIENT, MOST_CASES, Event, Site, Story, named, write_case
from .mode import mode_of
from .operators import READS, SCALER, About, about_of, only_scales
from .sampling import Sampling, clock
from .tensors import FINITE, INF, NAN, cloned, first_of, given, key, same, tensors

MOST_KNOWN = 64
"""Non-finite tensors that are remembered before those that are gone are looked for."""
MEASURED, OF_ALL = 512, 64
"""Of so many runs of so many operators the first is searched for subnormal numbers, too."""
LONGEST_TROUBLE = 160
MOST_SITES = 1 << 16
"""Nodes of autograd whose place in the forward pass is remembered."""


class NonFiniteError(FloatingPointError):
    """Ends a program that shall be stopped at the first NaN or Inf that comes through."""


class _Record(NamedTuple):
    """An operator that has run, with all that it had and gave."""

    func: Any
    about: About
    args: Sequence[Any]
    kwargs: dict[str, Any]
    ins: list[tuple[str, Any]]
    """Tensors by name, as they were."""
    outs: list[Any]
    site: Site


_NOBODY = _Record(None, About("", (), False, False, (), False), (), {}, [], [], Site())
"""No operator that was seen: a step, of which what it leaves is looked at."""


class Watch:
    """Sees every operator of the threads that enter its `mode`, and every module; `close` removes all of it."""

    def __init__(
        self,
        torch: Any,
        *,
        models: Iterable[Any] = (),
        stop: bool = False,
        every_call: bool = False,
        folder: Path | None = None,
        tell: Callable[[Story], None] | None = None,
    ) -> None:
        """folder: where cases are written; stop: raise at the first that comes through; tell: is called at news.

        every_call: watch all, however long that takes.
        """
        self.story, self._sampling = Story(), Sampling(every_call=every_call)
        self._torch, self._stop, self._folder, self._tell = torch, stop, folder, tell or (lambda _: None)
        self._plain = torch.Tensor
        self._strange = (torch._subclasses.FakeTensor,)  # noqa: SLF001  of compilers: it has no elements
        self._theirs = str(Path(torch.__file__).parent), str(Path(__file__).parent)
        self._lock = threading.RLock()
        self.local = threading.local()
        self._bad: dict[int, tuple[Any, frozenset[int]]] = {}
        """Storages with non-finite numbers: a weak reference, which keeps the address from being used again; events."""
        self._known: dict[Any, int] = {}
        self._sites: dict[int, Site] = {}
        self._ours: dict[str, bool] = {}
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._roots: weakref.WeakSet[Any] = weakref.WeakSet(models)
        self._calls: dict[str, int] = {}
        self._call, self._steps, self._optimizer = "", 0, ""
        self._held: set[weakref.ref[Any]] = set()
        """Parameters of the optimizer that has stepped last."""
        self._prefix = ""
        self._idle = False
        self._handles = self._hooks()
        self.mode = mode_of(self)

    # What torch calls.

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run an operator and look at what it gave. Nothing that goes wrong here may reach the program."""
        about = about_of(func)
        if self._idle or about.skipped or self.local.__dict__.get("aside") or self._sampling.resting:
            return func(*args, **kwargs)
        held, began = args, clock()
        if about.writes and not about.overwrites and not about.name.endswith(SCALER) and not only_scales(about, args):
            with self._guarded():
                held = [self._before(one) if i in about.writes else one for i, one in enumerate(args)]
        before = clock()
        out = func(*args, **kwargs)
        after = clock()
        with self._guarded():
            self._after(func, about, held, kwargs, out)
        self._sampling.spent += before - began + clock() - after
        return out

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except NonFiniteError:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it is none of the program's
            self.story.trouble = (
                self.story.trouble or f"{type(error).__name__}: {error}".split("\n", 1)[0][:LONGEST_TROUBLE]
            )

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """Guard what a hook does, whose own operators are none of the program's."""
        before, self.local.aside = self.local.__dict__.get("aside"), True
        try:
            with self._guarded(), self._torch.no_grad():
                yield
        finally:
            self.local.aside = before

    def _hooks(self) -> list[Any]:
        modules, optimizers = self._torch.nn.modules.module, import_module("torch.optim.optimizer")
        return [
            modules.register_module_forward_pre_hook(self._enter),
            modules.register_module_forward_hook(self._leave, always_call=True),
            optimizers.register_optimizer_step_pre_hook(self._before_step),
            optimizers.register_optimizer_step_post_hook(self._after_step),
        ]

    def close(self) -> Story:
        """Remove all hooks and look at what is left; what was seen."""
        for handle in self._handles:
            handle.remove()
        if self._handles:
            self._handles = []
            with self._aside():
                for root in list(self._roots):
                    self._ends([one.grad for one in root.parameters()], GRADIENT + "{}")
                self._stepped()
            self._bad.clear()
            self._tell(self.story)
        return self.story

    def _stepped(self) -> None:
        """Look at what the last steps have made: no operator has read it, maybe."""
        held = [] if self._idle else [one for ref in self._held if (one := ref()) is not None]
        for one in held:
            if self._counts(one) and key(one) not in self._bad and self._level(one):
                self._mark(one, frozenset({self._event("came in", _NOBODY, "a parameter", one)}))
        self._ends(held, "{}")

    def forked(self) -> None:
        """Begin anew in a process that was forked from this one, whose story is told by this one."""
        self._lock = threading.RLock()
        self.story, self._prefix = Story(), f"{os.getpid()}-"
        self._known.clear()
        self._bad.clear()

    def _enter(self, module: Any, args: Any) -> None:
        del args
        stack = self._stack()
        if not stack:
            self.local.aside = False  # of a step that was left by an exception
        elif self._sampling.resting:
            stack.append((module, ""))
            return
        with self._aside():
            if not stack:
                self._roots.add(module)
                kind = type(module).__name__
                self._calls[kind] = number = self._calls.get(kind, 0) + 1
                self._call = f"call {number} of {kind}"
                self.story.calls += 1
                self.story.passed += self._sampling.begin(self.story.operators)
                if mode := self.local.__dict__.get("mode"):
                    mode.rest(self._sampling.resting)
            stack.append((module, self._path(module, stack)))

    def _leave(self, module: Any, args: Any, result: Any) -> None:
        del args
        stack = self._stack()
        while stack and stack.pop()[0] is not module:
            pass  # those whose forward was left by an exception
        if stack or self._idle:
            return
        with self._aside():
            self._unseen(tensors(self._torch, result), f"an output of {type(module).__name__}", NAN)
            self._ends(tensors(self._torch, result), f"the output of {type(module).__name__}")

    def _path(self, module: Any, stack: Sequence[tuple[Any, str]]) -> str:
        """The name of a module, from the module on that the program has called."""
        if module not in self._paths:
            root = stack[-1] if stack else (module, type(module).__name__)
            for name, one in root[0].named_modules():
                self._paths.setdefault(one, f"{root[1]}.{name}" if name else root[1])
        return self._paths.get(module) or f"{stack[-1][1]}.({type(module).__name__})"

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        closure = bool([*args[1:], *kwargs.values()])  # it runs the model in the midst of the step
        with self._aside():
            held = [one for group in optimizer.param_groups for one in group["params"]]
            self._unseen((one.grad for one in held if one.grad is not None), "a gradient", INF)
            if self._bad:
                self._ends([one.grad for one in held], GRADIENT + "{}")
                for one in held:  # the numbers of a gradient become those of its parameter
                    if one.grad is not None and key(one.grad) in self._bad:
                        self._mark(one, self._bad[key(one.grad)][1])
        self.local.aside = not closure

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del args, kwargs
        self.local.aside = False
        with self._aside():
            self._steps, self._optimizer = self._steps + 1, type(optimizer).__name__
            held = [one for group in optimizer.param_groups for one in group["params"]]
            self._held = {weakref.ref(one) for one in held}
            bad = [one for one in held if self._bad and key(one) in self._bad and self._level(one)]
            if bad and any(self.story.events[i].failed for one in bad for i in self._bad[key(one)][1]):
                self._ends(bad, "{}")
                self._idle = True  # from now on everything passes it on
                self._bad.clear()

    def _unseen(self, tensors: Iterable[Any], what: str, least: int) -> None:
        """Look for this level in what comes out of a call that passed unwatched; after the first none passes."""
        looked = self._sampling.resting and not self._idle
        bad = [one for one in tensors if self._counts(one) and self._level(one) >= least] if looked else []
        for one in bad:
            self._mark(one, frozenset({self._event("unseen", _NOBODY, what, one)}))
        self._sampling.never = self._sampling.never or bool(bad)

    # Before and after an operator.

    def _before(self, value: Any) -> Any:
        """Copy what is about to be changed, with what is known of it."""
        copy = cloned(self._torch, value)
        for old, new in zip(tensors(self._torch, value), tensors(self._torch, copy), strict=True):
            if self._bad and self._counts(old) and key(old) in self._bad:
                self._mark(new, self._bad[key(old)][1])
        return copy

    def _after(self, func: Any, about: About, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        self.story.operators += 1
        if about.name.endswith(SCALER):
            self._scaled(args[0])
            return
        if about.name.endswith(READS):
            self._ends(tensors(self._torch, args), "a number that the program read")
            return
        site = self._site()
        outs = [one for one in tensors(self._torch, out) if self._counts(one)]
        known = bool(self._bad) and any(key(one) in self._bad for _, one in self._inputs(about, args, kwargs))
        if not outs or (about.moves and not known and not about.writes):
            return
        self.story.checked += len(outs)
        if self.story.operators // MEASURED % OF_ALL == 0:
            self._measure(f"{about.name}{site}", outs)
        levels = [self._level(one) for one in outs]
        if known or any(levels):
            self._look(levels, _Record(func, about, args, kwargs, list(self._inputs(about, args, kwargs)), outs, site))

    def _counts(self, tensor: Any) -> bool:
        """Whether it has elements that can be looked at."""
        floats = tensor.is_floating_point() or tensor.is_complex()
        seen = floats and tensor.layout is self._torch.strided and not tensor.is_nested and tensor.device.type != "meta"
        return seen and not isinstance(tensor, self._strange)

    def _inputs(self, about: About, args: Sequence[Any], kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Tensors that an operator reads, by name; those of a list are numbered."""
        left = about.writes if about.overwrites else ()
        pairs = [(about.names[i], one) for i, one in enumerate(args) if i not in left]
        for name, value in [*pairs, *(pair for pair in kwargs.items() if not about.overwrites)]:
            if isinstance(value, self._plain):
                if self._counts(value):
                    yield name, value
            elif isinstance(value, (list, tuple)):
                for i, one in enumerate(value):
                    if isinstance(one, self._plain) and self._counts(one):
                        yield f"{name}[{i}]", one

    def _site(self) -> Site:
        node = self._torch._C._current_autograd_node()  # noqa: SLF001
        stack = self._stack()
        if node is not None and not stack:
            return self._sites.get(node._sequence_nr(), Site())._replace(node=node.name())  # noqa: SLF001
        frame: Any = sys._getframe(2)  # noqa: SLF001
        while frame is not None and not self._is_the_program(frame.f_code.co_filename):
            frame = frame.f_back
        place = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        site = Site(stack[-1][1] if stack else "", *place)
        # A node has its number before its operator runs; one without a node comes to the number of an earlier one.
        self._sites.setdefault(self._torch.autograd._get_sequence_nr() - 1, site)  # noqa: SLF001
        if len(self._sites) > MOST_SITES:
            for key in list(itertools.islice(self._sites, MOST_SITES // 2)):
                del self._sites[key]
        return site

    def _is_the_program(self, file: str) -> bool:
        if file not in self._ours:
            self._ours[file] = not file.startswith((*self._theirs, "<frozen", sys.base_prefix + "/lib/python"))
        return self._ours[file]

    def _stack(self) -> list[tuple[Any, str]]:
        held: list[tuple[Any, str]] = self.local.__dict__.setdefault("stack", [])
        return held

    # Checks.

    def _level(self, tensor: Any) -> int:
        """FINITE, INF or NAN: the worst that a tensor holds."""
        torch = self._torch
        self._sampling.never = self._sampling.never or tensor.is_cuda  # there, to wait takes long, and is said
        if not tensor.numel() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing()):
            return FINITE
        if tensor.element_size() < 2:
            tensor = tensor.float()
        # Half types would overflow in a sum of their own.
        total = (tensor.sum(dtype=torch.float32) if tensor.element_size() == 2 else tensor.sum()).item()
        if math.isfinite(abs(total)):
            return FINITE
        if tensor.is_complex():
            tensor = self._torch.view_as_real(tensor.resolve_conj())
        least, most = (one.item() for one in tensor.aminmax())  # a sum of finite numbers may overflow
        return NAN if math.isnan(least) else INF if math.isinf(least) or math.isinf(most) else FINITE

    def _look(self, found: Sequence[int], record: _Record) -> None:
        """Say whether an operator made what is not finite, passed it on, or had it go."""
        levels = [(name, one, self._level(one)) for name, one in record.ins]
        bad = [(name, one) for name, one, level in levels if level]
        worst_in = max([given(record.args, record.kwargs), *(level for *_, level in levels)])
        outs = [(i, one, level) for i, (one, level) in enumerate(zip(record.outs, found, strict=True))]
        number, worst = max(((i, level) for i, _, level in outs), key=lambda pair: pair[1])
        before = frozenset(i for name, one in bad for i in self._origin(record, name, one))
        place = f"{record.about.name}{record.site}"
        if worst > worst_in:
            made = self._event("made", record, number, record.outs[number])
            event = self.story.events[made]
            event.parents = sorted({*event.parents, *before} - {made})
            self._pass(before, f"{place}, as {event.kind}")
            before |= {made}
        elif worst and not bad:
            before = frozenset({self._event("given", record, number, record.outs[number])})
        elif worst:
            self._pass(before, place)
        elif bad:
            self._gone(before, place)
        for _, one, level in outs:
            if level:
                self._mark(one, before)

    def _origin(self, record: _Record, name: str, tensor: Any) -> frozenset[int]:
        """The events behind a non-finite input."""
        if key(tensor) not in self._bad:
            number = self._event("came in", record, name, tensor)
            self._mark(tensor, frozenset({number}))
        return self._bad[key(tensor)][1]

    def _event(self, origin: str, record: _Record, where: int | str, tensor: Any) -> int:
        """The number of an event; the inputs of a new one are written down."""
        holder, tensor = self._parameter(tensor) if origin == "came in" else ("", tensor)
        index, value, n = first_of(tensor.detach())
        kind, op, site = named(value), record.about.name, record.site
        if (holder or record is _NOBODY) and self._optimizer and origin != "unseen":
            origin, op, site = "made", f"the step of {self._optimizer}", Site()
        key = (kind.lstrip("-"), origin, op, site, holder)
        if key in self._known:
            self.story.events[self._known[key]].count += 1
            return self._known[key]
        number = self._known[key] = len(self.story.events)
        steps = f" after {self._steps} step{'s' * (self._steps != 1)} of {self._optimizer}" if self._steps else ""
        when = (self._call or "before any call of a module") + steps
        label = holder or (where if isinstance(where, str) else "out" if len(record.outs) == 1 else f"out {where}")
        found = f"{label}{index} is {kind}, {n:,} of {tensor.numel():,} elements"
        if origin == "made" and not holder and record is not _NOBODY:
            found += self._from(record, tensor, index)
        event = Event(kind, origin, op, site, when, found)
        self.story.events.append(event)
        if origin == "made" and not holder and record is not _NOBODY and self._folder and number < MOST_CASES:
            write_case(
                self._torch,
                self._folder / f"{self._prefix}{number + 1}",
                event,
                record.func,
                record.args,
                record.kwargs,
                record.outs,
            )
        self._tell(self.story)
        return number

    def _from(self, record: _Record, tensor: Any, index: list[int]) -> str:
        """What the inputs were; at this element, if they have one there."""
        worst = max((self._level(one) for _, one in record.ins), default=FINITE)
        scalars = given(record.args, record.kwargs)
        said = ", from finite inputs" if not max(worst, scalars) else ", from inputs with Inf, but no NaN"
        there = [(name, one) for name, one in record.ins if one.shape == tensor.shape and tensor.numel()]
        values = [f"{name}{index} is {one[tuple(index)].item():.6g}" for name, one in there[:3]]
        return f"{said}{' (' if values else ''}{', '.join(values)}{')' if values else ''}"

    def _parameter(self, tensor: Any) -> tuple[str, Any]:
        """The name of the parameter that has this storage, and the parameter, of which the tensor may be a view."""
        found = (
            (root, name, one) for root in self._roots for name, one in root.named_parameters() if same(one, tensor)
        )
        return next(((f"{type(root).__name__}.{name}", one) for root, name, one in found), ("", tensor))

    def _mark(self, tensor: Any, events: frozenset[int]) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef  # noqa: PLC0415  the program has it

        if len(self._bad) > MOST_KNOWN:
            self._bad = {key: held for key, held in self._bad.items() if not held[0].expired()}
        held = self._bad.get(key(tensor))
        before = held[1] if held and not held[0].expired() else frozenset()
        weak: Any = StorageWeakRef  # torch has no types for it
        self._bad[key(tensor)] = weak(tensor.untyped_storage()), before | events

    # What became of it.

    def _pass(self, events: Iterable[int], place: str) -> None:
        for one in (self.story.events[i] for i in events):
            if place not in one.through:
                one.through.append(place)

    def _gone(self, events: Iterable[int], place: str) -> None:
        for one in (self.story.events[i] for i in events):
            one.gone = one.gone or place

    def _scaled(self, grads: Iterable[Any]) -> None:
        """Forgive what a backward pass made of a scaled loss: the scaler leaves out that step."""
        bad = [key(one) for one in grads if self._bad and key(one) in self._bad and self._level(one)]
        if bad:
            late = [i for i, one in enumerate(self.story.events) if one.site.node and not one.reached]
            self._gone(late, "GradScaler, which leaves out the step")
        for one in bad:
            del self._bad[one]

    def _ends(self, tensors: Iterable[Any], what: str) -> None:
        """Look at what matters to the program: something non-finite that has come here is a failure."""
        for one in tensors:
            if one is None or not self._counts(one):
                continue
            if self._bad and key(one) in self._bad and self._level(one):
                self._reached(self._bad[key(one)][1], what.format(self._owner(one)) if "{" in what else what)

    def _owner(self, tensor: Any) -> str:
        """The parameter that this is, or is the gradient of."""
        for root in self._roots:
            for name, one in root.named_parameters():
                if one is tensor or one.grad is tensor:
                    return f"{'the parameter ' * (one is tensor)}{type(root).__name__}.{name}"
        return "a parameter"

    def _reached(self, events: Iterable[int], what: str) -> None:
        news = False
        for one in (self.story.events[i] for i in events):
            if what not in one.reached:
                one.reached.append(what)
                news = news or len(one.reached) == 1
        failures = self.story.failures if news else []
        if failures:
            self._tell(self.story)
        if failures and self._stop:
            raise NonFiniteError(failures[0].title())

    def _measure(self, where: str, outs: Sequence[Any]) -> None:
        """Count subnormal numbers, and those at the end of the dtype's range."""
        for one in outs:
            if one.is_complex() or one.element_size() < 2:
                continue
            about, size = self._torch.finfo(one.dtype), one.abs()
            few, most = ((size < about.tiny) & (size > 0)).sum(), (size == about.max).sum()
            counts = self.story.extremes.setdefault(where, [0, 0, 0])
            counts[:] = counts[0] + one.numel(), counts[1] + int(few), counts[2] + int(most)
