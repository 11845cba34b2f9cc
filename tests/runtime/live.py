"""Real clusters for the tests of the runtime: started by the test, gone after it."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from drlnb.records.spec import RlWork
from tests.survivors import survivors

#: Nothing in these tests may take longer than this, in seconds.
LIMIT_S = 90.0


def titled(title: str, below: int) -> list[psutil.Process]:
    """Return the processes below a pid whose command line contains a title, oldest first."""
    found = []
    for process in psutil.Process(below).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if title in " ".join(process.cmdline()):
                found.append(process)
    return sorted(found, key=lambda p: p.create_time())


def wait_until(holds: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    """Ask again and again until something holds; fail with `what` when the time is up."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        value = holds()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {limit_s:g} s: {what}")


class Bench:
    """One cluster, one client, and the runs that a test makes on it."""

    def __init__(self, root: Path, *, n_workers: int, n_slots: int) -> None:
        from distributed import Client

        from drlnb.runtime.client.link import Link
        from drlnb.runtime.client.local_cluster import start_local

        self.root = root
        self.handle = start_local(n_workers=n_workers, root=root / "cluster")
        self.client = Client(self.handle.address)
        self.link = Link(self.client)
        self.pool = self.link.open_pool(n_slots, own_workers=n_workers)
        self.seen: dict[int, psutil.Process] = {}
        self.note()

    def note(self) -> None:
        """Remember every process of the cluster, to look for it afterwards."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.handle.pid).children(recursive=True):
                self.seen[process.pid] = process

    def spec(
        self,
        name: str,
        *,
        env: str = "CartPole-v1",
        algo: str = "ppo",
        steps: int = 4096,
        n_collectors: int = 2,
        **more: Any,
    ) -> Any:
        """Return a task of a known environment."""
        from drlnb.rl.algorithms.resolve import resolve

        spaces = self.link.probe_env(env)
        resolved = resolve(env, algo, overrides=more)
        return RlWork(
            name=name,
            env=env,
            algo=algo,
            total_timesteps=steps,
            n_envs=resolved.n_envs,
            n_collectors=n_collectors,
            hyperparameters=resolved.hyperparameters,
            origin=resolved.origin,
            **spaces,
        ).to_plain()

    def start(self, tasks: list[Any], *, run: str = "r1", resume: bool = False, **more: Any) -> "LiveRun":
        """Open a run and start its masters."""
        out = self.root / run
        out.mkdir(exist_ok=True)
        (out / "run.json").write_text("{}")
        row = {"run": run, "out": str(out), "tasks": tasks, "planners": {}, "settings": {}, "resume": resume, **more}
        self.link.create_run(row)
        self.link.submit_anchors(run, [task["name"] for task in tasks])
        return LiveRun(self, run, out)

    def close(self) -> None:
        """Stop the cluster and assert that nothing of it is left."""
        self.note()
        with contextlib.suppress(OSError):
            self.client.close()
        self.handle.stop()
        alive = survivors(self.seen.values(), 5.0)
        assert not alive, f"left behind: {alive}"


class LiveRun:
    """What a client sees of a run."""

    def __init__(self, bench: Bench, run: str, out: Path) -> None:
        self.bench, self.run, self.out = bench, run, out
        self.rows: list[dict[str, Any]] = []
        self._since = self._n_seen = 0

    def until(self, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Read on behind the row that was found last until a row holds; return it.

        A row may be older than the call: who means what follows an action waits for the action's own row first.
        """
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            for row in self.rows[self._n_seen :]:
                self._n_seen += 1
                if holds(row):
                    return row
            self._since, rows, _ = self.bench.link.rows(self.run, self._since, 1.0)
            self.rows += rows
        last = [row["r"] for row in self.rows[-5:]]
        raise AssertionError(f"not within {LIMIT_S:g} s: {what}; last rows {last}")

    def round(self, number: int, task: str = "") -> dict[str, Any]:
        """Wait for the end of a round, of any task or of one."""
        stream = f"task-{task}-" if task else ""
        return self.until(
            lambda r: r["r"] == "MetricsRecorded" and r["round"] >= number and r["s"].startswith(stream),
            f"round {number} {task}",
        )

    def end(self) -> dict[str, dict[str, Any]]:
        """Wait until every task is over; return the broker's row of each."""

        def over() -> Any:
            rows = {r["run"]: r for r in self.bench.link.runs()}
            return rows[self.run]["tasks"] if rows[self.run]["state"] != "running" else None

        tasks = wait_until(over, f"end of run {self.run}")
        # The journal's last lines are written by threads that close with the run; status.json names their bytes.
        wait_until(self._is_written, "files of the run", 5.0)
        return tasks

    def _is_written(self) -> bool:
        with contextlib.suppress(OSError):
            said = json.loads((self.out / "status.json").read_text())
            files = {name: self.out / "journal" / f"{name}.jsonl" for name in said["streams"]}
            return said["state"] != "running" and all(
                file.stat().st_size >= said["streams"][name] for name, file in files.items()
            )
        return False

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the rows of one record class so far."""
        return [row for row in self.rows if row["r"] == kind]


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Start clusters that are gone, with everything below them, when the test ends."""
    benches: list[Bench] = []

    def make(*, n_workers: int = 1, n_slots: int = 1) -> Bench:
        bench = Bench(tmp_path, n_workers=n_workers, n_slots=n_slots)
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.close()


