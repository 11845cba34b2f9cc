"""Send the rows of a master's journal to the broker, page by page."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from drlnb.records import round as words
from drlnb.records.base import Record
from drlnb.runtime.link import Link
from drlnb.runtime.machine_host import JournalWriter
from drlnb.runtime.protocol import Plain

__all__ = ["RowFeed"]

#: Time between two messages of journal rows to the broker, in seconds (at most 10 messages per second and task).
_FLUSH_S = 0.1
#: Rows per message.
_PAGE = 2000


class RowFeed:
    """The rows of one attempt that the broker has not got yet.

    Parameters
    ----------
    link
        Speaks for the node.
    ids
        Run, task and attempt.
    stream
        Name of its journal.
    superseded
        Called when the broker answers that a later attempt has begun.
    """

    def __init__(self, link: Link, ids: Plain, stream: str, superseded: Callable[[], Awaitable[None]]) -> None:
        self._link, self._ids, self._stream, self._superseded = link, ids, stream, superseded
        #: What writes the journal; None before there is one.
        self.writer: JournalWriter | None = None
        #: Environment steps that the journal has counted.
        self._n_timesteps = 0
        self.waiting: list[Plain] = []

    def add(self, record: Record) -> None:
        """Add a record of the journal."""
        if isinstance(record, words.TaskOpened | words.MetricsRecorded):
            self._n_timesteps = record.n_timesteps
        self.waiting.append({"s": self._stream, **record.to_row()})

    def add_note(self, kind: str, text: str) -> None:
        """Add a note that no journal holds; harmless from another thread, for list.append is atomic."""
        self.waiting.append({"s": self._stream, "k": "n", "r": kind, "text": text})

    async def flush_forever(self) -> None:
        """Send what has come, again and again."""
        while True:
            await asyncio.sleep(_FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Send all that waits; what the broker did not get waits on."""
        while self.waiting:
            page, self.waiting = self.waiting[:_PAGE], self.waiting[_PAGE:]
            try:
                await self._send(page)
            except (OSError, TimeoutError):
                self.waiting = page + self.waiting
                return

    async def _send(self, page: list[Plain]) -> bool:
        """Send rows to the broker; true if a later attempt has begun: then this one ends without a word."""
        known = {"n_timesteps": self._n_timesteps, "n_bytes": self.writer.n_bytes if self.writer else 0}
        reply = await self._link.ask_broker("drlnb_task_rows", **self._ids, rows=page, **known)
        is_superseded = bool(reply.get("stale"))
        if is_superseded:
            await self._superseded()
        return is_superseded

    async def is_superseded(self) -> bool:
        """Ask the broker whether a later attempt has begun; not if it does not answer."""
        with contextlib.suppress(OSError, TimeoutError):
            return await self._send([])
        return False
