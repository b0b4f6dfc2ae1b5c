"""Messages arrive one by one and whole, however they were cut up; silence and a closed end are told apart."""

import socket

import pytest

from kernel_assay.corpus.process.channel import Channel, GarbledError, frame


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    yield Channel(one), other
    one.close()
    other.close()


def test_messages_arrive_whole(ends):
    channel, other = ends
    second = frame({"b": "xy\n"}, [b"ab", b"c"])
    other.sendall(frame({"a": 1}, []) + second[:9])
    assert channel.receive() == ({"a": 1}, b"")
    assert not channel.ready(0.01)
    assert channel.begun == 9
    other.sendall(second[9:])
    assert channel.ready(0)
    head, payload = channel.receive()
    assert (head, bytes(payload)) == ({"b": "xy\n"}, b"abc")


def test_both_ways(ends):
    channel, other = ends
    channel.send(frame({"long": "x" * 100_000}, []))
    assert Channel(other).receive()[0] == {"long": "x" * 100_000}


def test_a_closed_end_is_no_message(ends):
    channel, other = ends
    other.sendall(frame({"cut": 1}, [])[:-2])
    other.close()
    with pytest.raises(EOFError):
        channel.receive()


def test_what_is_no_message_is_told(ends):
    channel, other = ends
    other.sendall(b"a kernel wrote this into a descriptor of ours")
    with pytest.raises(GarbledError):
        channel.receive()
