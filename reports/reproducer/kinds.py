"""Lines of a reproducer for each kind of failure: they run the kernel, look, and tell."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.reports.reproducer.gpu import HERE
from kernel_assay.reports.reproducer.run import Script
from kernel_assay.reports.reproducer.values import entry, indented, number, parts, prose, quoted
from kernel_assay.reports.reproducer.worst import (
    bit_rows,
    group_rows,
    is_bitwise,
    is_other_zero,
    plain_rows,
    room_rows,
    table,
    value_rows,
    worst,
)

Story = Callable[[Script], None]

SECONDS = 10.0
"""Time for a kernel that hangs, if the finding does not name it."""
MEGABYTES = 4096
"""Memory for a kernel that takes all there is; what the sandbox grants by default."""
RUNS = 100
"""Of a kernel that gives another answer from time to time."""
VALUES = "index, what it was, what was wanted, the error budget, the lowest and the highest value that would be right"

ROOM = "index, what the second result was, the first one times FACTOR, how far apart they may be"
GROUPS = "first element (flat index), step to the next, their number, their {}, what was wanted, how far off it may be"


def story_of(script: Script) -> Story:
    """The story that shows this failure."""
    verdict, shown = script.finding.verdict, script.finding.exhibit
    kind = verdict.symptom or verdict.kind
    if shown is not None and shown.partner is not None:
        return _law
    if shown is not None and shown.groups:
        return _invariant
    if kind.facts.of_values:
        if not worst(script.finding):
            return _look
        return _statistic if verdict.rule == "z" else _bits if is_bitwise(script.finding) else _values
    return STORIES.get(kind, _look)


def _values(s: Script) -> None:
    """Every one of the worst elements against the interval of values that would be right."""
    elements, fmt = worst(s.finding), format_of(s.spec.dtype)
    rows = value_rows(elements, s.spec.dtype)
    s.constants.append(table("WORST", VALUES, rows))
    s.make_inputs(s.case)
    s.say("", *s.run(values="values"), "", "wrong = 0", "for index, was, wanted, budget, low, high in WORST:")
    nans = " or (np.isnan(low) and np.isnan(got))" if any("np.nan" in row[4:] for row in rows) else ""
    signed = any(is_other_zero(e, fmt) for e in elements)
    signs = " and (got != 0 or np.signbit(got) == np.signbit(wanted))" if signed else ""
    s.say("    got = float(values[index])", f"    fine = low <= got <= high{signs}{nans}", "    wrong += not fine")
    s.say(
        f'    print(f"{s.output}{{list(index)}} is {{got!r}}, wanted {{wanted!r}}, error budget {{budget!r}}", end="")'
    )
    s.say("    print(\"\" if fine else f\"  <- wrong{'' if repr(got) == repr(was) else f', but it was {was!r}'}\")")
    s.say('return answer(wrong > 0, f"{wrong} of {len(WORST)} elements above are wrong")')


def _bits(s: Script) -> None:
    """A copy: bits against bits."""
    s.constants.append(
        table(
            "WORST",
            "index, the bits it had, what was wanted and its bits (None: another NaN)",
            bit_rows(s.finding, s.spec.dtype),
        )
    )
    s.make_inputs(s.case)
    s.say("", *s.run(values="values"), f"bits = {s.bits()}", "", "wrong = 0")
    s.say("for index, was, wanted, due in WORST:", "    got = int(bits[index])")
    s.say("    fine = got == due if due is not None else got != was and np.isnan(values[index])")
    s.say("    wrong += not fine")
    s.say(f'    print(f"{s.output}{{list(index)}} is {{float(values[index])!r}} ({{got:#x}}), ", end="")')
    s.say(
        "    print(f\"wanted {wanted!r} ({'other bits' if due is None else hex(due)}){'' if fine else '  <- wrong'}\")"
    )
    s.say('return answer(wrong > 0, f"{wrong} of {len(WORST)} elements are no copies")')


def _statistic(s: Script) -> None:
    """No element is wrong by itself: whether it still gives the same values is all that can be told."""
    rows = plain_rows(worst(s.finding))
    s.constants.append(table("WORST", "index, what it was, the exact result", rows))
    s.make_inputs(s.case)
    s.say("", *s.run(values="values"), "")
    s.say("# No element is wrong by itself; all of them together are further off than rounding explains.")
    s.say("alike = 0", "for index, was, wanted in WORST:", "    got = float(values[index])", "    alike += got == was")
    s.say(f'    print(f"{s.output}{{list(index)}} is {{got!r}}, was {{was!r}}, the exact result is {{wanted!r}}")')
    s.say('return answer(alike == len(WORST), f"{alike} of these {len(WORST)} elements are what they were")')


def _law(s: Script) -> None:
    """Two runs against one another."""
    shown = s.finding.exhibit
    assert shown is not None
    assert shown.partner is not None
    exactly = f"but for {shown.within:g} error budgets and rounding" if shown.within else "bit for bit"
    must = f"the second result must be the first times this, {exactly}"
    s.constants.append(f"FACTOR = {number(shown.factor)}  # {must}")
    rows = room_rows(worst(s.finding), s.spec.dtype)
    s.constants.append(table("WORST", ROOM, rows))
    s.make_inputs(s.case)
    law = s.finding.verdict.law
    s.say("", f"# The same, changed as the law{f' {prose(law)!r}' if law else ''} has it.")
    others = s.make_inputs(shown.partner, "_other")
    s.say("", *s.run("first", values="first_values", shape=shown.whole or None))
    if shown.view:
        s.say(f"first_values = first_values[{parts(shown.view)}]  # what the law speaks of")
    s.say(*s.run("second", values="second_values", other=(shown.partner, others)))
    s.say("", "wrong = 0", "for index, was, wanted, room in WORST:")
    s.say("    got, due = float(second_values[index]), float(first_values[index]) * FACTOR")
    s.say("    fine = got == due or abs(got - due) <= room or (np.isnan(got) and np.isnan(due))")
    s.say("    wrong += not fine")
    s.say(f"    print(f\"{s.output}{{list(index)}} is {{got!r}}, wanted {{due!r}}{{'' if fine else '  <- wrong'}}\")")
    s.say('return answer(wrong > 0, f"{wrong} of {len(WORST)} elements break the law")')


def _invariant(s: Script) -> None:
    """Elements that belong together, put together."""
    assert s.finding.exhibit is not None
    groups = s.finding.exhibit.groups
    of = groups[0].of
    s.constants.append(table("WORST", GROUPS.format(of), group_rows(groups)))
    s.make_inputs(s.case)
    s.say("", *s.run(values="values"), "flat = values.reshape(-1)", "", "wrong = 0")
    s.say("for start, step, count, was, wanted, room in WORST:", "    some = flat[start::step][:count]")
    s.say("    got = float(np.hypot.reduce(some))" if of == "length" else "    got = float(some.sum())")
    s.say("    fine = abs(got - wanted) <= room", "    wrong += not fine")
    s.say("    index = np.unravel_index(start, values.shape)")
    where = f"{s.output}{{[int(i) for i in index]}}"
    s.say(f'    print(f"the {of} of {{count}} elements, first {where}, is {{got!r}}, ", end="")')
    s.say("    print(f\"wanted {wanted!r}, off by at most {room!r}{'' if fine else '  <- wrong'}\")")
    s.say(f'return answer(wrong > 0, f"{{wrong}} of {{len(WORST)}} {of}s are wrong")')


def _unwritten(s: Script) -> None:
    """Two runs over different fillings: what keeps both was never written."""
    s.uses("untouched")
    rows = plain_rows(worst(s.finding))
    s.constants.append(table("WORST", "index, what was left there, what was wanted", rows))
    s.make_inputs(s.case)
    s.say("", "# Into memory full of 0xFF, then full of 0xA5: an element that keeps both was never written.")
    s.say(*s.run("first", "0xFF", values="values"), *s.run("second", "0xA5"))
    s.say("kept = untouched(first, 0xFF) & untouched(second, 0xA5)", "", "for index, was, wanted in WORST:")
    s.say('    said = "was never written" if kept[index] else "was written"')
    s.say(f'    print(f"{s.output}{{list(index)}} {{said}}: it is {{float(values[index])!r}}, wanted {{wanted!r}}")')
    s.say('return answer(kept.any(), f"{kept.sum()} of {kept.size} elements were never written")')


def _out_of_bounds(s: Script) -> None:
    """Look for changes around the arrays."""
    s.uses("around", "damage")
    s.make_inputs(s.case)
    call, arrays = s.run(), list(s.inputs.values())
    if s.returns is False:
        arrays.append(s.output)
        s.say(s.blank(s.output))
        call = [s.call(s.output, list(s.inputs.values()), s.attrs(s.case), returns=False)]
    named = ", ".join(f"{quoted(name)}: {name}" for name in arrays)
    s.say(f"arrays = {{{named}}}", "before = {name: around(array).copy() for name, array in arrays.items()}", "")
    s.say(*call, "", "wrong = 0", "for name, array in arrays.items():", "    size, where = damage(array, before[name])")
    s.say("    if size:", "        wrong += 1")
    s.say("        print(f\"it wrote {size} byte{'s' * (size != 1)} outside the elements of {name!r}, {where}\")")
    s.say(*_between_walls(s))
    s.say('return answer(wrong > 0, f"the memory around {wrong} of {len(arrays)} arrays was written")')


def _between_walls(s: Script) -> list[str]:
    """Run once more, where nothing was found, on inputs that cannot be written, with nothing to read beside them."""
    if s.there:
        return []
    s.uses("walled")
    s.source.imports.add("import faulthandler")
    said = "once more between pages that nobody may touch; if this process dies now, that is reproduced"
    moved = [f"{variable} = walled({variable}, at_end=at_end)" for variable in s.inputs.values()]
    steps = ["faulthandler.enable()  # shows where", "for at_end in (True, False):", *indented([*moved, *s.run()])]
    return ["if not wrong:", *indented([f"print({quoted(said)}, flush=True)", *steps])]


def _input_mutated(s: Script) -> None:
    """The inputs before and after."""
    s.uses("differing")
    s.make_inputs(s.case)
    named = ", ".join(f"{quoted(name)}: {name}" for name in s.inputs.values())
    s.say(f"inputs = {{{named}}}", "before = {name: array.copy() for name, array in inputs.items()}", "", *s.run(), "")
    s.say("wrong = 0", "for name, array in inputs.items():")
    s.say("    if where := differing(before[name], array):", "        wrong += 1", "        index = where[0]")
    s.say('        print(f"it changed its input {name!r} in {len(where)} of {array.size} elements: ", end="")')
    s.say('        print(f"{name}{list(index)} was {before[name][index]}, is {array[index]}")')
    s.say(*_between_walls(s))
    s.say('return answer(wrong > 0, f"{wrong} of {len(inputs)} inputs changed")')


def _nondeterministic(s: Script) -> None:
    """Many runs on the same inputs."""
    s.uses("differing")
    s.constants.append(f"RUNS = {RUNS}")
    s.make_inputs(s.case)
    s.say("", "first = None", "for attempt in range(RUNS):")
    s.say(*indented(s.run(byte="0xA5 if attempt % 2 else 0xFF", values="values")))
    s.say("    if first is None:", "        first = values.copy()")
    s.say("    elif where := differing(first, values):", "        index = where[0]")
    s.say(
        '        print(f"runs 1 and {attempt + 1} differ in {len(where)} of {first.size} elements, first at ", end="")'
    )
    s.say(f'        print(f"{s.output}{{list(index)}}: {{float(first[index])!r}}, then {{float(values[index])!r}}")')
    s.say('        return answer(True, "two runs on the same inputs differ")')
    s.say('return answer(False, f"{RUNS} runs agree")')


def _wrong_shape(s: Script) -> None:
    s.make_inputs(s.case)
    seen = f"tuple({s.output}.shape)" if s.source.torch else f"np.shape({s.output})"
    s.say("", *s.run(), f"got, wanted = {seen}, {entry(s.spec.shape)}")
    s.say('return answer(got != wanted, f"its result has shape {got}, wanted {wanted}")')


def _wrong_dtype(s: Script) -> None:
    s.make_inputs(s.case)
    seen = f'str({s.output}.dtype).removeprefix("torch.")' if s.source.torch else f"np.asarray({s.output}).dtype.name"
    s.say("", *s.run(), f"got, wanted = {seen}, {quoted(s.spec.dtype)}")
    s.say('return answer(got != wanted, f"its result has dtype {got}, wanted {wanted}")')


def _wrong_layout(s: Script) -> None:
    s.make_inputs(s.case)
    plain = f"{s.output}.is_contiguous()" if s.source.torch else f"np.asarray({s.output}).flags.c_contiguous"
    strides = f"{s.output}.stride()" if s.source.torch else f"{s.output}.strides"
    s.say("", *s.run(), f'print("strides of its result:", {strides})')
    s.say(f'return answer(not {plain}, "whether its result is contiguous, as all its inputs are")')


def _aliased(s: Script) -> None:
    """Look where the result's first element lies."""
    s.uses("holds")
    s.make_inputs(s.case)
    named = ", ".join(f"{quoted(name)}: {name}" for name in s.inputs.values())
    address = place = f"{s.output}.data_ptr()" if s.source.torch else f"np.asarray({s.output}).ctypes.data"
    if s.there:
        s.source.functions.append(HERE)
        address = f"here({address})"
    s.say("", *s.run(), f"inputs = {{{named}}}")
    s.say(f"shared = [name for name, array in inputs.items() if holds(array, {address})]", "for name in shared:")
    s.say(f'    print(f"{s.output} is the memory of its input {{name!r}}, not a result of its own")')
    s.say(f"first, begin = {s.output}, {place}", *s.run(), f"if {place} == begin:", '    shared.append("first")')
    s.say('    print("its second result lies in the memory of the first one, which is still held")')
    s.say('return answer(bool(shared), "whether its result is memory of its own")')


