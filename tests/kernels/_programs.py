"""A program of a test, run by the emulator."""

from kernel_assay.kernels.programs.run import Settings, run_program


def ran(program, folder, name="p", arguments=(), **how):
    """What was found, and what the program printed. name: of the program, as findings say to run it again."""
    with (folder / "out").open("w+b") as out:
        found = run_program(program, Settings(arguments, out=out, **how), [name])
        out.seek(0)
        return found, out.read().decode()
