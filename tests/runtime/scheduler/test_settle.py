"""A task that its journal calls failed may be restarted at once: the broker waits for the master's own word."""

import asyncio

from drlnb.runtime.scheduler import runs


def test_the_end_that_is_on_its_way_is_waited_for():
    """The row says running; before the wait is over the master says failed."""
    row = {"state": "running"}

    async def scene():
        asyncio.get_running_loop().call_soon(row.update, {"state": "failed"})
        await asyncio.wait_for(runs._settle(row), 1.0)

    asyncio.run(scene())
    assert row["state"] == "failed"


def test_a_task_that_really_runs_is_not_waited_for_for_ever(monkeypatch):
    """After the patience the state is what it was, and the wish is refused by the caller."""
    monkeypatch.setattr(runs, "_SETTLE_S", 0.0)
    row = {"state": "running"}
    asyncio.run(asyncio.wait_for(runs._settle(row), 1.0))
    assert row["state"] == "running"
