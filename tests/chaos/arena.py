"""Open a real cluster with two workers and two slots, and hurt its processes in each way."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from distributed import Client, fire_and_forget

from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.resolve import resolve
from drlnb.runtime.client.link import Link
from drlnb.runtime.protocol import BROKER
from drlnb.runtime.scheduler.anchors import anchor
from tests.chaos.family import Family
from tests.chaos.stage import Stage, open_stage
from tests.survivors import survivors

#: Workers of the cluster, with a slot each.
N_WORKERS = 2
#: Slots of its pool.
N_SLOTS = 2
#: Leases that are short, so that a stopped holder loses its own within seconds.  A slot is never closed for good: here
#: executors die on purpose, again and again.
LEASING = {
    "ttl_s": 3.0,
    "holder_ttl_s": 2.0,
    "renew_s": 0.5,
    "poll_s": 5.0,
    "compute_timeout_s": 5.0,
    "kill_grace_s": 1.0,
    "quarantine": False,
}
#: How long a stopped process stands still, in seconds: longer than a lease lives, or than work may take.
HOLDER_STOP_S, EXECUTOR_STOP_S, STALL_S = LEASING["ttl_s"] + 1.0, LEASING["compute_timeout_s"] + 1.0, 5.0
#: Room for the run directories of one arena, in bytes, and how long none of it is left, in seconds.
_DISK_BYTES, FULL_S = 1 << 29, 3.0
#: Longest wait for something to strike, and for what was struck to be there again, in seconds.
_TARGET_S = 60.0
#: More steps than any of these trainings takes.
_ENDLESS = 10**9
ENV = "CartPole-v1"
#: Two that train until they are stopped, and one that comes to its end among the faults.
_TASKS: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "a": ("ppo", _ENDLESS, {"n_steps": 32, "n_epochs": 2}),
    "b": ("gpf", _ENDLESS, {"n_steps": 32}),
    "c": ("ppo", 10_240, {"n_steps": 32, "n_epochs": 2}),
}
#: A checkpoint every so many rounds: a later attempt goes on from there.  However many executors die in one round, they
#: die on purpose: no batch is to blame.
_SETTINGS = {"checkpoint_min_s": 0.0, "checkpoint_every": 5, "max_executor_deaths": _ENDLESS}


class TooQuiet(TimeoutError):
    """Nothing was there that a fault could strike."""


class Arena:
    """One cluster and what can be done to it.

    Parameters
    ----------
    stage
        The cluster.
    """

    def __init__(self, stage: Stage) -> None:
        self.address, self.folder = stage.handle.address, stage.folder / "runs"
        self.folder.mkdir()
        if "disk-full" in KINDS:
            mount = ("mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(self.folder))
            subprocess.run(mount, check=True)
        self.client = stage.client
        self.family = Family(stage.handle.pid, self.client)
        #: What is stopped, or fills the disk -> timer that lets it go on, or removes it.
        self._stopped: dict[psutil.Process | Path, threading.Timer] = {}
        self._spaces = Link(self.client).probe_env(ENV)
        self.run = ""
        #: Runs of this act, the small ones that were cancelled included.
        self.runs: list[str] = []
        self._n = 0
        self.strike: Mapping[str, Callable[[float], None]] = {
            "holder-stop": self._stop_holder,
            "executor-kill": lambda pick: self._signal("executor", pick, signal.SIGKILL),
            "executor-stop": lambda pick: self._stop(self._one("executor", pick), EXECUTOR_STOP_S),
            "executor-abort": self._abort_executor,
            "collector-kill": lambda pick: self._signal("collector", pick, signal.SIGKILL),
            "worker-kill": lambda pick: self._signal("worker", pick, signal.SIGKILL),
            "link-cut": self._cut_link,
            "disk-full": self._fill_disk,
            "scheduler-stall": self._stall,
            "second-master": self._second_master,
            "client-gone": self._client_gone,
            "cancel-waiting": self._cancel_waiting,
        }

    def _connect(self) -> Client:
        client = Client(self.address)
        Link(client).open_pool(N_SLOTS, own_workers=1, settings=LEASING)
        return client

    def close(self) -> None:
        """Let everything go on, and close the client."""
        self.let_go()
        with contextlib.suppress(OSError):
            self.client.close()
        if "disk-full" in KINDS:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)

    # ------------------------------------------------------------------ runs
    def begin(self, run: str) -> None:
        """Start a run of every task of an act."""
        self.run, self.runs = run, []
        self._start(run, list(_TASKS))

    def _start(self, run: str, names: Sequence[str]) -> None:
        for filler in [what for what in self._stopped if isinstance(what, Path)]:
            self._go_on(filler)  # nobody begins a run where there is no room
        out = self.folder / run
        out.mkdir()
        (out / "run.json").write_text("{}", encoding="utf-8")
        tasks = [self._spec(name) for name in names]
        row = {"run": run, "out": str(out), "tasks": tasks, "planners": {}, "settings": _SETTINGS, "resume": False}
        Link(self.client).create_run(row)
        Link(self.client).submit_anchors(run, names)
        self.runs.append(run)

    def _spec(self, name: str) -> dict[str, Any]:
        algo, steps, settings = _TASKS[name]
        found = resolve(ENV, algo, overrides=settings)
        plain: dict[str, Any] = RlWork(
            name=name,
            env=ENV,
            algo=algo,
            total_timesteps=steps,
            n_envs=found.n_envs,
            n_collectors=2,
            hyperparameters=found.hyperparameters,
            origin=found.origin,
            **self._spaces,
        ).to_plain()
        return plain

    def tasks(self, run: str) -> dict[str, dict[str, Any]]:
        """Return the broker's row of each task of a run."""
        rows = {row["run"]: row for row in Link(self.client).runs()}
        return dict(rows[run]["tasks"])

    # ------------------------------------------------------------------ processes
    def _of(self, party: str) -> list[psutil.Process]:
        """Return a party's processes that are not stopped, oldest first."""
        found = []
        for process in self.family.look():
            with contextlib.suppress(psutil.Error):
                title = " ".join(process.cmdline())
                if title.startswith(f"drlnb {party}") and process.status() != psutil.STATUS_STOPPED:
                    found.append(process)
        return sorted(found, key=lambda process: process.create_time())

    def collectors(self) -> list[psutil.Process]:
        """Return the collectors that live."""
        return self._of("collector")

    def _one(self, party: str, pick: float) -> psutil.Process:
        ask = self._workers if party == "worker" else lambda: self._of(party)
        found = self._await(ask, f"no {party} to strike")
        return found[int(pick * len(found))]

    def _await(self, ask: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + _TARGET_S
        while not (found := ask()):
            if time.monotonic() > deadline:
                raise TooQuiet(f"{what} within {_TARGET_S:g} s")
            time.sleep(0.05)
        return found

    def _signal(self, party: str, pick: float, what: signal.Signals) -> None:
        self._one(party, pick).send_signal(what)

    def _abort_executor(self, pick: float) -> None:
        """Let an executor end as C++ does that got no memory: by abort(), which is another end than SIGKILL's."""
        self._one("executor", pick).send_signal(signal.SIGABRT)

    def _stop(self, process: psutil.Process, seconds: float) -> None:
        """Stop a process for a while."""
        process.send_signal(signal.SIGSTOP)
        self._end_later(process, seconds)

    def _end_later(self, what: psutil.Process | Path, seconds: float) -> None:
        timer = threading.Timer(seconds, self._go_on, (what,))
        self._stopped[what] = timer
        timer.daemon = True
        timer.start()

    def _go_on(self, what: psutil.Process | Path) -> None:
        if isinstance(what, Path):
            what.unlink(missing_ok=True)
        else:
            with contextlib.suppress(psutil.NoSuchProcess):
                what.send_signal(signal.SIGCONT)
        self._stopped.pop(what, None)

    def let_go(self) -> None:
        """Let every stopped process go on now, and make room on the disk."""
        for what, timer in list(self._stopped.items()):
            timer.cancel()
            self._go_on(what)

    # ------------------------------------------------------------------ faults
    def _masters(self) -> list[tuple[str, str]]:
        """Return (task, node) of the masters that are attached to a node."""
        rows = self.tasks(self.run)
        return [(name, row["node"]) for name, row in sorted(rows.items()) if row["state"] == "running" and row["node"]]

    def _nodes(self) -> dict[str, dict[str, Any]]:
        async def ask() -> Any:
            return await asyncio.wait_for(self.client.scheduler.drlnb_nodes(), 15.0)

        return {row["node"]: row for row in self.client.sync(ask)["nodes"]}

    def _workers(self) -> list[psutil.Process]:
        """Return the workers whose agents are up, and that are not stopped (a foreign title is no matter)."""
        found = []
        for _, row in sorted(self._nodes().items()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(int(row["pid"]))
                found += [process] if process.status() != psutil.STATUS_STOPPED else []
        return found

    def _stop_holder(self, pick: float) -> None:
        """Stop the worker that hosts a master for longer than its lease lives."""
        masters = self._await(self._masters, "no master to stop")
        _, node = masters[int(pick * len(masters))]
        pid = self._await(lambda: self._nodes().get(node, {}).get("pid"), f"node {node} is not back")
        with contextlib.suppress(psutil.NoSuchProcess):
            self._stop(psutil.Process(int(pid)), HOLDER_STOP_S)

    def _cut_link(self, pick: float) -> None:
        """Cut every connection between a worker and the scheduler, as a network does that loses them."""
        worker, port = self._one("worker", pick), int(self.address.rpartition(":")[2])
        with contextlib.suppress(psutil.NoSuchProcess):
            for connection in worker.net_connections("tcp4"):
                if connection.raddr and connection.raddr.port == port:
                    which = ("sport", "=", f":{connection.laddr.port}", "dport", "=", f":{port}")
                    subprocess.run(["ss", "-K", "-t", *which], check=True, stdout=subprocess.DEVNULL)

    def _fill_disk(self, pick: float) -> None:
        """Leave no room where the runs write, for a while."""
        self._n += 1
        filler = self.folder / f"filler{self._n}"
        with filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
        self._end_later(filler, FULL_S * pick)

    def _stall(self, pick: float) -> None:
        """Stop the scheduler's process."""
        del pick
        self._stop(self.family.root, STALL_S)

    def _second_master(self, pick: float) -> None:
        """Submit a task's anchor once more, to the other worker if there is one."""
        masters = self._await(self._masters, "no task to double")
        task, node = masters[int(pick * len(masters))]
        others = [row["address"] for name, row in self._nodes().items() if name != node]
        self._n += 1
        where = {"workers": others[:1], "allow_other_workers": True} if others else {}
        key = f"drlnb-{self.run}/{task}#twin{self._n}"
        fire_and_forget(self.client.submit(anchor, self.run, task, key=key, pure=False, retries=0, **where))

    def _client_gone(self, pick: float) -> None:
        """Close the client without a word, and connect another one."""
        del pick
        with contextlib.suppress(OSError):
            self.client.close()
        self.client = self.family.client = self._connect()

    def _cancel_waiting(self, pick: float) -> None:
        """Start a small run, and stop or kill it while its first task waits for a slot."""
        self._n += 1
        run = f"{self.run}-w{self._n}"
        self._start(run, ["b"])
        action = "kill" if pick < 0.5 else "stop"
        if not self.client.run_on_scheduler(cancel_waiting, run, action, wait_s=_TARGET_S):
            raise TooQuiet(f"run {run} never waited for a slot within {_TARGET_S:g} s")


#: Kind of fault -> share of all faults; the dear ones (a stall takes 5 s, a worker some seconds to be back) are fewer.
KINDS: Mapping[str, int] = {
    "holder-stop": 12,
    "executor-kill": 15,
    "executor-stop": 10,
    "executor-abort": 10,
    "collector-kill": 19,
    "worker-kill": 8,
    "scheduler-stall": 5,
    "second-master": 9,
    "client-gone": 5,
    "cancel-waiting": 7,
    **dict.fromkeys(("link-cut", "disk-full") if os.geteuid() == 0 and shutil.which("ss") else (), 6),
}


async def cancel_waiting(run: str, action: str, wait_s: float, dask_scheduler: Any) -> bool:
    """Stop a run in the moment in which the pool has a request of it waiting; runs in the scheduler."""
    broker = dask_scheduler.plugins[BROKER]
    deadline = time.monotonic() + wait_s
    while not any(
        lease["task"].startswith(f"{run}/") and lease["state"] == "pending"
        for lease in broker.pool.snapshot()["leases"]["open"].values()
    ):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.002)
    await broker.runs.run_control(run, action)
    return True


def pool_state(dask_scheduler: Any) -> dict[str, Any]:
    """Return the pool's slots, leases and anchors of this moment; runs in the scheduler."""
    table = dask_scheduler.plugins[BROKER].pool.snapshot()["leases"]
    return {
        "slots": {name: slot["state"] for name, slot in table["slots"].items()},
        "open": list(table["open"]),
        "anchors": [
            f"{key} ({task.state} on {task.processing_on}, wanted by {[c.client_key for c in task.who_wants or ()]})"
            for key, task in dask_scheduler.tasks.items()
            if str(key).startswith("drlnb-")
        ],
    }


@contextlib.contextmanager
def open_arena() -> Iterator[Arena]:
    """Start the cluster and wait until its slots are up; :func:`left_over` tells what is there afterwards."""
    with open_stage(N_WORKERS, n_slots=N_SLOTS, settings=LEASING) as stage:
        arena = Arena(stage)
        try:
            yield arena
        finally:
            arena.close()


def left_over(arena: Arena, limit_s: float = 5.0) -> list[psutil.Process]:
    """Return which processes of a closed arena live on."""
    deadline = time.monotonic() + limit_s
    while (alive := survivors(list(arena.family.seen))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive
