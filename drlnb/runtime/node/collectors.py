"""Answer messages about the collectors of a node."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drlnb.runtime.link import Link
from drlnb.runtime.node.collector_host import PROBE, CollectorHost, DiedError, LiveCollector
from drlnb.runtime.protocol import Key, Payload, Plain, refused

__all__ = ["Collectors"]

#: Pauses before the loss of a collector is reported again to a master that did not answer, in seconds.
_AGAIN_S = (0.5, 2.0, 5.0)


class Collectors:
    """The collectors of one node, as masters and the broker see them.

    Parameters
    ----------
    link
        Speaks for the node.
    processes
        The node's collector processes; the loss of one is reported from here.
    store_path
        ``(run, task)`` -> where readers find the task's host store, empty if there is none yet.
    """

    def __init__(self, link: Link, processes: CollectorHost, store_path: Callable[[str, str], str]) -> None:
        self._link, self.processes, self._store_path = link, processes, store_path
        processes.on_lost = lambda *loss: link.keep(self.report_loss(*loss))
        #: Number of the broker's latest message on CPU slots.
        self._newest_share = 0

    async def start(self, key: Key, **how: Any) -> Plain:
        """Start a collector here, as :meth:`CollectorHost.start` does; where it died is told if it did."""
        try:
            return await self.processes.start(key, **how)
        except DiedError as error:
            return {"refused": str(error), "where": error.where}

    async def ask(
        self, key: Key, header: Plain, quiet_s: float | None = None, payloads: Sequence[Payload] = ()
    ) -> Plain:
        """Send a frame to a collector here, and return its answer (its loss is reported on its own)."""
        header = {**header, "store": self._store_path(*key[:2])}
        answer, made = await self.processes.ask(key, header, *payloads, quiet_s=quiet_s)
        return {**answer, "payload": made}

    async def cpu_slots(self, n_slots: int, number: int) -> None:
        """Lend so many CPU slots from now on; `number` tells a message that was overtaken by a later one."""
        if number > self._newest_share:
            self._newest_share = number
            self.processes.cpu.resize(n_slots)

    # ------------------------------------------------------------------ losses
    async def report_loss(self, live: LiveCollector, reason: str, detail: str) -> None:
        """Report a collector's loss to the master that started it; again for a while if it does not answer."""
        loss: Plain = {"key": live.key, "attempt": live.attempt, "number": live.number, "node": self._link.node}
        loss |= {"reason": reason, "detail": detail, "where": live.where}
        for pause_s in (0.0, *_AGAIN_S):
            await asyncio.sleep(pause_s)
            master = live.master or self._link.address
            if "refused" not in await self._link.call(master, "drlnb_collector_lost", **loss):
                return

    # ------------------------------------------------------------------ probes
    async def probe_env(self, env: str | Mapping[str, str], env_timeout_s: float | None) -> Plain:
        """Build an environment once, in a child, describe its spaces, and try whether it can be frozen and thawed."""
        name = env if isinstance(env, str) else env["env"]
        key = (PROBE, uuid.uuid4().hex, 0)
        live: LiveCollector | None = None
        log = self._link.directory / f"probe-{key[1][:8]}.log"
        try:
            live = await self.processes.launch_probe(key, name, log)
            answer, _ = await self.processes.ask(key, {"op": "probe", "env": env}, quiet_s=env_timeout_s)
            if answer["op"] == "error":
                kind = answer["kind"] if answer["kind"] == "UnsupportedSpace" else "EnvError"
                message = answer["message"]
                return refused(kind, message if name in message else f"{name}: {message}", detail=answer["detail"])
            return {"spaces": {**answer["spaces"], "can_snapshot": await self._can_snapshot(key, env, env_timeout_s)}}
        except ConnectionError as error:
            why = (live is not None and live.message) or f"{name}: the process that built it ended ({error})"
            return refused("EnvError", why)
        finally:
            await self.processes.stop(key)
            log.unlink(missing_ok=True)

    async def _can_snapshot(self, key: Key, env: str | Mapping[str, str], env_timeout_s: float | None) -> bool:
        """Ask on; an environment whose process this kills cannot be frozen, and can be trained nevertheless."""
        try:
            answer, _ = await self.processes.ask(key, {"op": "probe-snapshot", "env": env}, quiet_s=env_timeout_s)
        except ConnectionError:
            return False
        return bool(answer.get("can_snapshot", False))