def _raised(s: Script) -> None:
    """Show which exception comes out."""
    s.make_inputs(s.case)
    s.source.imports.add("import traceback")
    s.say("", "try:", *indented(_twice(s)), "except NotImplementedError as error:")
    s.say('    print(f"it declines these inputs: {error}")', '    return answer(False, "declining is its right")')
    s.say("except BaseException as error:", "    traceback.print_exc(file=sys.stdout)")
    s.say('    return answer(True, f"it raised {traceback.format_exception_only(error)[-1].strip()}")')
    s.say('return answer(False, "it came back")')


def _twice(s: Script, after: str = "") -> list[str]:
    """The call, twice, as when it failed; after: what is done with its result."""
    return ["for _ in range(2):", *indented([*s.run(), *([after.format(s.output)] if after else [])])]


def _crashed(s: Script) -> None:
    """The process dies, or it tells that it did not."""
    s.make_inputs(s.case)
    s.say("", f"print({quoted(f'recorded: {s.finding.verdict.message}')})")
    if s.there:  # where nothing dies, but nothing can be done any more
        s.say("try:", *indented(_twice(s)), "except RuntimeError as error:", "    print(error)")
        s.say('    return answer(True, "it was not launched, or nothing runs on the GPU after it")')
        s.say('return answer(False, "it came back")')
        return
    s.source.imports |= {"import faulthandler", "import os"}
    s.say('print("if this process dies now, that is reproduced", flush=True)')
    s.say("faulthandler.enable()  # shows where it crashes", *_twice(s), "try:")
    s.say('    print("it came back", flush=True)', "except OSError:  # it closed the standard output")
    s.say("    os._exit(1)", 'return answer(False, "it did not crash")')


