"""Messages arrive one by one and whole, however they were cut up; silence and a closed end are told apart."""

import socket

import pytest

from kernel_assay.corpus.process.channel import Wire


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    yield Wire(one), other
    one.close()
    other.close()


def test_messages_arrive_whole(ends):
    wire, other = ends
    other.sendall(b'{"a": 1}\n{"b": "x')
    assert wire.receive(1.0) == {"a": 1}
    with pytest.raises(TimeoutError):
        wire.receive(0.01)
    other.sendall(b'y\\n"}\n')
    assert wire.receive(1.0) == {"b": "xy\n"}


def test_both_ways(ends):
    wire, other = ends
    wire.send({"long": "x" * 100_000})
    assert Wire(other).receive(1.0) == {"long": "x" * 100_000}


def test_a_closed_end_is_no_message(ends):
    wire, other = ends
    other.sendall(b'{"cut')
    other.close()
    with pytest.raises(EOFError):
        wire.receive(1.0)
