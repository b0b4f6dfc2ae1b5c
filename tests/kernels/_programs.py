"""A program of a test, run by the emulator."""

from kernel_assay.kernels.backends.simt.program.compile import Request, compile_program
from kernel_assay.kernels.programs.run import Settings, run_program


def compiled(folder, text, defines=()):
    """A program of one file."""
    (folder / "p.cu").write_text(text, "utf-8")
    return compile_program(Request((folder / "p.cu",), defines))


def ran(program, folder, name="p", arguments=(), **how):
    """What was found, and what the program printed. name: of the program, as findings say to run it again."""
    with (folder / "out").open("w+b") as out:
        found = run_program(program, Settings(arguments, out=out, **how), [name])
        out.seek(0)
        return found, out.read().decode()


def seen(folder, text, arguments=(), defines=(), **how):
    """What is a finding, by kind and the words of its line's comment; and what was printed."""
    found, printed = ran(compiled(folder, text, defines), folder, arguments=arguments, **how)
    lines = text.splitlines()
    told = {(f.kind, lines[f.place.line - 1].rpartition("// ")[2], f.harmless) for f in found.findings}
    return {(kind, mark) for kind, mark, harmless in told if not harmless}, told, printed
