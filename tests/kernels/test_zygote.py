"""The mother of workers outlives whatever order their ends are heard in."""

import os
import select
import selectors
import socket
from contextlib import closing

import pytest
from pydantic_core import from_json

from kernel_assay.kernels.sandbox.worker_pool import pool_ahead
from kernel_assay.kernels.worker.zygote import Child, Zygote


@pytest.fixture
def control():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ours, theirs
    ours.close()
    theirs.close()


def dying(words):
    """A child that says something and dies."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, words)
        os._exit(7)
    os.close(write)
    os.set_blocking(read, False)
    return Child(pid, os.pidfd_open(pid), read)


@pytest.mark.parametrize("end_first", [True, False])
def test_words_and_end_of_a_child_may_be_heard_in_one_batch(control, end_first):
    ours, theirs = control
    zygote = Zygote(theirs, 64, "/")
    child = dying(b"last words")
    zygote._children[child.pid] = child
    for fd in (child.output, child.pidfd):
        zygote._selector.register(fd, selectors.EVENT_READ, child)
        assert select.select([fd], [], [], 5)[0], "both are there to be heard"
    keys = [zygote._selector.get_key(fd) for fd in (child.pidfd, child.output)]
    batches = iter([[(key, 1) for key in (keys if end_first else keys[::-1])]])
    zygote._selector.select = lambda: next(batches, [(zygote._selector.get_key(theirs), 1)])
    ours.shutdown(socket.SHUT_WR)
    zygote.serve()
    assert from_json(ours.recv(4096)) == {"ended": child.pid, "code": 7, "tail": "last words"}


def test_the_next_sandbox_of_a_test_has_the_same_zygote():
    def forked_by():
        with closing(pool_ahead(["numpy"], 64, closed=True)) as pool:
            return pool._process.pid

    assert forked_by() == forked_by(), "tests/conftest.py replaces nothing that makes one"
