"""A broker whose clock was set back: the fences of a run that goes on there are above those of its journal."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.planning.replay import replay
from drlnb.records.columns import leasing
from drlnb.records.journal import Journal
from drlnb.runtime.scheduler import plugin as broker_module
from drlnb.runtime.scheduler.plugin import BrokerPlugin
from drlnb.runtime.scheduler.run import journalled, journalled_epoch


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that is played, in nanoseconds."""
    played = SimpleNamespace(now=1_000)
    monkeypatch.setattr(broker_module, "time", SimpleNamespace(time_ns=lambda: played.now))
    return played


async def _grant(broker, task):
    reply = await asyncio.wait_for(broker.grants.acquire(f"{task}/1", task=task, attempt=1, round=1, node="n"), 1.0)
    return reply["fence"]


async def _train(out, run="r"):
    """Take a run on as a new broker; return a grant's fence, the broker's epoch and the stream's name."""
    broker = BrokerPlugin()
    await broker.start(SimpleNamespace(handlers={}))
    try:
        for slot in ("n/a", "n/b"):
            broker.host.feed(leasing.SlotAdded, slot=slot, node="n", device="cpu", executor_epoch=1)
        early = await _grant(broker, "other/task")
        await broker.runs.run_create(run, {"out": str(out), "tasks": [{"name": "a"}]})
        fence = await _grant(broker, f"{run}/a")
        assert await broker.grants.renew(early) == {"ok": True}, "what is held stays held"
        assert fence > early
        return fence, broker.epoch, broker.runs.live[run].streams["pool"][0]
    finally:
        await broker.close()


def test_a_clock_that_was_set_back_reuses_no_epoch(clock, tmp_path):
    """Fences rise from broker to broker, whatever the clock says, and so do the streams' epochs; each replays."""
    said = []
    for now in (1_000, 400, 400, 2_000):
        clock.now = now
        said.append(asyncio.run(_train(tmp_path)))
    fences = [fence for fence, _, _ in said]
    assert fences == sorted(fences)
    assert [fence.epoch for fence in fences] == [1_000, 1_001, 1_002, 2_000]
    assert [epoch for _, epoch, _ in said] == [1_000, 400, 400, 2_000], "who the broker is stays its start"
    assert [stream for _, _, stream in said] == ["broker-e1000", "broker-e1001", "broker-e1002", "broker-e2000"]
    for stream in Journal.read(tmp_path).streams.values():
        assert replay(stream).difference is None


def test_a_run_that_goes_on_at_the_same_broker_raises_nothing(clock, tmp_path):
    """Its own streams are no reason."""

    async def go():
        broker = BrokerPlugin()
        await broker.start(SimpleNamespace(handlers={}))
        for _ in range(2):
            await broker.runs.run_create("r", {"out": str(tmp_path), "tasks": [{"name": "a"}]})
            await broker.runs.run_control("r", "stop")
            while broker.host._tasks:
                await asyncio.gather(*broker.host._tasks)
        await broker.close()
        return broker.pool.epoch

    assert asyncio.run(go()) == 1_000
    assert sorted(path.stem for path in (tmp_path / "journal").iterdir()) == ["broker-e1000", "broker-e1000-2"]


def test_a_task_that_is_started_again_looks_at_the_journal_anew(clock, tmp_path):
    """Another cluster has gone on with the run in the meantime."""

    async def go():
        broker = BrokerPlugin()
        await broker.start(SimpleNamespace(handlers={}))
        await broker.runs.run_create("r", {"out": str(tmp_path), "tasks": [{"name": "a"}]})
        await broker.runs.run_control("r", "stop")
        (tmp_path / "journal").mkdir(exist_ok=True)
        (tmp_path / "journal" / "broker-e5000.jsonl").touch()
        reply = await broker.runs.run_restart("r", "a")
        stream = broker.runs.live["r"].streams["pool"][0]
        while broker.host._tasks:
            await asyncio.gather(*broker.host._tasks)
        await broker.close()
        return reply["attempt"], stream

    assert asyncio.run(go()) == (1, "broker-e5001")


def test_only_streams_of_the_pool_tell_an_epoch(tmp_path):
    """What else lies there tells none."""
    assert journalled_epoch(journalled(tmp_path)) == 0
    (tmp_path / "journal").mkdir()
    for name in ("broker-e7", "broker-e12-2", "broker-e3", "broker-exx", "task-broker-e99-a1"):
        (tmp_path / "journal" / f"{name}.jsonl").touch()
    assert journalled_epoch(journalled(tmp_path)) == 12
