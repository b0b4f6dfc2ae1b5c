"""The call of the kernel in a reproducer: return-style or not, numpy or torch."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernel_assay.corpus.formats import FORMATS, format_of
from kernel_assay.corpus.inputs.layouts import LAYOUTS, Shape
from kernel_assay.corpus.model.base import Scalar
from kernel_assay.corpus.model.case import Case
from kernel_assay.corpus.model.findings import Exhibit, Finding
from kernel_assay.corpus.model.subject import TensorSpec
from kernel_assay.reports.reproducer import values as text
from kernel_assay.reports.reproducer.inputs import Source, foreign, placed, values_of
from kernel_assay.reports.reproducer.runtime import memory, subject

Other = tuple[Case, Sequence[str]]
"""A second case, and the variables of its inputs."""

_ROOT = Path(__file__).resolve().parents[2]
"""Where the paths of the built-in subjects begin."""
RUNNABLE = frozenset({"numpy", "torch"})
"""Backends whose subjects a file on its own can call."""
RUNNABLE_THERE = frozenset({"torch", "triton"})
"""The same on a GPU: those whose subjects take tensors of torch."""
_WORDS = """
    np torch ml_dtypes sys os re traceback faulthandler hashlib runpy inspect resource Path SimpleNamespace dataclass
    field cached_property main answer load put blank tensor damage around start_of untouched element_bytes differing
    holds same_inputs limit_memory walled ctypes mmap at_end begin
    tensors_taken patterns bfloat16 float8_e4m3fn float8_e5m2 values bits wrong index
    was wanted room start step count some flat due budget low high got fine kept said before arrays array inputs first
    second first_values second_values size where shared name attempt error code SUBJECT FUNCTION WORST FACTOR SECONDS
    MEGABYTES RUNS ZONE factor time statistics
    recorded functools sent on_gpu here matmul DEVICE SENT
