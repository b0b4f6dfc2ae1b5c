"""Never comes back."""

OP = "silu"
PLANTED = "timeout"


def run(out, x):
    while True:
        pass
