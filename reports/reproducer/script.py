"""A finding as one Python file that shows it to somebody who does not have Kernel Assay."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernel_assay.corpus.model.findings import Finding
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.reference_place import ReferencePlace
from kernel_assay.reports.reproducer import gpu
from kernel_assay.reports.reproducer import values as text
from kernel_assay.reports.reproducer.excerpt import excerpt
from kernel_assay.reports.reproducer.kinds import story_of
from kernel_assay.reports.reproducer.run import Script
from kernel_assay.reports.reproducer.runtime import memory, subject
from kernel_assay.reports.reproducer.worst import worst

_ANSWER = '''def answer(reproduced, what):
    """Say it, and give the exit code."""
    print(f"{'reproduced' if reproduced else 'not reproduced'}: {what}")
    return int(reproduced)'''
_END = """if __name__ == "__main__":
    try:
        code = main()
    except FileNotFoundError as error:
        print(error)
        code = 2
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        print("not run to the end: something else went wrong, see above")
        code = 2
    sys.exit(code)"""


def reproducer(finding: Finding) -> str:
    """The text of the file. It needs numpy, the kernel's file, and torch if the kernel takes tensors of torch."""
    script = Script(finding)
    script.source.imports |= {"import sys", "import traceback", "import numpy as np"}
    if script.runs:
        _tell(script)
    else:
        _decline(script)
    return _assembled(script)


def _tell(script: Script) -> None:
    """Load the kernel, make the inputs, and what the kind of failure asks for."""
    script.source.uses(subject.__name__, "load")
    if script.source.torch:
        script.source.imports.add("import torch")
        script.say("torch.set_num_threads(1)  # as when it failed")
    if script.there:
        script.source.imports.add("import functools")
        script.source.functions += gpu.FUNCTIONS
        script.constants += gpu.CONSTANTS
        script.uses("around")
        script.say(*gpu.MISSING)
    script.say('np.seterr(all="ignore")')
    if script.finding.verdict.kind is not Kind.BUILD_FAILED:
        loaded = "load(SUBJECT, FUNCTION)"
        script.say(f"{script.kernel} = {f'on_gpu({loaded})' if script.there else loaded}", "")
    script.run_before()
    begin = len(script.lines)
    story_of(script)(script)
    if any(f.startswith("def make_") for f in script.source.functions):
        _check_inputs(script, begin)


def _check_inputs(script: Script, begin: int) -> None:
    """Insert a check behind the inputs, which end with the first empty line: are they the recorded bytes?"""
    digest = script.finding.input_digest
    if not re.fullmatch(r"[0-9a-f]{32}", digest):
        return
    script.uses("same_inputs")
    pairs = zip(script.inputs.items(), script.case.tensors.values(), strict=True)
    said = [f"{text.quoted(name)}: ({text.quoted(t.dtype)}, {variable})" for (name, variable), t in pairs]
    lines = [f"recorded = {text.braced(said)}", f"if not same_inputs({text.quoted(digest)}, recorded):"]
    lines.append('    print("these inputs are not the recorded bytes; the result may differ")')
    at = script.lines.index("", begin)
    script.lines[at:at] = lines


def _decline(script: Script) -> None:
    """A kernel that a file on its own cannot run: show what it was given and what it made of it."""
    backend = script.finding.subject.backend
    script.source.torch = False
    variables = script.make_inputs(script.case)
    sentence = f"a kernel for {backend} cannot be run by this file; these are its inputs, and what it made of them"
    script.say("", f"print({text.quoted(sentence)})")
    script.say(*(f"print({text.quoted(v)}, {v}.shape, {v}.dtype, {v}, sep='\\n')" for v in variables))
    for e in worst(script.finding):
        said = f"{script.output}{list(e.index)} was {e.got!r}, wanted {e.wanted!r}, error budget {e.bound!r}"
        script.say(f"print({text.quoted(said)})")
    script.say("return 2")


def _assembled(script: Script) -> str:
    """The file: what it is, what it uses, the story, and below it everything the story calls."""
    source, finding = script.source, script.finding
    ours = [place for place in source.roots if place[0] in {memory.__name__, subject.__name__}]
    story = excerpt(ours)
    values = excerpt([place for place in source.roots if place not in ours], source.instead)
    made = [f for f in source.functions if f.startswith("def make_")]
    others = [f for f in source.functions if f not in made]
    runs = script.runs
    subject_lines = [
        f"SUBJECT = {text.quoted(finding.subject.path)}  # the kernel's file, unless another one is named",
        f"FUNCTION = {text.quoted(finding.subject.function)}",
    ]
    head = [
        _head(script),
        _imports({*source.imports, *story.imports, *values.imports}),
        "\n".join([*(subject_lines if runs else []), *script.constants]),
    ]
    parts = [
        "\n\n".join(part for part in head if part),
        "def main():\n" + "\n".join(text.indented(script.lines)),
        *([_ANSWER] if runs else []),
        *_block(_MADE, [*source.constants.values(), *made, *values.blocks]),
        *_block(_LOADED, [*others, *story.blocks]),
        _END,
    ]
    return "\n\n\n".join(parts) + "\n"


