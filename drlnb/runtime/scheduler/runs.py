"""Register the runs of a cluster: their journals, their masters, and what users want of them."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from drlnb.planning.placement.tasks import PLANNER_KEY
from drlnb.planning.settings import owner
from drlnb.records.base import Record
from drlnb.records.columns import leasing, placement
from drlnb.records.errors import ConfigError, RunLocked
from drlnb.records.round import ENDS
from drlnb.runtime.protocol import SOON_S, Handler, Plain, Refusal, pool_task, table, task_stream
from drlnb.runtime.scheduler.run import LiveRun, becomes, forget, journalled_epoch, look, note, with_changes

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["KEEP_S", "LiveRun", "Runs"]

#: Longest time from a task's last row in the journal to its master's own report, in seconds: of a task that is
#: restarted, and of all tasks of a run that is resumed, whose masters end their collectors between the two.
_SETTLE_S, _END_S = 3.0, 12.0
#: Descriptors that a task and each of its collectors take on its node, as measured.
_PER_TASK, _PER_COLLECTOR = 4, 2
#: Time for which the rows of a run that has ended are kept for who looks late, in seconds; the files stay.
KEEP_S = 600.0


class Runs:
    """The register of runs."""

    def __init__(self, broker: "BrokerPlugin") -> None:
        self.broker = broker
        self.live: dict[str, LiveRun] = {}
        #: Request of a master to be registered -> the attempt that it is.
        self._attached: dict[str, int] = {}

    def handlers(self) -> dict[str, Handler]:
        """Return the messages served here."""
        return table(
            self,
            "run_create",
            "run_anchors",
            "run_control",
            "run_restart",
            "runs",
            "rows",
            "task_attach",
            "task_rows",
            "task_end",
        )

    def _live(self, run: str, task: str | None = None) -> LiveRun:
        """Return a run that is known here, and has this task."""
        live = self.live.get(run)
        if live is None:
            raise Refusal(f"no run {run} on this cluster")
        if task is not None and task not in live.tasks:
            raise Refusal(f"run {run} has no task {task!r}; it has {', '.join(live.tasks)}")
        return live

    @property
    def any_live(self) -> bool:
        """Whether any run is running."""
        return any(run.state == "running" for run in self.live.values())

    async def close(self) -> None:
        """Close every stream."""
        for run in self.live.values():
            await run.closing()
            await run.said()

    # ------------------------------------------------------------------ journal rows
    def pool_record(self, record: Record) -> None:
        """Write a record of the pool into every live run's stream."""
        for run in self.live.values():
            if "pool" in run.streams:
                run.write("pool", record)

    def defect(self, text: str) -> None:
        """Show a defect of the broker in every live run."""
        for run in self.live.values():
            stream, _ = run.streams.get("pool", ("", None))
            run.add([{"s": stream, "k": "n", "r": "Defect", "text": text}])

    async def task_rows(
        self, run: str, task: str, rows: list[Plain], n_timesteps: int, attempt: int, n_bytes: int = 0
    ) -> Plain:
        """Add a master's journal rows for who watches, and its file's size; ``stale`` if a later attempt has begun."""
        live = self._live(run)
        live.add(list(rows))
        live.n_bytes[task_stream(task, attempt)] = n_bytes
        if attempt < live.tasks[task]["attempt"]:
            return {"stale": True}
        live.tasks[task]["n_timesteps"] = n_timesteps
        live.write_status()
        return {"ok": True}

    async def rows(self, run: str, since: int, wait_s: float) -> Plain:
        """Return rows from number `since` on, once there are any or the time is up."""
        live = self._live(run)
        if live.n_rows <= since and live.state == "running":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(live.changed.wait(), min(wait_s, 20.0))
        return {**live.page(since), "state": live.state, "tasks": live.tasks}

    # ------------------------------------------------------------------ clients
    async def run_create(self, run: str, spec: Plain) -> None:
        """Open a run; a repeat of the same id gets the same answer."""
        former = self.live.get(run)
        if former is not None and former.state == "running":
            if not spec.get("resume") or spec == former.spec:
                return  # the same message again
            # Its journal may show its end before its masters report it.
            if not await becomes(lambda: former.state != "running", _END_S):
                raise RunLocked(f"run {run} goes on: attach to it instead")
        self._refuse_too_many(tasks := spec["tasks"])
        if not spec.get("resume"):  # a run that goes on makes do with the slots that there are
            self._refuse_learners(tasks)
        taken = await look(spec["out"])
        if (now := self.live.get(run)) is not None and now.state == "running":
            return  # the same message has come again meanwhile
        self._go_beyond(run, spec["out"], taken)
        try:
            live = LiveRun(run, spec, former, taken)
        except ValueError as error:  # a planner of the user's own
            raise ConfigError(str(error)) from None
        self.live[run] = live
        await self.run_anchors(run)  # one of the former life that comes back only now is no master that was lost
        self._open_stream(live)
        live.write_status(force=True)

    def _open_stream(self, live: LiveRun) -> None:
        live.open_stream("pool", f"broker-e{self.broker.pool.epoch}", self.broker.pool)

    async def run_anchors(self, run: str) -> Plain:
        """Return the key of the Dask task that starts each task's next attempt; it is the client's to submit."""
        rows = self._live(run).tasks
        return {task: self.broker.anchors.expect(run, task, row["attempt"] + 1) for task, row in rows.items()}

    def _refuse_too_many(self, tasks: Sequence[Plain]) -> None:
        """Refuse tasks that need more open files than the nodes may have: they would fail one by one, later."""
        limits = [int(row.get("n_descriptors", 0)) for row in self.broker.nodes.rows.values()]
        needs = sum(_PER_TASK + _PER_COLLECTOR * int(task.get("n_collectors", 1)) for task in tasks)
        if limits and all(limits) and needs > sum(limits):
            raise ConfigError(
                f"{len(tasks)} tasks need about {needs:,} open files, the nodes here may have {sum(limits):,}: "
                "raise their hard limit (ulimit -Hn), add nodes, or train fewer at once"
            )

    def _refuse_learners(self, tasks: Sequence[Plain]) -> None:
        """Refuse more learners than the pool has slots, unless later workers may bring more."""
        pool = self.broker.nodes.pool
        n = len(pool.slot_names)
        wanted = {str(task["name"]): int(task.get("n_learners", 1)) for task in tasks}
        too_many = [
            f"task {name}: n_learners = {k}, but the pool has {n}" for name, k in wanted.items() if k > max(n, 1)
        ]
        if too_many and not pool.can_grow:
            raise ConfigError(f"{'; '.join(too_many)}: ask for fewer learners, or for a fleet with more slots")

    def _go_beyond(self, run: str, out: str, taken: set[str]) -> None:
        """Refuse a directory that another live run uses; raise coming fences above those that are journalled there."""
        for other in self.live.values():
            if other.run != run and other.state == "running" and other.spec["out"] == out:
                raise RunLocked(f"{out} is in use by run {other.run}")
        epoch = journalled_epoch(taken)
        if epoch > self.broker.pool.epoch:  # a clock may have been set back
            self.broker.host.feed(leasing.EpochRaised, epoch=epoch + 1)

    async def run_restart(self, run: str, task: str) -> Plain:
        """Begin a task again that failed or was stopped; its anchor is the client's to submit."""
        live = self._live(run, task)
        row = live.tasks[task]
        # Its journal may show its end before its master reports it.
        await becomes(lambda: live.is_over(task), _SETTLE_S)
        taken = await look(live.spec["out"])
        if row["state"] not in ("failed", "stopped"):
            raise ConfigError(
                f"task {task} is {row['state']}: only one that failed or was stopped can be started again"
            )
        live.superseded = False  # the client has looked
        if not live.streams:
            self._go_beyond(run, live.spec["out"], taken)
            live.taken |= taken
            self._open_stream(live)
        attempt = row["attempt"] + 1
        row.update(state="starting", wanted="", reason="", node="")
        self.broker.host.feed(placement.TaskRestarted, task=pool_task(run, task), attempt=attempt)
        live.write_status(force=True)
        live.add([])
        return {"attempt": attempt, "anchor": self.broker.anchors.expect(run, task, attempt)}

    async def runs(self) -> list[Plain]:
        """Return all runs of this cluster."""
        return [{"run": r.run, "out": str(r.out), "state": r.state, "tasks": r.tasks} for r in self.live.values()]

    async def run_control(
        self, run: str, action: str, task: str | None = None, key: str = "", value: object = None, reason: str = ""
    ) -> None:
        """Pass a user's wish on to the masters; one that is being moved gets it when it attaches."""
        live = self._live(run, task)
        of_pool = owner(key) == "pool"
        if action in ("check", "set"):
            live.check_change(task, key, value)
            if of_pool:
                self.broker.check_pool(key, value)
        elif action == "slow":
            live.check_member(str(task), key, self.broker.nodes.pool.slot_names)
        if action == "check":
            return
        if action == "set" and of_pool:
            await self.broker.pool_set(key, value)
            return
        wish: Plain = {"action": action, "key": key, "value": value, "reason": reason}
        problems = []
        for name, row in live.tasks.items():
            if task in (None, name) and not live.is_over(name):
                former = note(row, action, key, value)
                if problem := await self._pass_on(live, name, wish):
                    forget(row, key, value, former)
                    problems.append(f"task {name}: {problem}")
        live.write_status(force=action == "set")  # a resumed run must know of what was set
        if problems:
            raise ConfigError("; ".join(problems))

    async def stop_all(self, reason: str, wait_s: float) -> None:
        """Stop every run, each with a checkpoint, and wait so long for them."""
        running = [run for run, live in self.live.items() if live.state == "running"]
        asks = (self.run_control(run, "stop", reason=reason) for run in running)
        stops = asyncio.gather(*asks, return_exceptions=True)
        await becomes(lambda: not self.any_live, wait_s)
        stops.cancel()  # of a node that does not answer

    async def _pass_on(self, live: LiveRun, name: str, wish: Plain) -> str:
        """Pass a wish on to one task; return why its master refuses, empty if it does not."""
        node, action = live.tasks[name]["node"], wish["action"]
        set_key = wish["key"] if action == "set" else ""
        if set_key != "task.priority":
            answer = await self.broker.ask_node(node, "drlnb_control", SOON_S, run=live.run, task=name, **wish)
            if answer is None and action == "slow":  # nobody would do it later
                return "its node does not answer: nobody is slowed down"
            if not node and action in ("stop", "kill"):  # an anchor that starts yet gets it
                self.end_here(live, name, "stopped", wish["reason"] or "stopped while it ran nowhere")
            if refused := str((answer or {}).get("refused", "")):
                return refused
        if set_key in ("task.priority", PLANNER_KEY):
            try:
                await self.broker.pool_set(set_key, wish["value"], pool_task(live.run, name))
            except ConfigError as error:
                return str(error)
        return ""

    # ------------------------------------------------------------------ masters
    async def task_attach(self, run: str, task: str, node: str, request: str) -> Plain:
        """Register a master: a new attempt of its task, unless the task is over; a repeated request is the same one."""
        live = self._live(run, task)
        row = live.tasks[task]
        if row["state"] in ENDS:
            raise Refusal(f"task {task} is {row['state']}")
        attempt = self._attached.setdefault(request, row["attempt"] + 1)
        if attempt < row["attempt"]:
            raise Refusal(f"another attempt of task {task} has begun")
        row.update(state="running", attempt=attempt, node=node)
        if attempt > 1:
            self.broker.nodes.end_task(run, task, attempt - 1)
        live.write_status(force=True)
        spec = live.plain(task)
        if priority := row["scheduling"].get("task.priority", spec.get("priority", 0)):
            with contextlib.suppress(ConfigError):
                await self.broker.pool_set("task.priority", priority, pool_task(run, task))
        return {
            "attempt": row["attempt"],
            "spec": spec,
            "number": live.spec["tasks"].index(spec),
            "out": str(live.out),
            **with_changes(live.spec, row["scheduling"]),
            "own_planners": live.spec.get("own_planners", {}),
            "resume": bool(live.spec.get("resume")) or row["attempt"] > 1,
            "wanted": row["wanted"],
            "live": row["live"],
            "leasing": asdict(self.broker.pool.settings),
            "epoch": self.broker.epoch,
        }

    async def task_end(
        self, run: str, task: str, attempt: int, state: str, reason: str, superseded: bool = False
    ) -> None:
        """Record a task's end; `superseded`: the directory is another run's now."""
        live = self._live(run, task)
        if live.tasks[task]["attempt"] != attempt:
            raise Refusal(f"attempt {attempt} of {run}/{task} is not the present one")
        live.superseded |= superseded
        self.broker.forget_task(run, task, attempt, reason)
        # Who hears of the end may read the files at once, and finds all in them; other tasks may end meanwhile.
        live.ending[task] = {"state": state, "reason": reason}
        if all(live.is_over(name) or name in live.ending for name in live.tasks):
            await live.closing()
        live.write_status(force=True)
        await live.said()
        if task in live.ending:  # else the message came twice
            self._ended(live, task, state, reason)

    def _ended(self, live: LiveRun, task: str, state: str, reason: str) -> None:
        live.ending.pop(task, None)
        live.tasks[task].update(state=state, reason=reason, node="")
        live.add([])
        self.broker.nodes.end_task(live.run, task, live.tasks[task]["attempt"])
        if live.state != "running":
            self.broker.host.spawn(live.closing())
            asyncio.get_running_loop().call_later(KEEP_S, live.forget_rows)
            self.broker.leave_later()

    def end_here(self, live: LiveRun, task: str, state: str, reason: str) -> None:
        """End a task whose end no master will report."""
        if live.is_over(task):
            return
        if live.tasks[task]["state"] == "running":  # the pool knows nothing of one that has not begun
            self.broker.forget_task(live.run, task, live.tasks[task]["attempt"], reason)
        self._ended(live, task, state, reason)
        live.write_status(force=True)

    def node_lost(self, node: str) -> None:
        """Forget the masters of a node; Dask runs their anchors elsewhere."""
        for live in self.live.values():
            for task, row in live.tasks.items():
                if node and row["node"] == node:
                    row["node"] = ""
                    self.broker.anchors.left_alone(live, task)
