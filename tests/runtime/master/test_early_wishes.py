"""What a person wishes while a master registers itself, or reads its checkpoint, is heard."""

import asyncio
import threading

import pytest

from drlnb.runtime import link
from tests.runtime.played_agent import Agent, rows, until


@pytest.fixture
def agent(tmp_path):
    """Return an agent whose master reads its checkpoint until it is told that this is done."""
    made = Agent(tmp_path)
    made.restored = threading.Event()
    return made


def ends(agent):
    """Return (state, reason) of the ends that were told."""
    return [(message["state"], message["reason"]) for message in agent.told("drlnb_task_end")]


def test_wishes_and_news_during_the_restoring_are_heard_in_their_order(agent, monkeypatch):
    """Each is answered at once; the machine hears of the wishes alone, the last of which ends it."""

    async def scene():
        await until(lambda: agent.masters)
        slow = {"action": "slow", "key": "0", "value": {"factor": 2.0, "n_rounds": 3}}
        wishes = (
            {"action": "set", "key": "leasing.hold", "value": "last"},
            slow,
            {"action": "pause"},
            {"action": "stop"},
        )
        for how in wishes:
            assert await agent.control("r", "a", **how) == {"ok": True}
        await agent.node_lost(node="n9", reason="gone", address="far")
        agent.restored.set()
        await until(lambda: rows(agent, "StopAsked"))

    asyncio.run(agent.run(monkeypatch, scene))
    kinds = ("TaskOpened", "SettingChanged", "MemberSlowed", "PauseAsked", "StopAsked", "PlacementReceived", "NodeLost")
    heard = [row for message in agent.told("drlnb_task_rows") for row in message["rows"] if row["r"] in kinds]
    assert [row["r"] for row in heard] == list(kinds[:5])
    assert (heard[2]["member"], heard[2]["factor"], heard[2]["n_rounds"]) == ("0", 2.0, 3)


@pytest.mark.parametrize("action", ["stop", "kill"])
def test_a_stop_during_the_restoring_ends_the_task_at_once(agent, monkeypatch, action):
    """Nothing is opened, placed or trained: the newest checkpoint is where it stands."""

    async def scene():
        await until(lambda: agent.masters)
        await agent.control("r", "a", action=action, reason="enough")
        assert ends(agent) == [("stopped", "enough")]
        agent.restored.set()

    assert asyncio.run(agent.run(monkeypatch, scene)) == "stopped"
    assert [op for op, _ in agent.said] == ["drlnb_task_attach", "drlnb_task_end"]


def test_a_stop_that_was_wished_before_reads_no_checkpoint(agent, monkeypatch):
    """The broker remembered it while nobody trained."""
    agent.wanted = "stop"
    assert asyncio.run(agent.run(monkeypatch)) == "stopped"
    assert ends(agent) == [("stopped", "asked for")]


def test_a_stop_saves_settings_that_no_checkpoint_holds_yet(agent, monkeypatch):
    """They were changed under a former attempt: this one goes the whole way, to a checkpoint."""
    agent.wanted, agent.live = "stop", {"rl.learning_rate": 0.5}
    agent.restored.set()

    async def scene():
        await until(lambda: rows(agent, "WriteCheckpoint"))

    asyncio.run(agent.run(monkeypatch, scene))
    (command,) = rows(agent, "WriteCheckpoint")
    assert command["settings"] == agent.live


def test_wishes_that_overtake_the_answer_to_the_registration_are_heard(agent, monkeypatch):
    """The broker sends them to this node as soon as it has answered; there is no master yet that hears."""
    answer, answering = agent.ask_broker, asyncio.Event()

    async def ask_broker(op, /, **message):
        made = await answer(op, **message)
        if op == "drlnb_task_attach":
            answering.set()
            await asyncio.sleep(0.01)
        return made

    agent.ask_broker = ask_broker
    agent.restored.set()
    agent.wanted = "pause"

    async def scene():
        await answering.wait()
        assert not agent.masters
        await agent.control("r", "a", action="resume", key="", value=None, reason="")
        await agent.control("r", "a", action="set", key="leasing.hold", value="last")
        await until(lambda: rows(agent, "SettingChanged"))

    asyncio.run(agent.run(monkeypatch, scene))
    kinds = {"PauseAsked", "ResumeAsked", "SettingChanged"}
    heard = [row["r"] for message in agent.told("drlnb_task_rows") for row in message["rows"] if row["r"] in kinds]
    assert heard == ["PauseAsked", "ResumeAsked", "SettingChanged"]
    assert not agent._hosting._attaching


def test_a_master_registers_itself_until_the_broker_answers(agent, monkeypatch):
    """A scheduler that is busy for long does not fail the task; the request keeps its name, so it is one attempt."""
    monkeypatch.setattr(link, "_AGAIN_S", 0.0)
    answer, requests = agent.ask_broker, []
    agent.wanted = "stop"

    async def ask_broker(op, /, **message):
        if op == "drlnb_task_attach":
            requests.append(message["request"])
            if len(requests) < 3:
                raise TimeoutError if len(requests) == 1 else ConnectionError
        return await answer(op, **message)

    agent.ask_broker = ask_broker
    assert asyncio.run(agent.run(monkeypatch)) == "stopped"
    assert len(requests) == 3
    assert len(set(requests)) == 1


def test_a_master_that_cannot_begin_says_so_until_it_is_heard(agent, monkeypatch):
    """Its node does not see the run directory; the first word of that is lost."""
    (agent.folder / "run.json").unlink()
    answer, lost = agent.ask_broker, []

    async def ask_broker(op, /, **message):
        if op == "drlnb_task_end" and not lost:
            lost.append(message)
            raise TimeoutError
        return await answer(op, **message)

    agent.ask_broker = ask_broker
    said = asyncio.run(agent.run(monkeypatch))
    assert "does not see the run directory" in said
    assert ends(agent) == [("failed", said)]