_MADE = "How the inputs are made: values are functions of seed and position, the same on every machine."
_LOADED = "How the kernel is loaded and given its memory."


def _block(title: str, parts: Sequence[str]) -> list[str]:
    """Parts under a title."""
    return [f"# {title}", *parts] if parts else []


def _head(script: Script) -> str:
    f = script.finding
    used = {name: f.environment.packages.get(name, "") for name in script.packages}
    known = ", ".join(f"{name} {text.prose(version)}" for name, version in used.items() if version)
    lines = [
        f"Kind:    {f.verdict.kind} ({f.verdict.rule})",
        f"Case:    {f.case.label}",
        *(f"When:    {gate}" for gate in f.gates),
        *([f"Shows:   in {f.probability:.0%} of runs"] if f.probability < 1 else []),
        *([f"Others:  {f.verdict.blame}"] if f.verdict.blame else []),
        *([f"Claim:   {f.claim}"] if f.claim else []),
        f"Found:   by Kernel Assay, finding {f.id}, with Python {f.environment.python}{', ' * bool(known)}{known}",
    ]
    core = f.environment.packages.get("openblas core", "")
    if core and f.subject.backend == "numpy" and f.verdict.kind.facts.of_values:
        lines.append(f"Core:    {text.prose(core)}; on another processor set OPENBLAS_CORETYPE={text.prose(core)}")
    told = "\n".join(text.wrapped(text.prose(line), " " * 9) for line in lines)
    title = text.wrapped(text.prose(f"{f.subject.key}: {f.verdict.message}"))
    return f'"""{title}\n\n{told}\n\n{_usage(script)}\n"""'


def _usage(script: Script) -> str:
    f = script.finding
    if script.runs:
        needs = [*script.packages, *(["a GPU"] if script.there else []), *_environment(f)]
        exits = {} if script.there else _EXITS  # an error there is told, and kills nobody
        listed = " and ".join(part for part in (", ".join(needs[:-1]), needs[-1]) if part)
        return _USAGE.format(listed, exits.get(f.verdict.kind, "1 reproduced"))
    function = f":{f.subject.function}" if f.subject.path.endswith(".py") else ""
    function += f"@{f.subject.python}" if f.subject.python else ""
    options = [("--subject", _portable(f.subject.path) + function)]
    options += [("--launch", line) for line in f.subject.launch.splitlines() if not script.is_module]
    place = ReferencePlace.read(f.contract)
    options += [("--reference", _portable(place.target))] if place else []
    options += [("--contract", _portable(f.contract))] if f.contract and not place else []
    options += [("--device", f.subject.device)] if script.on_gpu else []
    words = " ".join(f"{option} {shlex.quote(value)}" for option, value in options)
    return _DECLINED.format(f.subject.backend, f"{f.case.token} {text.prose(words)}")


def _portable(path: str) -> str:
    """A file of a person's own without its folders, which are nobody else's."""
    if not Path(path).is_absolute():
        return path
    return Path(path).with_suffix(".cu").name if path.endswith(".toml") else Path(path).name


def _environment(f: Finding) -> list[str]:
    return [f"what is installed for {f.subject.python}"] if f.subject.python else []


_DECLINED = """Run it:  python THIS_FILE  (needs numpy): it prints the inputs, and what came of them
Exit:    2, as a kernel for {0} is launched by Kernel Assay only:
kassay replay {1}"""
_USAGE = """Run it:  python THIS_FILE [KERNEL_FILE]  (needs {})
Exit:    {}, 0 not reproduced, 2 it could not be run"""
_EXITS = {
    Kind.CRASHED: "whatever it dies of: reproduced",
    Kind.OUT_OF_BOUNDS: "1, or whatever it dies of: reproduced",
    Kind.INPUT_MUTATED: "1, or whatever it dies of: reproduced",
}


def _imports(lines: Iterable[str]) -> str:
    """Import lines in order: the standard library, then the others; names of one module together."""
    plain = sorted(line for line in lines if line.startswith("import "))
    named: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line.startswith("from "):
            module, _, name = line.removeprefix("from ").partition(" import ")
            named[module].add(name)
    merged = [*plain, *(f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(named.items()))]
    foreign = [line for line in merged if re.match(r"(import|from) (numpy|torch|ml_dtypes)\b", line)]
    return "\n".join(line for line in merged if line not in foreign) + "\n\n" + "\n".join(foreign)