def _timeout(s: Script) -> None:
    """A traceback when the time is over."""
    s.source.imports.add("import faulthandler")
    told = re.search(r"within ([0-9.]+) s", s.finding.verdict.message)
    s.constants.append(f"SECONDS = {float(told[1]) if told else SECONDS}")
    s.make_inputs(s.case)
    s.say(
        "", 'print(f"if it has no result within {SECONDS} s, a traceback shows where it hangs: reproduced", flush=True)'
    )
    s.say("faulthandler.dump_traceback_later(SECONDS, exit=True)  # exit code 1", *_twice(s))
    s.say("faulthandler.cancel_dump_traceback_later()", 'return answer(False, "it came back in time")')


def _out_of_memory(s: Script) -> None:
    """A limit on what may be allocated; on a GPU there is none but its own."""
    limit = []
    if not s.there:
        s.uses("limit_memory")
        s.constants.append(f"MEGABYTES = {MEGABYTES}  # that it may take")
        limit = ["limit_memory(MEGABYTES)"]
    s.make_inputs(s.case)
    read = "{0}.detach().clone()" if s.source.torch else "np.array({0})"
    s.say("", *limit, "try:", *indented(_twice(s, read if s.returns else "")))
    s.say("except (MemoryError, RuntimeError) as error:  # torch has no MemoryError")
    s.say('    print(f"it ran out of memory: {error}")', '    return answer(True, "it takes all the memory there is")')
    s.say('return answer(False, "it came back")')


