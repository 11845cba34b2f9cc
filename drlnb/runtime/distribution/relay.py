"""Relay versions of parameters at one host: forward a range that arrives at once, then keep it."""

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from drlnb.planning.distribution import Chunk, RelayAssembly, cut
from drlnb.planning.distribution.changes import kept_ranges
from drlnb.runtime.distribution.outbox import Outbox, next_ways
from drlnb.runtime.distribution.probe import rate
from drlnb.runtime.distribution.sender import REPORTS, Sender, send_along
from drlnb.runtime.ipc.host_store import HostStore
from drlnb.runtime.link import TOPIC, Link
from drlnb.runtime.protocol import Handler, Payload, Plain, table

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["HostRelay"]

#: Pause between two looks for a slot of a host store that is held by readers in all its parts, in seconds.
_LOOK_S = 0.005
#: How often a report is sent that does not arrive, and the pause between, in seconds.
_TRIES, _AGAIN_S = 5, 0.2
#: What is kept of a former version is copied in pieces of so many bytes; messages are answered in between.
_PIECE_BYTES = 4 << 20

#: The relay of each worker of this process: one, whoever publishes.
_RELAYS: "WeakKeyDictionary[Worker, HostRelay]" = WeakKeyDictionary()


@dataclass(slots=True, kw_only=True)
class _Kept:
    """One task's parameters on this host."""

    assembly: RelayAssembly = field(default_factory=RelayAssembly)
    store: HostStore | None = None
    #: Since when the newest version has been arriving.
    since: float = 0.0
    #: What this host sends, and of which (attempt, version).
    outbox: Outbox | None = None
    sends: tuple[int, int] = (0, 0)
    #: Attempts that have written here, each once: a publisher's number is the time, too long for a store's word.
    attempts: list[int] = field(default_factory=list)
    #: (attempt, version) that readers find.
    current: tuple[int, int] = (0, 0)
    #: (attempt, version) of which a part is kept from the one before, and the CRC-32 of the whole.
    keeps: tuple[int, int] = (0, 0)
    crc: int = 0


