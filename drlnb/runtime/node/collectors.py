"""Answer messages about the collectors of a node, and the CPU slots that they share."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Unpack

from drlnb.runtime.node.collector_host import PROBE, CollectorHost, HowToStart, LiveCollector
from drlnb.runtime.node.link import Link
from drlnb.runtime.protocol import Handler, Key, Payload, Plain, refused

__all__ = ["Collectors"]

#: Pauses before the loss of a collector is reported again to a master that did not answer, in seconds.
_AGAIN_S = (0.5, 2.0, 5.0)
#: Longest time that an environment may take until it is built, and until it was frozen and thawed, in seconds.
_BUILD_S, _FREEZE_S = 30.0, 10.0


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

    def handlers(self) -> dict[str, Handler]:
        """Return the messages that are answered here."""
        return {
            "drlnb_probe_env": self.probe_env,
            "drlnb_collector_start": self.start,
            "drlnb_collector_stop": self.stop,
            "drlnb_collector_ask": self.ask,
            "drlnb_collector_queue": self.queue,
            "drlnb_collector_unqueue": self.unqueue,
            "drlnb_cpu_slots": self.cpu_slots,
        }

    async def start(
        self,
        run: str,
        task: str,
        attempt: int,
        collector: int,
        spec: Mapping[str, object],
        env_indices: list[int],
        out: str,
        payload: Payload = b"",
        **how: Unpack[HowToStart],
    ) -> Plain:
        """Start a collector here, as :meth:`CollectorHost.start` does; ``failed`` says why not."""
        await self.processes.stop_task(run, task, below_attempt=attempt)
        log = Path(out) / "logs" / self._link.node / f"{task}-{collector}.log"
        configuration = {"spec": spec, "collector": collector, "env_indices": list(env_indices)}
        key = (run, task, collector)
        try:
            return await self.processes.start(
                key, attempt=attempt, configuration=configuration, state=bytes(payload), log=log, **how
            )
        except (ConnectionError, RuntimeError, OSError) as error:
            return {"failed": str(error)}

    async def stop(self, run: str, task: str, attempt: int, collector: int, quiet_s: float | None = None) -> Plain:
        """End a collector here and keep its environments' states for the next one."""
        await self.processes.rest((run, task, collector), attempt, quiet_s=quiet_s)
        return {"ok": True}

    async def ask(
        self, run: str, task: str, collector: int, header: Mapping[str, object], quiet_s: float | None = None
    ) -> Plain:
        """Send a frame to a collector here; ``gone`` if it is lost (its loss is reported on its own)."""
        header = {**header, "store": self._store_path(run, task)}
        try:
            answer, made = await self.processes.ask((run, task, collector), header, quiet_s=quiet_s)
        except ConnectionError as error:
            return {"op": "gone", "reason": str(error)}
        return {**answer, "payload": made}

    # ------------------------------------------------------------------ CPU slots
    async def queue(self, run: str, task: str, attempt: int, collector: int, round: int) -> Plain:
        """Lend a parked collector a CPU slot ahead of its parameters; ``failed`` if nobody needs it any more."""
        live = self.processes.live.get((run, task, collector))
        if live is None or live.attempt != attempt:
            return {"failed": "it is not up"}
        cpu = self.processes.cpu
        try:
            return {"queued_s": await cpu.ahead(live.key, attempt, round), "n_starting": cpu.slots.n_waiting + 1}
        except ConnectionError as error:
            return {"failed": str(error)}

    async def unqueue(self, run: str, task: str, collector: int) -> Plain:
        """Revoke a place in the queue, or a slot that was kept; one that acts goes on."""
        self.processes.cpu.leave_idle((run, task, collector))
        return {"ok": True}

    async def cpu_slots(self, n_slots: int, number: int) -> Plain:
        """Lend so many CPU slots from now on; `number` tells a message that was overtaken by a later one."""
        if number > self._newest_share:
            self._newest_share = number
            self.processes.cpu.resize(n_slots)
        return {"ok": True}

    # ------------------------------------------------------------------ losses
    async def report_loss(self, live: LiveCollector, reason: str, detail: str) -> None:
        """Report a collector's loss to the master that started it; again for a while if it does not answer."""
        run, task, collector = live.key
        loss: Plain = {"collector": collector, "node": self._link.node, "reason": reason, "detail": detail}
        for pause_s in (0.0, *_AGAIN_S):
            await asyncio.sleep(pause_s)
            with contextlib.suppress(OSError):
                await self._link.call(
                    live.master or self._link.address,
                    "drlnb_collector_lost",
                    run=run,
                    task=task,
                    attempt=live.attempt,
                    number=live.number,
                    **loss,
                )
                return

    # ------------------------------------------------------------------ probes
    async def probe_env(self, env: str | Mapping[str, str]) -> Plain:
        """Build an environment once, in a child, describe its spaces, and try whether it can be frozen and thawed."""
        name = env if isinstance(env, str) else env["env"]
        key = (PROBE, uuid.uuid4().hex, 0)
        log = self._link.directory / f"probe-{key[1][:8]}.log"
        try:
            await self.processes.launch_probe(key, log)
            answer, _ = await asyncio.wait_for(self.processes.ask(key, {"op": "probe", "env": env}), _BUILD_S)
            if answer["op"] == "error":
                kind = answer["kind"] if answer["kind"] == "UnsupportedSpace" else "EnvError"
                return refused(kind, answer["message"], detail=answer["detail"])
            return {"spaces": {**answer["spaces"], "can_snapshot": await self._can_snapshot(key, env)}}
        except TimeoutError:
            return refused("EnvError", f"{name} was not ready after {_BUILD_S:g} s")
        except ConnectionError as error:
            return refused("EnvError", f"{name}: the process that built it ended ({error})")
        finally:
            await self.processes.stop(key)
            log.unlink(missing_ok=True)

    async def _can_snapshot(self, key: Key, env: str | Mapping[str, str]) -> bool:
        """Ask on; an environment whose process this kills cannot be frozen, and can be trained nevertheless."""
        try:
            answer, _ = await asyncio.wait_for(self.processes.ask(key, {"op": "probe-snapshot", "env": env}), _FREEZE_S)
        except (TimeoutError, ConnectionError):
            return False
        return bool(answer.get("can_snapshot", False))
