"""What does a node do for the collectors that live on it?  The agent's part that speaks for their processes."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drlnb.runtime.ipc.start_modes import Zygote
from drlnb.runtime.node.collector_host import PROBE, CollectorHost, LiveCollector
from drlnb.runtime.node.stores import Stores
from drlnb.runtime.protocol import refused

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["NodeCollectors"]

#: Pauses before the loss of a collector is told again to a master that did not hear, in seconds.
_TELL_AGAIN_S = (0.5, 2.0, 5.0)


class NodeCollectors:
    """The collectors of one node, and the CPU slots that they share."""

    node: str
    directory: Path
    worker: Any
    stores: Stores
    masters: "dict[tuple[str, str], Master]"
    zygote: Zygote | None
    #: Run something in the background until it is done or the agent ends.
    keep: Callable[[Coroutine[Any, Any, Any]], Any]
    #: Call a handler of an agent.
    call: Callable[..., Coroutine[Any, Any, dict[str, Any]]]

    def begin_collectors(self) -> dict[str, Any]:
        """Begin without any; return the messages that are served here."""
        self.collectors = CollectorHost(self.zygote, self._collector_lost)
        #: Number of the broker's latest word on CPU slots.
        self._cpu_word = 0
        return {
            "drlnb_probe_env": self.probe_env,
            "drlnb_collector_start": self.collector_start,
            "drlnb_collector_stop": self.collector_stop,
            "drlnb_collector_ask": self.collector_ask,
            "drlnb_collector_queue": self.collector_queue,
            "drlnb_collector_unqueue": self.collector_unqueue,
            "drlnb_collector_lost": self.collector_lost,
            "drlnb_cpu_slots": self.cpu_slots,
        }

    async def collector_start(
        self,
        run: str,
        task: str,
        attempt: int,
        collector: int,
        spec: Mapping[str, Any],
        env_indices: Any,
        out: str,
        mode: str = "zygote",
        quiet_s: float | None = None,
        round: int = 0,
        number: int = 0,
        master: str = "",
        payload: Any = b"",
    ) -> dict[str, Any]:
        """Start a collector here; ``failed`` says why not."""
        await self.collectors.stop_task(run, task, below_attempt=attempt)
        log = Path(out) / "logs" / self.node / f"{task}-{collector}.log"
        configuration = {"spec": spec, "collector": collector, "env_indices": list(env_indices)}
        try:
            return await self.collectors.start(
                (run, task, collector),
                attempt=attempt,
                configuration=configuration,
                state=bytes(payload),
                log=log,
                mode=mode,
                quiet_s=quiet_s,
                round=round,
                told=(number, master),
            )
        except (ConnectionError, RuntimeError, OSError) as error:
            return {"failed": str(error)}

    async def collector_stop(
        self, run: str, task: str, attempt: int, collector: int, quiet_s: float | None = None, payload: Any = b""
    ) -> dict[str, Any]:
        """End a collector here and keep its environments' states for the next one."""
        del payload
        await self.collectors.rest((run, task, collector), attempt, quiet_s=quiet_s)
        return {"ok": True}

    async def collector_ask(
        self,
        run: str,
        task: str,
        collector: int,
        header: Mapping[str, Any],
        quiet_s: float | None = None,
        payload: Any = b"",
    ) -> dict[str, Any]:
        """Send a frame to a collector here; ``gone`` if it is lost (its loss is reported on its own)."""
        store = self.stores.path(run, task)
        try:
            answer, made = await self.collectors.ask(
                (run, task, collector), {**header, "store": store}, payload, quiet_s=quiet_s
            )
        except ConnectionError as error:
            return {"op": "gone", "reason": str(error)}
        return {**answer, "payload": made}

    # ------------------------------------------------------------------ CPU slots
    async def collector_queue(
        self, run: str, task: str, attempt: int, collector: int, round: int, payload: Any = b""
    ) -> dict[str, Any]:
        """Let a parked collector have a CPU slot ahead of its parameters; ``failed`` if nobody needs it any more."""
        del payload
        live = self.collectors.live.get((run, task, collector))
        if live is None or live.attempt != attempt:
            return {"failed": "it is not up"}
        try:
            queued_s = await self.collectors.cpu.ahead(live.key, attempt, round)
        except ConnectionError as error:
            return {"failed": str(error)}
        return {"queued_s": queued_s, "n_starting": self.collectors.cpu.slots.n_waiting + 1}

    async def collector_unqueue(self, run: str, task: str, collector: int, payload: Any = b"") -> dict[str, Any]:
        """Take back a place in the queue, or a slot that was kept; one that acts goes on."""
        del payload
        self.collectors.cpu.leave_idle((run, task, collector))
        return {"ok": True}

    async def cpu_slots(self, n_slots: int, number: int, payload: Any = b"") -> dict[str, Any]:
        """Lend so many CPU slots from now on; `number` tells a word that was overtaken by a later one."""
        del payload
        if number > self._cpu_word:
            self._cpu_word = number
            self.collectors.cpu.resize(n_slots)
        return {"ok": True}

    # ------------------------------------------------------------------ losses
    def _collector_lost(self, live: LiveCollector, reason: str, detail: str) -> None:
        self.keep(self._tell_loss(live, reason, detail))

    async def _tell_loss(self, live: LiveCollector, reason: str, detail: str) -> None:
        """Tell the master that started a collector of its loss; again and again for a while if it does not hear."""
        run, task, collector = live.key
        for pause_s in (*_TELL_AGAIN_S, None):
            with contextlib.suppress(OSError):
                await self.call(
                    live.master or self.worker.address,
                    "drlnb_collector_lost",
                    run=run,
                    task=task,
                    attempt=live.attempt,
                    collector=collector,
                    node=self.node,
                    reason=reason,
                    detail=detail,
                    number=live.number,
                )
                return
            if pause_s is not None:
                await asyncio.sleep(pause_s)

    async def collector_lost(
        self, run: str, task: str, attempt: int, payload: Any = b"", **loss: Any
    ) -> dict[str, Any]:
        """Tell the master here that a collector is gone."""
        del payload
        master = self.masters.get((run, task))
        if master is not None and master.attempt == attempt:
            master.collector_lost(**loss)
        return {"ok": True}

    # ------------------------------------------------------------------ probes
    async def probe_env(self, env: str | Mapping[str, Any], payload: Any = b"") -> dict[str, Any]:
        """Build an environment once, in a child, describe its spaces, and try whether it can be frozen and thawed."""
        del payload
        name = env if isinstance(env, str) else env["env"]
        key = (PROBE, uuid.uuid4().hex, 0)
        log = self.directory / f"probe-{key[1][:8]}.log"
        try:
            live = await self.collectors._launch(key, 0, log, "zygote")
            live.ended = True
            self.collectors.live[key] = live
            answer, _ = await asyncio.wait_for(self.collectors.ask(key, {"op": "probe", "env": env}), 30.0)
            if answer["op"] == "error":
                kind = answer["kind"] if answer["kind"] == "UnsupportedSpace" else "EnvError"
                return refused(kind, answer["message"], detail=answer["detail"])
            return {"spaces": {**answer["spaces"], "can_snapshot": await self._can_snapshot(key, env)}}
        except TimeoutError:
            return refused("EnvError", f"{name} was not ready after 30 s")
        except ConnectionError as error:
            return refused("EnvError", f"{name}: the process that built it ended ({error})")
        finally:
            await self.collectors.stop(key)
            log.unlink(missing_ok=True)

    async def _can_snapshot(self, key: tuple[str, str, int], env: str | Mapping[str, Any]) -> bool:
        """Ask on; an environment whose process this kills cannot be frozen, and can be trained nevertheless."""
        try:
            answer, _ = await asyncio.wait_for(self.collectors.ask(key, {"op": "probe-snapshot", "env": env}), 10.0)
        except (TimeoutError, ConnectionError):
            return False
        return bool(answer.get("can_snapshot", False))
