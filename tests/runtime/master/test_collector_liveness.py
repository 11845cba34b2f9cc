"""A collector that does not answer, whoever tells of it: no task waits for ever."""

import asyncio
import pickle
from pathlib import Path

import pytest

from drlnb.runtime.ipc.start_modes import Zygote
from drlnb.runtime.master import collector_liveness
from drlnb.runtime.master.collector_liveness import Losses
from drlnb.runtime.node import collectors
from drlnb.runtime.node.collector_host import CollectorHost, LiveCollector
from tests.runtime.played_agent import Agent, played_link, rows, until


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Nobody here is far away."""
    monkeypatch.setattr(collector_liveness, "_REPORT_S", 0.01)
    monkeypatch.setattr(collectors, "_AGAIN_S", (0.0, 0.0, 0.0))


def broken():
    return {"refused": "the way there broke"}


def starts(agent, collector):
    """Return the numbers of the processes that were started of a collector."""
    return [one["number"] for one in agent.told("drlnb_collector_start") if one["key"][2] == collector]


def wakes(agent, collector):
    """Return how often a collector was woken."""
    return sum(one["key"][2] == collector for one in agent.told("drlnb_collector_ask"))


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        (broken, "did not answer: the way there broke", ""),
        (lambda: {"refused": "it is not up"}, "did not answer: it is not up", ""),
        (lambda: {"op": "error", "message": "snapped", "detail": "line 7"}, "snapped", "line 7"),
    ],
)
def test_a_collector_that_does_not_answer_is_started_again(tmp_path, monkeypatch, answer, reason, detail):
    """The way to its node broke while both nodes live, and nobody tells of a loss: the round goes on all the same."""
    agent = Agent(tmp_path)
    agent.answers[1] = [answer]

    async def scene():
        await until(lambda: wakes(agent, 1) == 2)

    asyncio.run(agent.run(monkeypatch, scene))
    (lost,) = rows(agent, "CollectorUnanswered")
    assert (lost["collector"], lost["node"], lost["reason"], lost["detail"]) == (1, "n1", reason, detail)
    assert (starts(agent, 0), starts(agent, 1)) == ([1], [1, 2])


def acted():
    fragment = {"round": 3, "version": 3, "n_samples": 8, "collect_s": 0.1, "episodes": []}
    return {"op": "experience", "fragment": fragment, "payload": b"", "queued_s": 0.0}


def test_environments_states_are_brought_along_until_the_collector_has_acted(tmp_path, monkeypatch):
    """After a resume one start fails and one process dies before it acts: neither has used up the checkpoint's.

    Later those of the checkpoint are too old: where the collector did not tell newer ones, they begin anew.
    """
    agent = Agent(tmp_path)
    agent.envs = {"round": 2, "envs": {"0": {"snapshot": b"zero"}, "1": {"snapshot": b"one"}}}
    agent.refusals[1] = ["no room\n"]
    agent.answers[1] = [broken, acted]

    async def scene():
        await until(lambda: rows(agent, "ExperienceArrived"))
        await agent.collector_lost(("r", "a", 1), 2, node="n1", reason="killed", detail="", number=3)
        await until(lambda: len(starts(agent, 1)) == 4)

    asyncio.run(agent.run(monkeypatch, scene))
    states = [pickle.loads(brought)["envs"] for i, brought in agent.brought if i == 1]
    assert states == [{"1": {"snapshot": b"one"}}] * 3 + [{"1": {"snapshot": None}}]
    assert len([i for i, _ in agent.brought if i == 0]) == 1


def test_a_loss_counts_once_whoever_tells_it_first(tmp_path, monkeypatch):
    """Its node's word comes while the master waits for it, again afterwards, and once more when the next one is up."""
    agent = Agent(tmp_path)
    agent.answers[1] = [broken]

    async def scene():
        await until(lambda: wakes(agent, 1) == 1)
        loss = {"node": "n1", "reason": "killed", "detail": "", "number": 1}
        for _ in range(2):
            await agent.collector_lost(("r", "a", 1), 2, **loss)
        await until(lambda: wakes(agent, 1) == 2)
        await agent.collector_lost(("r", "a", 1), 2, **loss)
        await asyncio.sleep(0.02)

    asyncio.run(agent.run(monkeypatch, scene))
    assert [row["reason"] for row in rows(agent, "CollectorLost")] == ["killed"]
    assert starts(agent, 1) == [1, 2]


def losses(answer):
    """Return what knows of losses, and the events that it has fed; the machine answers each with some records."""
    fed = []

    def feed_for(wanted, kind, /, **fields):
        fed.append(fields)
        return answer

    return Losses(feed_for), fed


def test_a_process_that_the_machine_counts_as_lost_is_no_news_afterwards():
    """Where the machine waited for no answer, the report of its node still counts."""

    async def go(answer):
        known, fed = losses(answer)
        known.begins(0)
        await known.unanswered(known.asks(0), collector=0, node="n", version=3, evaluates=True, reason="gone")
        assert fed == [{"collector": 0, "node": "n", "version": 3, "evaluates": True, "reason": "gone"}]
        return known.is_news(0, 1)

    assert asyncio.run(go(["restart"])) is False
    assert asyncio.run(go([])) is True


def test_a_question_that_was_asked_again_is_forgotten():
    """The collector was lost, started and woken again meanwhile: the former wake's silence means nothing."""

    async def go():
        known, fed = losses(["restart"])
        known.begins(0)
        question = known.asks(0)
        known.asks(0)
        await known.unanswered(question, collector=0, node="n", version=1, evaluates=False, reason="gone")
        return fed

    assert asyncio.run(go()) == []


def test_the_loss_is_told_to_the_master_that_started_it_until_it_hears():
    """Before any parameters have come, and though another master's address was heard since; three times in vain."""

    async def go():
        calls = []

        async def call(address, op, /, **message):
            calls.append((address, op, message["number"]))
            return {"refused": "it is away"} if len(calls) < 4 else {"ok": True}

        here = collectors.Collectors(played_link(call=call), CollectorHost(Zygote(Path("zygote.log"))), None)
        live = LiveCollector(key=("r", "a", 0), attempt=1, pid=0, mode="zygote", log=None)
        live.number, live.master = 5, "its master"
        await here.report_loss(live, "killed", "")
        await here.report_loss(live, "killed", "")
        return calls

    assert asyncio.run(go()) == [("its master", "drlnb_collector_lost", 5)] * 5


def test_a_loss_is_not_told_for_ever():
    """Whoever does not hear four times finds out by itself."""

    async def go():
        calls = []

        async def call(address, op, /, **message):
            calls.append(address)
            return {"refused": "it is away"}

        here = collectors.Collectors(played_link(call=call), CollectorHost(Zygote(Path("zygote.log"))), None)
        await here.report_loss(
            LiveCollector(key=("r", "a", 0), attempt=1, pid=0, mode="zygote", log=None), "killed", ""
        )
        return calls

    assert asyncio.run(go()) == ["here"] * 4