"""
"""What has a meaning in a reproducer; no tensor is called so."""
_TENSOR = '''def tensor(array, dtype):
    """A torch tensor over the same memory; dtype: what its bit patterns stand for."""
    return torch.from_numpy(array.view(f"i{array.itemsize}")).view(dtype)'''


@dataclass
class Script:
    """The main function of a reproducer in the making."""

    finding: Finding
    source: Source = field(init=False)
    lines: list[str] = field(default_factory=list)
    """Of main, without their common indentation."""
    constants: list[str] = field(default_factory=list)
    """Above main."""

    def __post_init__(self) -> None:
        """Decide what the types are called."""
        self.source = Source(torch=self.there or self.finding.subject.backend == "torch")

    @property
    def runs(self) -> bool:
        """Whether a file on its own can call the kernel."""
        if self.several and not self.returns:  # the finding tells the form of one of them
            return False
        return self.there or (not self.on_gpu and self.finding.subject.backend in RUNNABLE and not self.is_module)

    @property
    def several(self) -> tuple[str, ...]:
        """Names of the outputs, if there is more than one."""
        return self.finding.exhibit.outputs if self.finding.exhibit is not None else ()

    @property
    def is_module(self) -> bool:
        """Whether the kernel is a class of torch modules, which its reference says how to make."""
        return self.finding.subject.path.endswith(".py") and bool(self.finding.subject.launch)

    @property
    def on_gpu(self) -> bool:
        """Whether it failed there."""
        return self.finding.subject.device != "cpu"

    @property
    def there(self) -> bool:
        """Whether the file has the kernel run on a GPU."""
        return self.on_gpu and self.finding.subject.backend in RUNNABLE_THERE and not self.is_module

    @property
    def packages(self) -> list[str]:
        """Names of those that it needs."""
        backend = self.finding.subject.backend
        return ["numpy", *(["torch"] if self.source.torch else []), *(["triton"] if backend == "triton" else [])]

    @property
    def returns(self) -> bool | None:
        """Whether the kernel returns its result; None: nobody noted it."""
        return self.finding.exhibit.returns if self.finding.exhibit is not None else None

    @property
    def case(self) -> Case:
        """The case that is run."""
        return self.finding.case

    @cached_property
    def kernel(self) -> str:
        """Name of the kernel."""
        return text.variable(self.finding.subject.function, self._reserved)

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Variable of each input."""
        found: dict[str, str] = {}
        for name in self.case.tensors:
            found[name] = text.variable(name, {*self._reserved, self.kernel, *found.values()})
        return found

    @cached_property
    def output(self) -> str:
        """The variable of the output."""
        name = self.named_output if self.named_output not in self.case.tensors else "out"
        return text.variable(name, {*self._reserved, self.kernel, *self.inputs.values()})

    @property
    def named_output(self) -> str:
        """The op's name of the output."""
        return (self.finding.exhibit.output if self.finding.exhibit is not None else "") or "out"

    @property
    def _reserved(self) -> set[str]:
        return {*_WORDS.split(), *dir(builtins)}

    @cached_property
    def spec(self) -> TensorSpec:
        """Shape and dtype that the output should have."""
        shown = self.finding.exhibit
        if shown is not None and self.recorded:
            return TensorSpec(shape=shown.shape, dtype=shown.dtype)
        return customary(self.case)

    @property
    def recorded(self) -> bool:
        """Whether the finding tells what the output should have been; it does where outputs could be compared."""
        return self.finding.exhibit is not None and self.finding.exhibit.dtype in FORMATS

    def attrs(self, case: Case) -> dict[str, Scalar]:
        """Attributes that the kernel takes, as far as its file tells: a contract may let it leave some out."""
        form = self._form
        if form is None or form.kwarg is not None:
            return case.attrs
        taken = {a.arg for a in (*form.posonlyargs, *form.args, *form.kwonlyargs)}
        return {n: value for n, value in case.attrs.items() if n in taken}

    @cached_property
    def named(self) -> set[str]:
        """Inputs that the kernel is given by name: those for which it has a default, or takes no other way."""
        form = self._form
        if form is None:
            return set()
        spare = len(form.args) - len(form.defaults)
        found = {a.arg for a in (*form.args[spare:], *form.kwonlyargs)} & set(self.case.tensors)
        if form.kwarg is None or form.vararg is not None:
            return found
        plain = [a for a in (*form.posonlyargs, *form.args[:spare]) if a.arg not in self.case.attrs]
        room = len(plain) - (self.returns is False)
        return found | set([name for name in self.case.tensors if name not in found][room:])

    @cached_property
    def _form(self) -> ast.arguments | None:
        """The parameters of the kernel; None if its file does not tell."""
        try:
            tree = ast.parse((_ROOT / self.finding.subject.path).read_bytes())
        except (OSError, SyntaxError, ValueError):
            return None
        name = self.finding.subject.function
        defined = [n.args for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
        return defined[0] if len(defined) == 1 else None

    def uses(self, *names: str) -> None:
        """Have these functions about memory copied."""
        self.source.uses(memory.__name__, *names)

    def make_inputs(self, case: Case, suffix: str = "") -> list[str]:
        """Lines that make the inputs; their variables. Values that another case has, too, are not made again."""
        variables: list[str] = []
        for name, recipe in case.tensors.items():
            variable, mine = self.inputs[name], self.case.tensors[name]
            if suffix:
                variable = text.variable(variable + suffix, {*self._reserved, *self.inputs.values(), *variables})
            same = suffix and recipe.but(layout=mine.layout).id == mine.id
            values = self.inputs[name] if same else values_of(self.source, variable, recipe)
            remark = _layout_remark(recipe.layout)
            self.say(*([f"# {variable}: {remark}"] if remark else []))
            self.say(f"{variable} = {placed(self.source, recipe, values)}")
            variables.append(variable)
        return variables

    def run_before(self) -> None:
        """Lines that run what must run before, each case twice, as when it failed."""
        count = len(self.finding.before)
        for number, case in enumerate(self.finding.before, 1):
            other = Script(self.finding.but(case=case, before=(), exhibit=self.exhibit_of(case)))
            other.source = self.source
            other.inputs = {name: text.variable(f"{name}_{number}", self._reserved) for name in case.tensors}
            other.make_inputs(case)
            other.say("for _ in range(2):", *text.indented(other.run()))
            self.say(f"# {number} of {count} that must run before: {text.prose(case.label)}", *other.lines, "")

    def exhibit_of(self, case: Case) -> Exhibit:
        """The form of another case's output: an axis is as long as the input's that it is as long as here."""
        spec, usual = self.spec, self.case.dtype
        axes = {n: (name, axis) for name, t in self.case.tensors.items() for axis, n in reversed([*enumerate(t.shape)])}
        shape = list(spec.shape)
        for place, extent in enumerate(shape):
            name, axis = axes.get(extent, ("", 0))
            shape[place] = case.tensors[name].shape[axis] if name in case.tensors else extent
        dtype = case.dtype if spec.dtype == usual else spec.dtype
        if spec.shape == customary(self.case).shape:
            shape = list(customary(case).shape)
        return Exhibit(
            output=self.named_output,
            outputs=self.several,
            shape=tuple(shape),
            dtype=dtype,
            returns=bool(self.returns),
        )

    def run(
        self, out: str = "", byte: str = "", values: str = "", other: Other | None = None, shape: Shape | None = None
    ) -> list[str]:
        """Lines that call the kernel; values: the variable that gets what it left, as float64.

        byte: what the output is filled with beforehand, if that matters. other: another case. shape: of its output.
        """
        out, (case, inputs) = out or self.output, other or (self.case, list(self.inputs.values()))
        attrs = self.attrs(case)
        if self.returns is not None:
            blank = [] if self.returns else [self.blank(out, byte, shape)]
            call = self.call(out, inputs, attrs, returns=self.returns)
            return [*blank, call, *self._read(values, out, self.returns)]
        self.source.uses(subject.__name__, "tensors_taken")
        named = f"{{{', '.join(map(text.quoted, attrs))}}}" if attrs else "()"
        plain = len(self.inputs) - len(self.named)
        return [
            f"if tensors_taken({self.kernel}, {named}) > {plain}:  # it writes into its first argument",
            *text.indented([self.blank(out, byte, shape), self.call(out, inputs, attrs, returns=False)]),
            *text.indented(self._read(values, out, returns=False)),
            "else:",
            *text.indented([self.call(out, inputs, attrs, returns=True), *self._read(values, out, returns=True)]),
        ]

    def call(self, out: str, inputs: Sequence[str], attrs: dict[str, Scalar], *, returns: bool) -> str:
        """The line that calls the kernel."""
        given = zip(inputs, self.case.tensors.items(), strict=True)
        handed = {name: self.handed(variable, t.dtype) for variable, (name, t) in given}
        plain = [value for name, value in handed.items() if name not in self.named]
        plain += [f"{name}={value}" for name, value in handed.items() if name in self.named]
        if returns:
            one = f"[{self.several.index(self.named_output)}]" if self.several else ""
            return f"{out} = {text.call(self.kernel, plain, attrs)}{one}"
        return text.call(self.kernel, [self.handed(out, self.spec.dtype), *plain], attrs)

    def blank(self, out: str, byte: str = "", shape: Shape | None = None) -> str:
        """The line that makes an output nobody has written yet."""
        self.uses("blank")
        dtype = self.source.dtype(self.spec.dtype)
        remark = "" if self.recorded else "  # its form was not recorded: taken from the inputs"
        shape = self.spec.shape if shape is None else shape
        offset = LAYOUTS[self.case.outputs.get(self.named_output, "contiguous")](shape).offset
        more = (f", {byte}" if byte else "") + (f", offset={offset}" if offset else "")
        return f"{out} = blank({shape}, {dtype}{more}){remark}"

    def handed(self, variable: str, dtype: str) -> str:
        """The expression that the kernel is given for an array of ours."""
        return f"({variable}, torch.{dtype})" if self.there else self.tensor(variable, dtype)

    def tensor(self, variable: str, dtype: str) -> str:
        """An array of ours as the kernel's file knows tensors, on the host."""
        if not self.source.torch:
            return variable
        if not foreign(dtype):
            return f"torch.from_numpy({variable})"
        if _TENSOR not in self.source.functions:
            self.source.functions.append(_TENSOR)
        return f"tensor({variable}, torch.{dtype})"

    def _read(self, values: str, out: str, returns: bool) -> list[str]:
        """The line that reads the result as float64; none without a variable for it."""
        if not values:
            return []
        if not self.source.torch:
            return [f"{values} = np.asarray({out}, np.float64)"]
        tensor = f"{self.result(out)}.detach()" if returns else self.tensor(out, self.spec.dtype)
        return [f"{values} = {tensor}.double().numpy()"]

    def result(self, out: str) -> str:
        """The expression of what the kernel has returned, on the host."""
        return f"{out}.cpu()" if self.there else out

    def bits(self, out: str = "") -> str:
        """An expression for the bit patterns of the result."""
        out, size = out or self.output, format_of(self.spec.dtype).bits
        if self.source.torch and self.returns:
            integer = "uint8" if size == 8 else f"int{size}"
            return f"{self.result(out)}.detach().view(torch.{integer}).numpy().view(np.uint{size})"
        return f"np.asarray({out}).view(np.uint{size})"

    def say(self, *lines: str) -> None:
        """Add lines to main."""
        self.lines.extend(lines)


def customary(case: Case) -> TensorSpec:
    """The form of the result where the finding does not tell, as those of older records: that of the first input."""
    first = next(iter(case.tensors.values()))
    return TensorSpec(shape=first.shape, dtype=first.dtype)


def _layout_remark(layout: str) -> str:
    """A remark on what is odd about a layout, from where it is defined."""
    if layout == "contiguous":
        return ""
    said = (LAYOUTS[layout].__doc__ or "").partition("\n")[0].partition(":")[0].rstrip(".")
    return said if said[1:2] == " " else f"{said[:1].lower()}{said[1:]}"
