"""A kernel that writes messages of its own into the channel: the run goes on, and no other subject answers for it."""

import pytest
from test_sandbox import CASES, PEER, box_of, task

from kernel_assay.corpus.model.kinds import Status
from kernel_assay.kernels.catalog import user_subject

pytestmark = pytest.mark.usefixtures("own_zygotes")
FORGER = """
import json
import os
import struct
import sys
import threading
import time
import numpy as np

OP = "silu"


def channels():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + name).startswith("socket:"):
                yield int(name)
        except OSError:
            pass


def frame(head, payload=b"", size=None, head_size=None):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    size = len(text) + len(payload) if size is None else size
    return struct.pack("<4sQI", bytes([0xAA]) + b"KA" + bytes([1]), size,
                       len(text) if head_size is None else head_size) + text + payload


def tell(message):
    for fd in channels():
        try:
            os.write(fd, message)
        except OSError:
            pass


def token():
    frame = sys._getframe()
    while "token" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["token"]


OK = {"n": 0, "subject": "silu/forger", "status": "ok", "input_digest": "", "outputs": [
    {"name": "out", "shape": [3, 5], "dtype": "float32"}]}


def run(out, x):
    w = x.astype(np.float64)
    out[...] = (w / (1.0 + np.exp(-w))).astype(x.dtype)
    OK["token"] = token()
    BODY
"""
PEER_SAYS = '{**OK, "subject": "silu/numpy_float32", "status": "raised", "outputs": [], "message": "ValueError: x"}'
FORGED = {
    "no number": 'tell(frame({"status": "ok"}))',
    "no token": 'OK.pop("token"), tell(frame(OK, bytes(60)))',
    "a list": 'tell(frame(b"[1, 2]"))',
    "no JSON": 'tell(frame(b"{{{"))',
    "a head longer than all": "tell(frame({}, head_size=1000))",
    "a size of 2^40": "tell(frame({}, size=1 << 40))",
    "a size of 2^64 - 1": "tell(frame({}, size=(1 << 64) - 1))",
    "a size of 100 MB": "tell(frame({}, size=100 << 20))",
    "half a message": "tell(frame(OK)[:9])",
    "no payload": "tell(frame(OK))",
    "a negative extent": "tell(frame({**OK, 'outputs': [{**OK['outputs'][0], 'shape': [-1]}]}, bytes(60)))",
    "another output": "tell(frame({**OK, 'outputs': [{**OK['outputs'][0], 'name': 'a'}]}, bytes(60)))",
    "no fault": "tell(frame({**OK, 'status': 'faulted', 'outputs': []}))",
    "an unknown status": "tell(frame({**OK, 'status': 'fine'}))",
    "offers": "tell(frame({**OK, 'offers': [{'bytes': 60, 'file': 3}]}))",
    "offers of no form": "tell(frame({**OK, 'offers': 7}))",
    "a peer's failure": f"tell(frame({PEER_SAYS}))",
    "its own result twice": "tell(frame(OK, bytes(60)) * 2)",
    "our own fault": 'tell(frame({"internal": "Traceback: ours"}))',
    "a lost GPU": 'tell(frame({"lost": "the GPU has fallen off the bus"}))',
    "a trickle": "threading.Thread(target=lambda: [tell(bytes([b])) or time.sleep(0.2) for b in frame(OK)]).start()",
}


def test_the_run_goes_on_and_nobody_else_is_accused(tmp_path):
    forgers = {}
    for number, name in enumerate(FORGED):
        path = tmp_path / f"forger{number}.py"
        path.write_text(FORGER.replace("BODY", FORGED[name]).replace("silu/forger", f"silu/{path.stem}"))
        forgers[name] = user_subject(str(path), ())
    with box_of(*forgers.values(), PEER, timeout=2.0, memory_mb=256) as box:
        box.probe()
        for name, forger in forgers.items():
            found = box.run([task(case, forger, PEER) for case in CASES[:3]])
            assert [f[PEER.key].execution.status for f in found] == [Status.OK] * 3, (name, found)
            statuses = {f[forger.key].execution.status for f in found}
            assert statuses <= {Status.OK, Status.CRASHED, Status.TIMEOUT}, (name, found)
            if not any(word in name for word in ("its own result", "peer", "trickle", "half", "100 MB", "number")):
                assert statuses == {Status.CRASHED}, name