class HostRelay:
    """The host stores of one node, for which `link` speaks, by (run, task); and who sends versions from here."""

    #: Makes what speaks for a node.  To try out another network, put another one here in each process.
    speaker: ClassVar[Callable[..., Link]] = Link

    def __init__(self, link: Link) -> None:
        self.link = link
        #: Plugins that have asked for it.
        self._n_users = 0
        self._kept: dict[tuple[str, str], _Kept] = {}
        #: Task -> its newest attempt that is over here: what arrives late of it is not kept.
        self._over: dict[tuple[str, str], int] = {}
        #: Number of a publisher -> who that is.
        self.publishers: dict[int, str] = {}
        #: (run, task) -> who sends its versions from here, and hears what came of them.
        self.senders: dict[tuple[str, str], Sender] = {}

    @classmethod
    def of(cls, worker: "Worker") -> "HostRelay":
        """Return a worker's relay, which serves until everybody who has asked for it has left it."""
        if worker not in _RELAYS:
            _RELAYS[worker] = relay = cls(cls.speaker(worker))
            relay.link.serve(relay.handlers())
        _RELAYS[worker]._n_users += 1
        return _RELAYS[worker]

    def handlers(self) -> dict[str, Handler]:
        """Return what answers messages here."""
        reports = {f"drlnb_{what}": partial(self._report, what) for what in REPORTS}
        return table(self, "chunk", "missing", "forward", "gone", "probe", "probe_rate") | reports

    @staticmethod
    def find_path(worker: "Worker", run: str, task: str) -> str:
        """Return where readers find a task's store at a worker, empty if there is none (yet)."""
        return _RELAYS[worker].path(run, task) if worker in _RELAYS else ""

    async def leave(self) -> None:
        """Use it no longer."""
        self._n_users -= 1
        if not self._n_users:
            await self.link.close()
            self.close()
            for worker in [worker for worker, relay in _RELAYS.items() if relay is self]:
                del _RELAYS[worker]

    def path(self, run: str, task: str) -> str:
        """Return where readers find a task's store, empty if there is none yet."""
        kept = self._kept.get((run, task))
        return kept.store.path if kept is not None and kept.store is not None else ""

    async def chunk(
        self,
        task: tuple[str, str],
        chunk: Plain,
        hosts: bytes,
        edges: bytes,
        report: str,
        left_s: float,
        n_in_flight: int,
        payload: Payload = b"",
        confirm_s: float = 0.0,
        keeps: Plain | None = None,
    ) -> None:
        """Forward a range at once, then keep it; a whole version becomes the current one of this host.

        Parameters
        ----------
        task, report
            (run, task) that the parameters are of, and address of the agent that hears what came of it.
        chunk
            Fields of :class:`~drlnb.planning.distribution.Chunk`.
        hosts, edges
            As of :class:`~drlnb.runtime.distribution.outbox.Way`.
        left_s
            Seconds until nobody waits for the version any more.
        n_in_flight
            Messages that this host may have sent without an answer.
        payload
            The bytes of the range.
        confirm_s, keeps
            Seconds for which readers are watched once they find the version here, 0: they are not; and what is kept of
            a version that is here: all but the ranges ``changed`` of ``base``, so that ``crc`` is the whole's CRC-32.

        Raises
        ------
        ConnectionError
            If the range is refused.
        """
        task, now = (task[0], task[1]), asyncio.get_running_loop().time()
        fields: Plain = {"task": task, "chunk": chunk, "report": report, "confirm_s": confirm_s, "keeps": keeps}
        self._refuse_former(task, chunk["attempt"], fields)
        onward = next_ways(hosts, edges)
        part = Chunk(**chunk, children=tuple(range(len(onward))))
        view = memoryview(payload).cast("B")
        if view.nbytes != part.stop - part.start:
            raise ConnectionError(f"{view.nbytes} bytes for range [{part.start}, {part.stop})")
        kept = self._kept.setdefault(task, _Kept())
        taken = kept.assembly.take(part)
        if taken.refused:
            raise ConnectionError(taken.refused)
        outbox = self._outbox(kept, fields, n_in_flight, now + left_s)
        for child in taken.forward:
            outbox.put(onward[child], fields, view)
        if taken.new:
            await asyncio.sleep(0)  # they are on their way before this host's memory is waited for
            self._keep(kept, part, view, fields, whole=taken.whole)

    def _refuse_former(self, task: tuple[str, str], attempt: int, fields: Plain) -> None:
        """Refuse an attempt that is over; a publisher that others have followed hears who has its name now.

        Raises
        ------
        ConnectionError
            If it is over.
        """
        kept, over = self._kept.get(task), self._over.get(task, 0)
        newest = max(over, kept.assembly.newest[0] if kept is not None else 0)
        if newest > attempt and fields["report"].startswith(TOPIC):
            self._tell(fields, "taken", {"by": self.publishers.get(newest, "another publisher")})
        if newest > attempt or over == attempt:
            raise ConnectionError(f"attempt {attempt} of {task[0]}/{task[1]} is over")

    async def _carry_over(self, kept: _Kept, part: Chunk, fields: Plain) -> None:
        """Copy the ranges that do not travel from the version that is here, as if they arrived; or say that it is not.

        It stays the current one, whose slot nobody writes into, until a newer version is whole.
        """
        store, base = kept.store, (kept.attempts.index(part.attempt) + 1, fields["keeps"]["base"])
        ranges = kept_ranges(tuple([(start, stop) for start, stop in fields["keeps"]["changed"]]), part.total)
        if store is None or store.current != base:
            self._tell(fields, "lacks", {"version": part.version, "host": self.link.node, "missing": ranges})
            return
        held = store.shown.data
        for start, stop in ranges:
            for low, high in cut(stop - start, -(-(stop - start) // _PIECE_BYTES)):
                piece = replace(part, start=start + low, stop=start + high, children=())
                if kept.assembly.newest != kept.keeps or kept.store is not store or store.current != base:
                    return  # a newer version has come, or this one is here by another way
                taken = kept.assembly.take(piece)
                await asyncio.sleep(0)  # what has been taken before is written by then
                if taken.new:
                    self._keep(kept, piece, held[piece.start : piece.stop], fields, whole=taken.whole)

    def _keep(self, kept: _Kept, part: Chunk, view: memoryview, fields: Plain, *, whole: bool) -> None:
        """Keep a range, unless a newer version has begun or the task is over."""
        newest = kept.assembly.newest
        if newest != (part.attempt, part.version):
            return
        store = self._write(kept, part, view)
        if fields["keeps"] and kept.keeps != newest:
            kept.keeps, kept.crc = newest, fields["keeps"]["crc"]
            self.link.keep(self._carry_over(kept, part, fields))
        if whole and kept.keeps == newest and zlib.crc32(store.newest.data) != kept.crc:
            kept.assembly.forget()
            all_of_it = ((0, part.total),)
            self._tell(fields, "lacks", {"version": part.version, "host": self.link.node, "missing": all_of_it})
        elif whole and store.commit():
            self._arrived(kept, store, part, fields)
        elif whole:
            self.link.keep(self._settle(kept, store, part, fields))

    def _outbox(self, kept: _Kept, fields: Plain, n_in_flight: int, until: float) -> Outbox:
        """Return what sends the version from here; of a former one nothing is sent any more."""
        if kept.outbox is None or kept.sends != kept.assembly.newest:
            if kept.outbox is not None:
                kept.outbox.clear()
            lost = partial(self._tell, fields, "lost")
            kept.since, kept.sends = asyncio.get_running_loop().time(), kept.assembly.newest
            kept.outbox = Outbox(self.link, n_in_flight, until, self.link.node, lost)
        kept.outbox.until = max(kept.outbox.until, until)
        return kept.outbox

    def _tell(self, fields: Plain, op: str, message: Plain) -> None:
        """Report to whoever publishes."""
        run, task = fields["task"]
        whose: Plain = {"run": run, "task": task, "attempt": fields["chunk"]["attempt"]}
        self.link.keep(self._insist(fields["report"], f"drlnb_{op}", whose | message))

    async def _insist(self, address: str, op: str, message: Plain) -> None:
        """Send a report a few times; if whoever publishes is gone, nobody waits for it."""
        for _ in range(_TRIES):
            if not (await self.link.call(address, op, **message)).get("refused"):
                return
            await asyncio.sleep(_AGAIN_S)

    async def _settle(self, kept: _Kept, store: HostStore, part: Chunk, fields: Plain) -> None:
        """Look now and then for a slot: until there is one, a newer version begins, or the task is over."""
        while kept.store is store and kept.assembly.newest == (part.attempt, part.version):
            if store.settle():
                self._arrived(kept, store, part, fields)
                return
            await asyncio.sleep(_LOOK_S)

    def _arrived(self, kept: _Kept, store: HostStore, part: Chunk, fields: Plain) -> None:
        """Report that readers here find a version, and later that they have applied it if that is asked for."""
        kept.current, arrival_s = (part.attempt, part.version), asyncio.get_running_loop().time() - kept.since
        message = {"version": part.version, "host": self.link.node, "arrival_s": arrival_s}
        self._tell(fields, "arrived", message | {"pause_s": store.paused_s()})
        if fields["confirm_s"]:
            self.link.keep(self._watch(kept, store, part, fields))

    async def _watch(self, kept: _Kept, store: HostStore, part: Chunk, fields: Plain) -> None:
        """Look now and then what readers have applied; report once all have a version or a newer one, or are late."""
        loop, key = asyncio.get_running_loop(), (kept.attempts.index(part.attempt) + 1, part.version)
        since = loop.time()
        while kept.store is store and (store.applied() or key) < key and loop.time() - since < fields["confirm_s"]:
            await asyncio.sleep(_LOOK_S)
        if kept.store is store:
            n_actors, n_late, pause_s = store.readers(*key)
            message = {"version": part.version, "host": self.link.node, "n_actors": n_actors, "n_late": n_late}
            self._tell(fields, "applied", message | {"applied_s": loop.time() - since, "pause_s": pause_s})

    def _write(self, kept: _Kept, part: Chunk, view: memoryview) -> HostStore:
        """Write a range into the slot of its version."""
        try:
            if kept.store is not None and kept.store.n_bytes != part.total:
                kept.store.close()
                kept.store = None
            if kept.store is None:
                kept.store = HostStore(part.total)
        except OSError:
            kept.assembly = RelayAssembly()  # there is no room: nothing of it is here
            raise
        if part.attempt not in kept.attempts:
            kept.attempts.append(part.attempt)
        nth = kept.attempts.index(part.attempt) + 1
        kept.store.begin(part.version, attempt=nth)[part.start : part.stop] = view
        return kept.store

    # ------------------------------------------------------------------ for whoever publishes
    async def _report(self, what: str, run: str, task: str, attempt: int, **message: Any) -> None:
        """Pass on what a host says of a version."""
        sender = self.senders.get((run, task))
        if sender is not None and sender.attempt == attempt:
            sender.heard(what, message)

    async def gone(self, run: str, task: str, attempt: int, address: str) -> None:
        """Send nothing of an attempt to an agent that is gone, and wait for nothing that is on its way there."""
        kept = self._kept.get((run, task))
        if kept is not None and kept.outbox is not None and kept.sends[0] == attempt:
            kept.outbox.forget(address)

    async def missing(self, run: str, task: str, attempt: int, version: int, total: int) -> Plain:
        """Return the ranges of a version that this host does not have, and whether readers here find it.

        Raises
        ------
        ConnectionError
            If somebody has published later.
        """
        kept = self._kept.get((run, task))
        if attempt < max(self._over.get((run, task), 0), kept.assembly.newest[0] if kept is not None else 0):
            raise ConnectionError(f"attempt {attempt} of {run}/{task} is over")
        if kept is None or kept.assembly.newest[0] != attempt:
            return {"missing": [(0, total)], "current": False}
        return {"missing": kept.assembly.missing(version, total), "current": kept.current == (attempt, version)}

    async def forward(
        self,
        task: tuple[str, str],
        chunk: Plain,
        report: str,
        confirm_s: float,
        keeps: Plain,
        **where: Any,
    ) -> None:
        """Send ranges of a version that this host holds, in the learner's place.

        Raises
        ------
        ConnectionError
            If it does not hold it (any more).
        """
        await asyncio.sleep(0)  # what has been taken is written by then
        kept, newest = self._kept.get((task[0], task[1])), (chunk["attempt"], chunk["version"])
        ranges = [(start, stop) for start, stop, _ in where["sends"]]
        if kept is None or kept.assembly.newest != newest or not kept.assembly.holds(ranges):
            raise ConnectionError(f"{self.link.node} does not hold version {newest[1]} of {task[0]}/{task[1]}")
        fields: Plain = {"task": (task[0], task[1]), "chunk": chunk, "report": report}
        fields["confirm_s"], fields["keeps"] = confirm_s, keeps
        assert kept.outbox is not None
        assert kept.store is not None
        send_along(kept.outbox, fields, kept.store.newest.tobytes(), **where)

    # ------------------------------------------------------------------ the network
    async def probe(self, payload: Payload = b"") -> None:
        """Answer at once, whatever the bytes."""

    async def probe_rate(self, address: str) -> Plain:
        """Return how many bytes per second go from here to another host.

        Raises
        ------
        ConnectionError
            If it does not answer.
        """
        return {"bytes_per_s": await rate(self.link, [address])}

    # ------------------------------------------------------------------ the end
    def drop(self, run: str, task: str, attempt: int | None = None) -> None:
        """Forget a task, unless a later attempt than `attempt` has written here."""
        if attempt is not None:
            self._over[run, task] = max(attempt, self._over.get((run, task), 0))
        kept = self._kept.get((run, task))
        if kept is None or (attempt is not None and kept.assembly.newest[0] > attempt):
            return
        del self._kept[run, task]
        kept.assembly = RelayAssembly()  # a range that was taken and is not written yet
        if kept.store is not None:
            kept.store.close()
            kept.store = None

    def close(self) -> None:
        """Forget every task."""
        for run, task in list(self._kept):
            self.drop(run, task)
