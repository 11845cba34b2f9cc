"""Host the masters of the tasks whose anchors run on a node, and pass on what concerns them."""

import itertools
import uuid
from collections.abc import Callable
from typing import Any

from drlnb.runtime.distribution.sender import Sender
from drlnb.runtime.link import Link
from drlnb.runtime.master.checkpoint_effects import AGAIN
from drlnb.runtime.master.master import Master
from drlnb.runtime.protocol import Handler, Key, Plain

__all__ = ["Masters"]


class Masters:
    """The masters of one node, for which `link` speaks; `senders` are those that hear what came of versions."""

    def __init__(self, link: Link, senders: dict[tuple[str, str], Sender]) -> None:
        self._link, self._senders = link, senders
        self.live: dict[tuple[str, str], Master] = {}
        #: (run, task) -> a user's wishes since its master here began to register itself.
        self._attaching: dict[tuple[str, str], list[Plain]] = {}
        self.yield_asked = self._each(Master.yield_asked)
        self.lease_lost = self._each(lambda master, **lease: master.leases.lost(**lease))
        self.node_lost = self._each(Master.node_lost)

    async def close(self) -> None:
        """End every master without a report to the broker."""
        for master in list(self.live.values()):
            await master.abort("the worker is closing")

    async def run(self, run: str, task: str) -> str:
        """Host one task's master until the task ends; the anchor waits for it."""
        for n_replay_losses in itertools.count():
            # The broker tells this node of wishes once it has answered, and they may overtake its answer.
            wishes = self._attaching[run, task] = []
            try:
                # The same request again is the same attempt.
                request = {"run": run, "task": task, "node": self._link.node, "request": uuid.uuid4().hex}
                attached = await self._link.insist("drlnb_task_attach", **request)
                if "error" in attached:
                    return str(attached["message"])
                former = self.live.get((run, task))
                if former is not None:
                    await former.abort("another attempt has begun")
                master = Master(self._link, run, task, attached, n_replay_losses)
                self.live[run, task], self._senders[run, task] = master, master.sender
            finally:
                self._attaching.pop((run, task), None)
            if attached["wanted"]:
                wishes.insert(0, {"action": attached["wanted"]})
            try:
                ended = await master.run_to_end(wishes)
            finally:
                master.sender.close()
                if self.live.get((run, task)) is master:
                    del self.live[run, task], self._senders[run, task]
            if ended != AGAIN:
                break
        return ended

    async def control(self, run: str, task: str, **wish: Any) -> Plain:
        """Pass a user's wish on to the master here, or to the one that registers itself."""
        if (run, task) in self._attaching:
            self._attaching[run, task].append(wish)
        master = self.live.get((run, task))
        problem = await master.control(**wish) if master is not None else ""
        return {"refused": problem} if problem else {"ok": True}

    async def collector_lost(self, key: Key, attempt: int, number: int, **loss: Any) -> None:
        """Report to the master here that a collector is gone."""
        master = self.live.get(key[:2])
        if master is not None and master.attempt == attempt:
            master.collector_lost(collector=key[2], number=number, **loss)

    def _each(self, handle: Callable[..., None]) -> Handler:
        """Return what passes a message on to every master here: each knows whether it is concerned."""

        async def pass_on(**message: object) -> None:
            for master in self.live.values():
                handle(master, **message)

        return pass_on
