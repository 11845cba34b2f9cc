"""Register the runs of a cluster: their journals, their masters, and what users want of them."""

import asyncio
import contextlib
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drlnb.planning.settings import owner
from drlnb.records.base import Record
from drlnb.runtime.machine_host import stream_header
from drlnb.runtime.protocol import SOON_S, Handler, Plain, pool_task, refused
from drlnb.runtime.scheduler.generations import Lives
from drlnb.runtime.scheduler.run import LiveRun, journalled_epoch
from drlnb.runtime.scheduler.run_settings import OVER, forget, note, unfit, with_changes

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["LiveRun", "Runs"]

#: Longest time from a task's last row in the journal to its master's own report, in seconds.
_SETTLE_S = 3.0
#: Time for which the rows of a run that has ended are kept for who looks late, in seconds; the files stay.
_KEEP_S = 600.0


async def _settle(row: Plain) -> None:
    """Wait a moment for a task to end here, too: its journal may show its end before its master reports it."""
    deadline = time.monotonic() + _SETTLE_S
    while row["state"] not in OVER and time.monotonic() < deadline:
        await asyncio.sleep(0.02)


class Runs:
    """The register of runs."""

    def __init__(self, broker: "BrokerPlugin") -> None:
        self.broker = broker
        self.live: dict[str, LiveRun] = {}
        self._background: set[asyncio.Future[Any]] = set()
        self._lives = Lives()

    def handlers(self) -> dict[str, Handler]:
        """Return the messages served here."""
        return {
            "drlnb_run_create": self.create,
            "drlnb_run_anchors": self.anchors,
            "drlnb_run_control": self.control,
            "drlnb_run_restart": self.restart,
            "drlnb_runs": self.list,
            "drlnb_rows": self.rows,
            "drlnb_task_attach": self.attach,
            "drlnb_task_rows": self.task_rows,
            "drlnb_task_end": self.end,
        }

    @property
    def any_live(self) -> bool:
        """Whether any run is running."""
        return any(run.state == "running" for run in self.live.values())

    def keep(self, task: "asyncio.Future[Any]") -> None:
        """Hold a background task until it is done; what it raises is shown, not lost."""
        self._background.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Future[Any]") -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.defect("".join(traceback.format_exception(task.exception())))

    def close(self) -> None:
        """Close every stream; what runs in the background ends."""
        for task in self._background:
            task.cancel()
        for run in self.live.values():
            run.writer.close()

    # ------------------------------------------------------------------ journal rows
    def pool_record(self, record: Record) -> None:
        """Write a record of the pool into every live run's stream."""
        for run in self.live.values():
            if run.state == "running":
                run.writer.write(record)
                run.add([{"s": run.stream, **record.to_row()}])

    def defect(self, text: str) -> None:
        """Show a defect of the broker in every live run."""
        for run in self.live.values():
            run.add([{"s": run.stream, "k": "n", "r": "Defect", "text": text}])

    async def task_rows(self, run: str, task: str, rows: list[Plain], n_timesteps: int, attempt: int) -> Plain:
        """Add a master's journal rows for who watches; ``stale`` if a later attempt has begun."""
        live = self.live.get(run)
        if live is None:
            return refused("unknown", f"no run {run}")
        live.add(list(rows))
        if attempt < live.tasks[task]["attempt"]:
            return {"stale": True}
        live.tasks[task]["n_timesteps"] = n_timesteps
        live.write_status()
        return {"ok": True}

    async def rows(self, run: str, since: int, wait_s: float) -> Plain:
        """Return rows from number `since` on, once there are any or the time is up."""
        live = self.live.get(run)
        if live is None:
            return refused("unknown", f"no run {run} on this cluster")
        if live.n_rows <= since and live.state == "running":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(live.changed.wait(), min(wait_s, 20.0))
        return {**self._lives.page(live, since), "state": live.state, "tasks": live.tasks}

    # ------------------------------------------------------------------ clients
    async def create(self, run: str, spec: Plain) -> Plain:
        """Open a run; a repeat of the same id gets the same answer."""
        former = self.live.get(run)
        if (known := await self._lives.ended(former, spec)) is not None:
            return known
        if (locked := self._locked(spec["out"])) is not None:
            return locked
        self.broker.go_beyond(journalled_epoch(Path(spec["out"])))
        try:
            live = LiveRun(run, self._lives.follow(former, spec), self.broker.pool.epoch)
        except ValueError as error:  # a planner of the user's own
            return refused("ConfigError", str(error))
        self.live[run] = live
        self._lives.begin(live, former, spec)
        await self.anchors(run)  # one of the former life that comes back only now is no master that was lost
        self._open(live)
        live.write_status(force=True)
        return {"ok": True}

    async def anchors(self, run: str) -> Plain:
        """Return the key of the Dask task that starts each task's next attempt; it is the client's to submit."""
        live = self.live.get(run)
        if live is None:
            return refused("unknown", f"no run {run} on this cluster")
        return {task: self.broker.anchors.expect(run, task, row["attempt"] + 1) for task, row in live.tasks.items()}

    def _locked(self, out: str) -> Plain | None:
        """Refuse a directory that a live run uses."""
        user = next(
            (other for other in self.live.values() if other.state == "running" and other.spec["out"] == out), None
        )
        return None if user is None else refused("RunLocked", f"{out} is in use by run {user.run}")

    def _open(self, live: LiveRun) -> None:
        """Write the header of a run's stream: what the pool is now."""
        self._lives.reserve(live)
        header = stream_header(live.stream, "pool", self.broker.pool)
        live.writer.write(header)
        live.add([{"s": live.stream, **header.to_row()}])

    async def restart(self, run: str, task: str) -> Plain:
        """Begin a task again that failed or was stopped; its anchor is the client's to submit."""
        live = self.live.get(run)
        if live is None or task not in live.tasks:
            return refused("unknown", f"no task {run}/{task} on this cluster")
        row = live.tasks[task]
        await _settle(row)
        if row["state"] not in ("failed", "stopped"):
            return refused(
                "ConfigError",
                f"task {task} is {row['state']}: only one that failed or was stopped can be started again",
            )
        if live.state != "running":
            if (locked := self._locked(live.spec["out"])) is not None:
                return locked
            self.broker.go_beyond(journalled_epoch(live.out))
            live.open_stream(self.broker.pool.epoch)
            self._open(live)
        row.update(state="starting", wanted="", reason="", node="")
        self.broker.restart_task(run, task, row["attempt"] + 1)
        live.write_status(force=True)
        live.add([])
        attempt = row["attempt"] + 1
        return {"attempt": attempt, "anchor": self.broker.anchors.expect(run, task, attempt)}

    async def list(self) -> list[Plain]:
        """Return all runs of this cluster."""
        return [{"run": r.run, "out": str(r.out), "state": r.state, "tasks": r.tasks} for r in self.live.values()]

    async def control(
        self, run: str, action: str, task: str | None = None, key: str = "", value: object = None, reason: str = ""
    ) -> Plain:
        """Pass a user's wish on to the masters; one that is being moved gets it when it attaches."""
        live = self.live.get(run)
        if live is None:
            return refused("unknown", f"no run {run} on this cluster")
        if task is not None and task not in live.tasks:
            return refused("unknown", f"run {run} has no task {task!r}; it has {', '.join(live.tasks)}")
        if action in ("check", "set"):
            problem = unfit(live, task, key, value)
            if not problem and owner(key) == "pool":
                problem = self.broker.pool_problem(key, value)
            if problem or action == "check":
                return refused("ConfigError", problem) if problem else {"ok": True}
        if action == "set" and owner(key) == "pool":
            return await self.broker.set_pool(key, value)
        wish: Plain = {"action": action, "key": key, "value": value, "reason": reason}
        meant = [name for name in live.tasks if task in (None, name) and not live.is_over(name)]
        problems = [f"task {name}: {text}" for name in meant if (text := await self._pass_on(live, name, **wish))]
        live.write_status(force=action == "set")  # a resumed run must know of what was set
        return refused("ConfigError", "; ".join(problems)) if problems else {"ok": True}

    async def _pass_on(self, live: LiveRun, name: str, *, action: str, key: str, value: object, reason: str) -> str:
        """Pass a wish on to one task, and remember it; return why its master refuses, empty if it does not."""
        row = live.tasks[name]
        former = note(row, action, key, value)
        if (action, key) == ("set", "task.priority"):
            reply = await self.broker.set_pool(key, value, pool_task(live.run, name))
            problem = str(reply.get("message", ""))
        else:
            message = {"run": live.run, "task": name, "action": action, "key": key, "value": value, "reason": reason}
            answer = await self.broker.ask_node(row["node"], "drlnb_control", SOON_S, **message)
            problem = str((answer or {}).get("refused", ""))
            if not row["node"] and action in ("stop", "kill"):  # an anchor that starts yet gets it
                self.end_here(live, name, "stopped", reason or "stopped while it ran nowhere")
        if problem:
            forget(row, key, value, former)
        return problem

    # ------------------------------------------------------------------ masters
    async def attach(self, run: str, task: str, node: str, request: str) -> Plain:
        """Register a master: a new attempt of its task, unless the task is over; a repeated request is the same one."""
        live = self.live.get(run)
        if live is None or task not in live.tasks:
            return refused("unknown", f"no task {run}/{task}")
        row = live.tasks[task]
        if row["state"] in OVER:
            return refused("over", f"task {task} is {row['state']}")
        attempt = self._lives.attempt(request, row["attempt"] + 1)
        if attempt < row["attempt"]:
            return refused("over", f"another attempt of task {task} has begun")
        row.update(state="running", attempt=attempt, node=node)
        if attempt > 1:
            self.broker.nodes.end_task(run, task, attempt - 1)
        live.write_status(force=True)
        spec = next(s for s in live.spec["tasks"] if s["name"] == task)
        if priority := row["scheduling"].get("task.priority", spec.get("priority", 0)):
            await self.broker.set_pool("task.priority", priority, pool_task(run, task))
        return {
            "attempt": row["attempt"],
            "spec": spec,
            "out": str(live.out),
            **with_changes(live.spec, row["scheduling"]),
            "own_planners": live.spec.get("own_planners", {}),
            "resume": bool(live.spec.get("resume")) or row["attempt"] > 1,
            "wanted": row["wanted"],
            "live": row["live"],
            "leasing": asdict(self.broker.pool.settings),
        }

    async def end(self, run: str, task: str, attempt: int, state: str, reason: str) -> Plain:
        """Record a task's end."""
        live = self.live.get(run)
        if live is None or live.tasks[task]["attempt"] != attempt:
            return refused("stale", f"attempt {attempt} of {run}/{task} is not the present one")
        self.broker.forget_task(run, task, attempt, reason)
        self._ended(live, task, state, reason)
        return {"ok": True}

    def _ended(self, live: LiveRun, task: str, state: str, reason: str) -> None:
        live.tasks[task].update(state=state, reason=reason, node="")
        live.write_status(force=True)
        live.add([])
        self.broker.nodes.end_task(live.run, task, live.tasks[task]["attempt"])
        if live.state != "running":
            # Its thread may wait for the disk: not in this loop.
            self.keep(asyncio.ensure_future(asyncio.to_thread(live.writer.close)))
            asyncio.get_running_loop().call_later(_KEEP_S, live.forget_rows)

    def end_here(self, live: LiveRun, task: str, state: str, reason: str) -> None:
        """End a task whose end no master will report."""
        if live.is_over(task):
            return
        if live.tasks[task]["state"] == "running":  # the pool knows nothing of one that has not begun
            self.broker.forget_task(live.run, task, live.tasks[task]["attempt"], reason)
        self._ended(live, task, state, reason)

    def node_lost(self, node: str) -> None:
        """Forget the masters of a node; Dask runs their anchors elsewhere."""
        for live in self.live.values():
            for task, row in live.tasks.items():
                if node and row["node"] == node:
                    row["node"] = ""
                    self.broker.anchors.left_alone(live, task)
