"""What an executor child does with frames that come while a person's function runs."""

import pytest

from drlnb.records.ids import Fence
from drlnb.runtime.children.device import Device
from drlnb.runtime.children.executor import ExecutorChild
from drlnb.runtime.children.user_functions import here
from drlnb.runtime.ipc.frames import FrameSocket, socket_pair
from drlnb.runtime.ipc.pickling import pack_call, unpack

pytest.importorskip("torch")


#: The agent's end, for functions that play what the agent does meanwhile.
_AGENT = []


def _watch():
    seen, agent = [here().asked_to_yield], _AGENT[-1]
    agent.send({"op": "evict", "task": "r/a"})
    agent.send({"op": "asked", "fence": Fence(1, 1)})
    agent.send({"op": "job-end", "fence": Fence(1, 1)}, b"abc")
    return [*seen, here().asked_to_yield]


def _abandoned():
    _AGENT[-1].sock.close()
    return here().asked_to_yield


@pytest.fixture
def pair():
    """Return an executor child, and the agent's end."""
    ours, theirs = socket_pair()
    with ours, theirs:
        _AGENT.append(FrameSocket(ours))
        yield _AGENT[-1], ExecutorChild(FrameSocket(theirs), Device("cpu"))
        _AGENT.clear()


def job(agent, fn, token=1):
    header = {"op": "job", "fence": Fence(1, token), "slot": "0/cpu0", "name": "a", "rank": 0, "n_slots": 1}
    agent.send(header, pack_call(fn, (), {}))


def ran(child):
    answer, (data,) = child.answer(*child.receive())
    assert answer["op"] == "ran"
    return unpack(data)


def test_frames_that_come_while_a_function_runs_wait_for_its_end(pair):
    """That its holder was asked to give way is told to the function; the others come afterwards, in their order."""
    agent, child = pair
    job(agent, _watch)
    assert ran(child) == [False, True]
    assert not child.channel.waiting
    header, payload = child.receive()
    assert (header["op"], bytes(payload)) == ("evict", b"")
    header, payload = child.receive()
    assert (header["op"], bytes(payload)) == ("job-end", b"abc")


def test_a_word_between_two_functions_is_for_the_next_one(pair):
    """A function that never looks loses nothing: the frame is read after it."""
    agent, child = pair
    job(agent, lambda: 1)
    agent.send({"op": "asked", "fence": Fence(1, 1)})
    assert ran(child) == 1
    assert child.answer(*child.receive()) == ({"op": "noted"}, [])
    job(agent, lambda: here().asked_to_yield)
    assert ran(child) is True


def test_an_agent_that_is_gone_does_not_break_the_function(pair):
    """The life line ends the process; until then the function goes on."""
    agent, child = pair
    job(agent, _abandoned)
    assert ran(child) is False
