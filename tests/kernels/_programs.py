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
