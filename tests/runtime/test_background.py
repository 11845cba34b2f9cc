"""What runs in the background ends with its owner, whatever becomes of its cancellation."""

import asyncio

from drlnb.runtime import background
from drlnb.runtime.background import Background


def test_a_cancellation_that_is_lost_is_said_again(monkeypatch):
    """As in `wait_for` of Python 3.11 where an answer comes in the same moment; who asks for the end goes on."""
    monkeypatch.setattr(background, "_AGAIN_S", 0.01)
    n_lost = []

    async def forever():
        while True:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                n_lost.append(1)
                if len(n_lost) == 3:
                    raise

    async def fails():
        raise ZeroDivisionError

    async def scene():
        tasks = Background()
        task = tasks.keep(forever())
        tasks.keep(fails())
        await asyncio.sleep(0)

        async def owner():
            await tasks.cancel()
            return task.cancelled(), len(tasks)

        return await asyncio.wait_for(tasks.keep(owner()), 5.0)

    assert asyncio.run(scene()) == (True, 1)
    assert len(n_lost) == 3
