"""A run whose directory somebody else has taken over ends at once, in one line, and writes nothing more there."""

import asyncio

import pytest

from drlnb.records.round import WriteCheckpoint
from drlnb.runtime.files import checkpoint
from drlnb.runtime.files.lock import Lock
from drlnb.runtime.files.run_directory import RunDir
from drlnb.runtime.ipc import lifeline
from drlnb.runtime.master import checkpoint_effects
from drlnb.runtime.master import master as of_master
from drlnb.runtime.master.checkpoint_effects import CheckpointEffects
from drlnb.runtime.protocol import Plain
from drlnb.runtime.scheduler.run import LiveRun
from tests.runtime.played_agent import Agent, until

OURS = Lock(run="r", epoch=7, address="tcp://127.0.0.1:1")
THEIRS = Lock(run="r", epoch=8, address="tcp://node2:1")


@pytest.fixture
def agent(tmp_path, monkeypatch):
    monkeypatch.setattr(of_master, "RENEW_S", 0.001)
    RunDir(tmp_path).write_lock(OURS)
    return Agent(tmp_path)


def ends(agent) -> list[Plain]:
    return agent.told("drlnb_task_end")


def test_a_master_whose_directory_is_taken_over_ends_at_once(agent, monkeypatch, tmp_path):
    """The broker is told so, which then writes nothing there either."""
    renewed = []
    monkeypatch.setattr("os.utime", renewed.append)

    async def scene():
        await until(lambda: len(renewed) > 2)
        assert ends(agent) == []
        RunDir(tmp_path).write_lock(THEIRS)
        await agent.masters["r", "a"].done

    assert asyncio.run(agent.run(monkeypatch, scene)) == "failed"
    (end,) = ends(agent)
    assert end["reason"] == (
        f"superseded: run r at tcp://node2:1 has taken over {tmp_path}; this one ends here, and writes nothing more"
    )
    assert end["superseded"]


def test_environments_that_print_without_end_are_told_once(agent, monkeypatch, tmp_path):
    """Their log was cut; the user is told which."""
    renewed = []
    monkeypatch.setattr("os.utime", renewed.append)
    log = tmp_path / "logs" / "n0" / "a-0.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(lifeline._FLOODED + b"x")

    async def scene():
        await until(lambda: len(renewed) > 4)

    asyncio.run(agent.run(monkeypatch, scene))
    rows = [row for told in agent.told("drlnb_task_rows") for row in told["rows"] if row["k"] == "n"]
    assert [row["text"] for row in rows] == [
        f"the environments of task a print without end: {log} keeps the newest part"
    ]


def test_a_master_whose_directory_is_removed_ends_at_once(agent, monkeypatch, tmp_path):
    """Nothing can be saved there; the task fails, in a line that says what happened and what to do."""

    async def scene():
        await until(lambda: agent.masters and agent.masters["r", "a"].is_up)
        (tmp_path / "run.json").rename(tmp_path / "gone")
        await agent.masters["r", "a"].done

    assert asyncio.run(agent.run(monkeypatch, scene)) == "failed"
    (end,) = ends(agent)
    assert end["reason"] == (
        f"the run directory {tmp_path} was removed or moved while the run went on: nothing can be saved there; "
        "begin anew, or put it back and go on with drlnb resume"
    )
    assert end["superseded"]


@pytest.mark.parametrize("moment", ["checkpoint", "end"])
def test_a_task_whose_directory_is_removed_is_not_done(agent, monkeypatch, tmp_path, moment):
    """Though no renewal has seen it: a checkpoint makes no folder anew, and an end is none."""

    async def never(master):
        return

    monkeypatch.setattr(of_master.Master, "_keep_lock", never)

    async def no_ring(since):
        return None

    async def scene():
        await until(lambda: agent.masters and agent.masters["r", "a"].is_up)
        master = agent.masters["r", "a"]
        (tmp_path / "run.json").unlink()
        if moment == "end":
            await master.finish("done")
        else:
            command = WriteCheckpoint(version=3, n_rounds=2, n_timesteps=64, reason="end")
            await CheckpointEffects(master, None, lambda version: [], no_ring).write(command)
            assert not (tmp_path / "checkpoints" / "a" / "2").exists()
        await master.done

    assert asyncio.run(agent.run(monkeypatch, scene)) == "failed"
    (end,) = ends(agent)
    assert end["reason"].startswith(f"the run directory {tmp_path} was removed")


@pytest.mark.parametrize("who", ["elsewhere", "here"])
def test_a_checkpoint_is_not_written_where_a_later_run_or_attempt_is(agent, monkeypatch, tmp_path, who):
    """Each looks first, whenever the next renewal is, and the task does not wait for a checkpoint that never comes."""
    monkeypatch.setattr(of_master, "RENEW_S", 1000)
    written = []

    def write(*args, **more):
        written.append(more["attempt"])
        raise checkpoint.SupersededError("attempt 3 has begun, this is attempt 2")

    async def no_ring(since):
        assert since is None
        return

    async def scene():
        await until(lambda: agent.masters and agent.masters["r", "a"].is_up)
        master = agent.masters["r", "a"]
        if who == "elsewhere":
            RunDir(tmp_path).write_lock(THEIRS)
        command = WriteCheckpoint(version=3, n_rounds=2, n_timesteps=64, reason="periodic")
        await CheckpointEffects(master, None, lambda version: [], no_ring).write(command)
        await master.done

    monkeypatch.setattr(checkpoint_effects, "write_trained", write)
    assert asyncio.run(agent.run(monkeypatch, scene)) == "failed"
    (end,) = ends(agent)
    told = {"elsewhere": ("superseded: run r at tcp://node2:1", []), "here": ("attempt 3 has begun", [2])}
    assert end["reason"].startswith(told[who][0])
    assert (written, end["superseded"]) == (told[who][1], True)


def test_a_superseded_run_leaves_the_status_of_its_successor(tmp_path):
    """It is the other one's file now."""

    async def scene():
        live = LiveRun("r", {"out": str(tmp_path), "tasks": [{"name": "a"}]})
        live.write_status(force=True)
        await live.said()
        (tmp_path / "status.json").write_text("theirs")
        live.superseded = True
        live.write_status(force=True)
        await live.said()

    asyncio.run(scene())
    assert (tmp_path / "status.json").read_text() == "theirs"