def _cliff(s: Script) -> None:
    """Both sizes in turns, by the clock of the host."""
    cliff = s.finding.cliff
    if cliff is None or cliff.neighbour is None or s.there:
        s.say('print("how long it takes on a GPU is told by `kassay replay` only; see the head of this file")')
        s.say("return 2")
        return
    s.source.imports |= {"import statistics", "import time"}
    asked = cliff.asked * statistics.median(cliff.seconds_slow) / statistics.median(cliff.seconds_fine) / cliff.factor
    s.constants.append(f"FACTOR = {asked:.4g}  # from which on it is a cliff: more work explains less than this")
    s.constants.append(f"RUNS = {RUNS}")
    s.make_inputs(s.case)
    s.say("", f"# The same with {prose(cliff.axis)} = {cliff.fine}.")
    others = s.make_inputs(cliff.neighbour, "_other")
    s.say("", "kept, said = [], []", "for _ in range(RUNS):")
    for times, other in (("kept", None), ("said", (cliff.neighbour, others))):
        shape = s.exhibit_of(cliff.neighbour).shape if other else None
        *before, call = s.run("first" if other is None else "second", other=other, shape=shape)
        s.say(*indented([*before, "begin = time.perf_counter()", call, f"{times}.append(time.perf_counter() - begin)"]))
    s.say("factor = statistics.median(kept) / statistics.median(said)")
    said = f"{cliff.axis} = {cliff.slow} takes {{factor:.2f}} times as long as {cliff.fine}"
    s.say(f'return answer(factor > FACTOR, f"{said}")')


