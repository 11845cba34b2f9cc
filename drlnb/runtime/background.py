"""Run coroutines in the background of an event loop until they are done, or their owner ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Background"]

_T = TypeVar("_T")

#: Time after which what has not ended is cancelled once more, in seconds.
_AGAIN_S = 1.0


class Background(set[asyncio.Task[Any]]):
    """Tasks of one owner that are not done: the event loop itself would not keep them alive."""

    def keep(self, coroutine: Coroutine[object, object, _T]) -> "asyncio.Task[_T]":
        """Run something until it is done or the owner ends."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    def go_on(self, coroutine: Coroutine[object, object, _T]) -> "asyncio.Task[_T]":
        """Run something that goes on when whoever waits for it has gone; then nobody is told that it failed."""
        task = self.keep(coroutine)
        task.add_done_callback(_retrieve)
        return task

    async def cancel(self) -> None:
        """End what runs, but for the task that asks; again where that is lost, as in ``wait_for`` of Python 3.11."""
        while others := self - {asyncio.current_task()}:
            for task in others:
                task.add_done_callback(_retrieve)
                task.cancel()
            await asyncio.wait(others, timeout=_AGAIN_S)


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Retrieve an error that nobody may be waiting for (any more), or asyncio complains that nobody has."""
    if not future.cancelled():
        future.exception()
