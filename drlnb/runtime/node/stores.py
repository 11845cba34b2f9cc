"""Keep a node's host stores: forward a chunk of parameters that arrives, then write it."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from drlnb.planning.distribution import Chunk, RelayAssembly
from drlnb.runtime.ipc.routes import route_results
from drlnb.runtime.ipc.shared_memory import HostStore
from drlnb.runtime.link import Link
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["Stores"]


@dataclass(slots=True, kw_only=True)
class _Kept:
    """One task's parameters on this node."""

    assembly: RelayAssembly = field(default_factory=RelayAssembly)
    store: HostStore | None = None
    #: Bytes of the version that is arriving.
    arriving: bytearray = field(default_factory=bytearray)


class Stores:
    """The host stores of one node, for which `link` speaks, by (run, task)."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._kept: dict[tuple[str, str], _Kept] = {}
        #: Task -> its newest attempt that is over here: what arrives late of it is not kept.
        self._over: dict[tuple[str, str], int] = {}

    def path(self, run: str, task: str) -> str:
        """Return where readers find a task's store, empty if there is none yet."""
        kept = self._kept.get((run, task))
        return kept.store.path if kept is not None and kept.store is not None else ""

    async def chunk(
        self, task: tuple[str, str], chunk: Plain, addresses: Mapping[str, str], payload: Payload = b""
    ) -> Plain:
        """Forward a range at once, then keep it; a whole version becomes the current one of this host.

        Parameters
        ----------
        task
            (run, task) that the parameters are of.
        chunk
            Fields of :class:`~drlnb.planning.distribution.Chunk`.
        addresses
            Host -> where its agent is reached.
        payload
            The bytes of the range.

        Returns
        -------
        dict
            ``whole``, ``own_s`` and ``all_s`` (seconds from the range's arrival until this host had kept it, and until
            all hosts below had answered) and ``below``, the results of those.

        Raises
        ------
        ConnectionError
            If the range is refused.
        """
        arrived, part = time.perf_counter(), Chunk(**chunk)
        if part.attempt <= self._over.get(task, 0):
            raise ConnectionError(f"attempt {part.attempt} of {task[0]}/{task[1]} is over")
        kept = self._kept.setdefault(task, _Kept())
        taken = kept.assembly.take(part)
        if taken.refused:
            raise ConnectionError(taken.refused)
        view = memoryview(payload).cast("B")
        if view.nbytes != part.stop - part.start:
            raise ConnectionError(f"{view.nbytes} bytes for range [{part.start}, {part.stop})")
        message: Plain = {"task": task, "addresses": addresses, "payload": view}
        forwards = [
            asyncio.ensure_future(self._forward(host, below, message | {"chunk": chunk | {"children": below}}))
            for host, below in taken.forward
        ]
        await asyncio.sleep(0)  # they are on their way before this host's memory is waited for
        if taken.new:
            self._write(kept, part, view, whole=taken.whole)
        whole, own_s = kept.assembly.whole, time.perf_counter() - arrived
        below = [row for rows in await asyncio.gather(*forwards) for row in rows]
        return {"whole": whole, "own_s": own_s, "all_s": time.perf_counter() - arrived, "below": below}

    async def _forward(self, host: str, below: tuple[object, ...], message: Plain) -> list[Plain]:
        """Send a range to the next host of its route; return the results of that host and of those below it."""
        sent = time.perf_counter()
        reply = await self._link.call(message["addresses"].get(host, ""), "drlnb_chunk", **message)
        return list(route_results(host, below, reply, time.perf_counter() - sent))

    def _write(self, kept: _Kept, part: Chunk, view: memoryview, *, whole: bool) -> None:
        if kept.store is not None and kept.store.n_bytes != part.total:
            kept.store.close()
            kept.store = None
        if kept.store is None:
            kept.store = HostStore(part.total, self._link.directory)
        if whole and view.nbytes == part.total:
            kept.store.write(part.version, view)
            return
        if len(kept.arriving) != part.total:
            kept.arriving = bytearray(part.total)
        kept.arriving[part.start : part.stop] = view
        if whole:
            kept.store.write(part.version, kept.arriving)

    def drop(self, run: str, task: str, attempt: int | None = None) -> None:
        """Forget a task, unless a later attempt than `attempt` has written here."""
        if attempt is not None:
            self._over[run, task] = max(attempt, self._over.get((run, task), 0))
        kept = self._kept.get((run, task))
        if kept is None or (attempt is not None and kept.assembly.newest[0] > attempt):
            return
        del self._kept[run, task]
        if kept.store is not None:
            kept.store.close()

    def close(self) -> None:
        """Forget every task."""
        for run, task in list(self._kept):
            self.drop(run, task)
