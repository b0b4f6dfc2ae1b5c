"""Never comes back, and ignores every signal that can be ignored."""

import signal
import time

OP = "silu"
PLANTED = "timeout"


def run(out, x):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(0.01)
