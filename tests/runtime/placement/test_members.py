"""A member without a cluster: what becomes of what it returns, and when it gives signs of life."""

from types import SimpleNamespace

import pytest

from drlnb.runtime.ipc.pickling import pack_value, unpack, unpack_error
from drlnb.runtime.placement import member
from drlnb.runtime.placement.agent import SlotAgent
from drlnb.runtime.placement.member import LOST, RAISED, RETURNED, Member, Part, run_member


class Agent(SlotAgent):
    """An agent that keeps what it says."""

    def __init__(self):
        super().__init__("here", "me")
        self.said = []

    def say(self, op, **fields):
        self.said.append(op)


@pytest.fixture
def agent(monkeypatch):
    agent = Agent()
    monkeypatch.setattr(member, "get_worker", lambda: SimpleNamespace(plugins={"here": agent}))
    return agent


def part(agent, call=len, **changes):
    about = {"plugin": "here", "life": agent.life, "gang": "here/a/1", "attempt": 1, "rank": 0, "size": 1, "slot": "s"}
    return Part(**(about | {"call": pack_value((call, (), {})), "resume": None, "sign_s": None} | changes))


def test_what_a_member_returns_or_raises_travels(agent):
    """And the agent knows of it while it runs."""
    outcome, data = run_member(part(agent, lambda m: (m.rank, m.slot)))
    assert (outcome, unpack(data)) == (RETURNED, (0, "s"))
    outcome, data = run_member(part(agent, lambda m: {}[m.rank]))
    assert outcome == RAISED
    assert isinstance(unpack_error(data), KeyError)
    assert (agent.gangs, agent.said) == (set(), ["member_started"] * 2)


def test_what_a_member_returns_that_was_told_to_stop_is_no_result(agent):
    """Its gang has lost a member, or its worker is closed: half the work must not pass for all of it."""
    agent.stop("here/a/1")
    assert run_member(part(agent, lambda m: "half")) == (LOST, b"")

    def half(m):
        here = member.get_worker().plugins["here"]  # it is no copy that travelled
        here.teardown(SimpleNamespace(plugins={}, status="closing"))
        return "half" if m.should_stop() else "whole"

    assert run_member(part(agent, half, gang="here/b/1")) == (LOST, b"")


def test_a_member_that_dask_runs_again_elsewhere_does_nothing(agent):
    """Another process has another life."""
    assert run_member(part(agent, life="another")) == (LOST, b"")
    assert agent.said == []


@pytest.mark.parametrize(
    ("key", "start", "stops"),
    [
        ("here/a/1/0", "executing", True),
        ("here/a/1/0", "long-running", True),
        ("here/a/1/0", "memory", False),
        ("else/a/1/0", "executing", False),
        (("here/a/1", 0), "executing", False),
    ],
)
def test_a_task_that_dask_releases_while_it_runs_stops(agent, key, start, stops):
    """Who wanted its result is gone; those of others, and results that are released, are no members."""
    agent.transition(key, start, "released")
    assert agent.stops("here/a/1") == stops


def test_signs_of_life_are_given_now_and_then(agent, monkeypatch):
    """Of questions each second every fourth one is heard of, where that is asked for."""
    now = [0.0]
    monkeypatch.setattr(member, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for sign_s, n in ((4.0, 3), (None, 0)):
        agent.said.clear()
        asking = Member(part(agent, sign_s=sign_s), agent)
        for _ in range(12):
            now[0] += 1.0
            assert not asking.should_stop()
        assert agent.said == ["member_lives"] * n
