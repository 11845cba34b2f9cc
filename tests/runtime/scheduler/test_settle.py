"""A task that its journal calls failed may be restarted at once: the broker waits for the master's own word."""

import asyncio

from drlnb.runtime.scheduler.run import becomes


def test_the_end_that_is_on_its_way_is_waited_for():
    """The row says running; before the wait is over the master says failed."""
    row = {"state": "running"}

    async def scene():
        asyncio.get_running_loop().call_soon(row.update, {"state": "failed"})
        return await asyncio.wait_for(becomes(lambda: row["state"] == "failed", 3.0), 1.0)

    assert asyncio.run(scene()) is True


def test_a_task_that_really_runs_is_not_waited_for_for_ever():
    """After the patience it is not so, and the wish is refused by the caller."""
    assert asyncio.run(asyncio.wait_for(becomes(lambda: False, 0.0), 1.0)) is False
