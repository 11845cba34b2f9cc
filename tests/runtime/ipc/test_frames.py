"""Frames between an agent and its children."""

import asyncio
import threading

import numpy as np
import pytest

from drlnb.runtime.ipc.frames import ChildChannel, FrameSocket, plain, socket_pair


def _echo(sock):
    """Answer each frame with its own payload until the other end closes."""
    channel = FrameSocket(sock)
    while True:
        try:
            header, payload = channel.receive()
        except EOFError:
            sock.close()
            return
        if header["op"] == "die":
            sock.close()
            return
        channel.send({"op": "echo", "answers": header["id"], "got": header}, payload)


@pytest.fixture
def child():
    """Start a thread that plays the child; yield the agent's end of the pair."""
    ours, theirs = socket_pair()
    thread = threading.Thread(target=_echo, args=(theirs,))
    thread.start()
    yield ours
    ours.close()
    thread.join(5)


def test_payloads_come_back_byte_for_byte(child):
    """A frame's payload parts are joined and come back unchanged, whatever their size."""

    async def talk():
        gone = asyncio.Event()
        channel = await ChildChannel.open(child, lambda *_: None, gone.set)
        parts = [np.arange(300_000, dtype=np.float32), b"", b"tail"]
        header, payload = await channel.ask({"op": "x", "n": 1}, *parts)
        await channel.aclose()
        assert gone.is_set()
        return header, payload, parts

    header, payload, parts = asyncio.run(talk())
    assert header["got"]["n"] == 1
    assert payload == parts[0].tobytes() + b"tail"


def test_answers_find_their_question(child):
    """Ten questions asked at once each get their own answer."""

    async def talk():
        channel = await ChildChannel.open(child, lambda *_: None, lambda: None)
        answers = await asyncio.gather(*(channel.ask({"op": "x", "n": i}, bytes([i])) for i in range(10)))
        await channel.aclose()
        return [(header["got"]["n"], payload) for header, payload in answers]

    assert asyncio.run(talk()) == [(i, bytes([i])) for i in range(10)]


def test_a_child_that_ends_fails_the_open_question(child):
    """When the child ends, whoever waits for an answer gets ConnectionError and `on_close` is called once."""
    closed = []

    async def talk():
        channel = await ChildChannel.open(child, lambda *_: None, lambda: closed.append(1))
        with pytest.raises(ConnectionError, match="the child is gone"):
            await channel.ask({"op": "die"})
        with pytest.raises(ConnectionError, match="the child is gone"):
            channel.send({"op": "x"})
        await channel.aclose()

    asyncio.run(talk())
    assert closed == [1]


def test_plain_turns_numpy_into_ordinary_values():
    """Numpy scalars and tuples become numbers and lists; a thing that is no plain data is refused by its type."""
    value = plain({"a": np.float64(1.5), "b": (np.int32(2), None), 3: True})
    assert value == {"a": 1.5, "b": [2, None], "3": True}
    assert type(value["a"]) is float
    assert type(value["b"][0]) is int
    with pytest.raises(TypeError, match="object"):
        plain(object())