#: Makes an interpreter one where drlnb is not installed.
_WITHOUT = """
import importlib.metadata, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "drlnb":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def version(name, known=importlib.metadata.version):
    return known("no-drlnb" if name == "drlnb" else name)

sys.meta_path.insert(0, Without())
importlib.metadata.version = version
"""


class ForeignCluster:
    """A scheduler and workers, started by Dask's own commands."""

    def __init__(self, root: Path, options: Sequence[str]) -> None:
        self.root, self.options = root, list(options)
        self.log = (root / "dask.log").open("wb")
        self.file = root / "scheduler.json"
        self.started: list[subprocess.Popen[bytes]] = []
        self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        wait_until(self.file.is_file, "scheduler file", 30.0)

    def _start(self, command: str, *options: str, **environment: str) -> "subprocess.Popen[bytes]":
        line = [sys.executable, "-m", f"distributed.cli.{command}", "--scheduler-file", str(self.file), *options]
        line += ["--no-dashboard", *self.options]
        process = subprocess.Popen(line, stdout=self.log, stderr=self.log, env={**os.environ, **environment})
        self.started.append(process)
        return process

    def add_workers(self, n: int = 1, *, bare: bool = False) -> "subprocess.Popen[bytes]":
        """Start workers, each with a nanny; return the process that has them below it.  `bare`: they lack drlnb."""
        numbers = ("--nworkers", str(n), "--nthreads", "1")
        hidden = self.root / "without"
        hidden.mkdir(exist_ok=True)
        (hidden / "sitecustomize.py").write_text(_WITHOUT)
        environment = {"PYTHONPATH": str(hidden)} if bare else {}
        return self._start("dask_worker", *numbers, "--local-directory", str(self.root), **environment)

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        """End a process of ours in good order."""
        process.terminate()
        process.wait(20.0)
        self.started.remove(process)

    def close(self) -> None:
        """End everything and assert that nothing of it is left."""
        family = [child for p in self.started for child in psutil.Process(p.pid).children(recursive=True)]
        for process in reversed(list(self.started)):
            self.end(process)
        alive = survivors(family, 5.0)
        for process in alive:
            process.kill()
        self.log.close()
        assert not alive, f"left behind: {alive}"


@pytest.fixture
def make_foreign(tmp_path: Path) -> Iterator[Callable[..., ForeignCluster]]:
    """Start a cluster without workers by Dask's own commands; it is gone when the test ends."""
    clusters: list[ForeignCluster] = []

    def make(*options: str) -> ForeignCluster:
        clusters.append(ForeignCluster(tmp_path, options))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


@pytest.fixture
def foreign_cluster(make_foreign: Callable[..., ForeignCluster]) -> str:
    """Return the scheduler file of a cluster with two workers."""
    cluster = make_foreign()
    cluster.add_workers(2)
    return str(cluster.file)