def _build_failed(s: Script) -> None:
    """Loading is all there is to see."""
    s.source.imports.add("import traceback")
    s.say("try:", "    load(SUBJECT, FUNCTION)", "except FileNotFoundError:", "    raise", "except BaseException:")
    s.say("    traceback.print_exc(file=sys.stdout)", '    return answer(True, "it cannot be loaded")')
    s.say('return answer(False, "it can be loaded")')


def _look(s: Script) -> None:
    """Show the result: nothing was recorded that could be compared."""
    s.make_inputs(s.case)
    s.say("", *s.run(values="values"), "", "print(values.reshape(-1)[:16])")
    s.say('print("the finding does not say what these elements should be; see the head of this file")', "return 0")


STORIES: dict[Kind, Story] = {
    Kind.WRONG_SHAPE: _wrong_shape,
    Kind.WRONG_DTYPE: _wrong_dtype,
    Kind.WRONG_LAYOUT: _wrong_layout,
    Kind.ALIASED: _aliased,
    Kind.NONDETERMINISTIC: _nondeterministic,
    Kind.RACE: _nondeterministic,
    Kind.UNINITIALIZED: _nondeterministic,
    Kind.DIVERGENT: _timeout,
    Kind.OUT_OF_BOUNDS: _out_of_bounds,
    Kind.UNWRITTEN: _unwritten,
    Kind.INPUT_MUTATED: _input_mutated,
    Kind.RAISED: _raised,
    Kind.TIMEOUT: _timeout,
    Kind.CRASHED: _crashed,
    Kind.OUT_OF_MEMORY: _out_of_memory,
    Kind.BUILD_FAILED: _build_failed,
    Kind.CLIFF: _cliff,
}
"""What shows each kind; values have stories of their own.

Races, unwritten memory and threads that wait for nobody are seen by an emulator, and no file can run its kernels. Where
one can, they show as answers that differ and as a hang.
"""
