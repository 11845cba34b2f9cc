"""How does a person get a pool of slots and put tasks onto it?  The one place where everything is put together."""

import atexit
import contextlib
import datetime
import shutil
import sys
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from drlnb.fleet.existing import check, prepare
from drlnb.fleet.link import Link, connect
from drlnb.fleet.planners import planner_names
from drlnb.fleet.task import Task, task_specs
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError, EnvError, PeerError
from drlnb.records.spec import TaskSpec
from drlnb.runtime.rundir import RunDir
from drlnb.runtime.versions import versions

__all__ = ["Fleet", "default_out", "launch", "resume", "run_spec"]

#: Version of run.json.
_SPEC_FORMAT = 1
#: Longest wait for the checkpoints of an own cluster's runs when it is closed, in seconds.
_STOP_S = 60.0


class Fleet:
    """A pool of slots on a Dask cluster, and the runs that share it.

    Parameters
    ----------
    client
        Client, Cluster, address or scheduler file of a cluster where drlnb is installed.  None: the current Dask
        client if there is one, else a cluster of our own on this machine, in processes of its own.
    n_workers
        Dask workers of a cluster of our own; None: 1.
    slots
        ``"auto"``: every CUDA device, or 2 virtual CPU slots where there is none; else how many.
    name
        Shown in ``repr``.

    Raises
    ------
    ConfigError
        If a number is wrong, or more slots are asked for than there are.
    SchedulerUnreachable
        If no scheduler answers within 15 s.

    Notes
    -----
    Closing a fleet stops the runs of its own cluster, with a checkpoint; on somebody else's cluster runs go on.
    """

    def __init__(
        self, client: Any = None, *, n_workers: int | None = None, slots: int | str = "auto", name: str | None = None
    ) -> None:
        n_slots = _n_slots(slots)
        if n_workers is not None and (not isinstance(n_workers, int) or isinstance(n_workers, bool) or n_workers < 1):
            raise ConfigError(f"n_workers must be a whole number >= 1, got {n_workers!r}")
        if client is None:
            client = _current_client()
        if client is not None and n_workers is not None:
            raise ConfigError("n_workers is for a cluster of our own, not for one that is there already")
        self.name = name or "fleet"
        self._trainings: list[Training] = []
        self._closed = False
        self._handle: Any = None
        self._root: Path | None = None
        if client is None:
            self._handle, self._root = _start_cluster(n_workers or 1)
        self._finalizer = weakref.finalize(self, _sweep, self._handle, self._root)
        try:
            if self._handle is None:
                self._link = connect(client)
            else:
                self._link = connect(self._handle.address, pid=self._handle.pid)
            own_workers = (n_workers or 1) if self._handle is not None else None
            self.pool = self._link.open_pool(n_slots, own_workers=own_workers)
        except BaseException:
            self._finalizer()
            raise
        self._at_exit = _close_at_exit(self)
        for notice in self.pool.notices:
            sys.stderr.write(f"drlnb: {notice}\n")

    def __repr__(self) -> str:
        kind = "own cluster" if self._handle is not None else "cluster"
        state = "closed" if self._closed else f"{len(self.pool.slots)} slots on {len(self.pool.nodes)} nodes"
        return f"<Fleet {self.name!r}: {state}, {kind} at {self.address}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return self._link.address

    @property
    def slots(self) -> tuple[Any, ...]:
        """The slots that the pool has had since this fleet opened it."""
        return tuple(self.pool.slots)

    @property
    def nodes(self) -> tuple[Any, ...]:
        """The node agents that were up when this fleet opened the pool."""
        return tuple(self.pool.nodes)

    def train(
        self,
        tasks: str | Task | Iterable[str | Task],
        *,
        out: str | Path | None = None,
        on_existing: str = "error",
        planners: Mapping[str, str] | None = None,
    ) -> Training:
        """Start training; return as soon as every environment has been tried and the run is registered.

        Parameters
        ----------
        tasks
            Tasks or environment ids.
        out
            Run directory; None: ``runs/<date-time>``.
        on_existing
            What to do with a run that is there: ``error``, ``resume``, ``restart`` or ``overwrite``.
        planners
            Decision -> planner's name, where it shall not be the default.

        Raises
        ------
        ConfigError
            If tasks, planners or the directory are wrong.
        EnvError
            If an environment cannot be built, or its spaces cannot be served; no run directory is made.
        RunLocked
            If a live run uses the directory.
        SpecMismatch
            If another run would be resumed.
        """
        spec = run_spec(task_specs(tasks), planner_names(planners))
        where = Path(out) if out is not None else default_out()
        return self._started(launch(self._link, spec, where, on_existing, fleet=self))

    def go_on(self, out: str | Path) -> Training:
        """Go on with the run of a directory, from its last checkpoints.

        Raises
        ------
        ConfigError
            If no run is there, or it is finished.
        RunLocked
            If it is going on already.
        """
        return self._started(launch(self._link, RunDir(out).read_spec(), Path(out), "resume", fleet=self))

    def _started(self, training: Training) -> Training:
        self._trainings.append(training)
        return training

    def runs(self) -> list[dict[str, Any]]:
        """Return the runs that the cluster knows: id, directory, state, tasks."""
        return self._link.runs()

    def close(self, timeout_s: float = _STOP_S) -> None:
        """Hang up; an own cluster's runs are stopped first, with a checkpoint, and then the cluster.

        Parameters
        ----------
        timeout_s
            Longest wait for the checkpoints.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        try:
            if self._handle is not None:
                self._stop_runs(timeout_s)
        finally:
            self._hang_up()
            self._finalizer()

    def kill(self) -> None:
        """End our runs now, without checkpoints, and an own cluster with them."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        if self._handle is None:
            for training in self._trainings:
                with contextlib.suppress(PeerError):
                    training.kill()
        try:
            self._hang_up()  # first, or Dask's client complains at length that its scheduler is gone
        finally:
            if self._handle is not None:
                self._handle.kill()
            self._finalizer()

    def _stop_runs(self, timeout_s: float) -> None:
        running = [training for training in self._trainings if not training.ended]
        for training in running:
            with contextlib.suppress(PeerError):
                training.stop()
        deadline = time.monotonic() + timeout_s
        for training in running:
            training.settle(max(0.0, deadline - time.monotonic()))

    def _hang_up(self) -> None:
        for training in self._trainings:
            training.close(timeout_s=0.0)
        with contextlib.suppress(OSError, TimeoutError):
            self._link.close()
        for training in self._trainings:
            training.close()


def _n_slots(slots: int | str) -> int | None:
    if slots == "auto":
        return None
    if not isinstance(slots, int) or isinstance(slots, bool) or slots < 1:
        raise ConfigError(f"slots must be 'auto' or a whole number >= 1, got {slots!r}")
    return slots


def _current_client() -> Any:
    """Return the Dask client of this process, None if there is none (or Dask is not even imported)."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    with contextlib.suppress(ValueError):
        return Client.current()
    return None


def _start_cluster(n_workers: int) -> tuple[Any, Path]:
    """Start a cluster of our own; return its handle and its scratch folder.

    A thread starts it, so that Ctrl-C meanwhile cannot lose the handle of a process that is there already.
    """
    from drlnb.runtime.local import start_local

    root = Path(tempfile.mkdtemp(prefix="drlnb-"))
    with ThreadPoolExecutor(1, thread_name_prefix="drlnb-start") as starter:
        started = starter.submit(start_local, n_workers=n_workers, root=root)
        try:
            return started.result(), root
        except KeyboardInterrupt:
            started.result().kill()
            shutil.rmtree(root, ignore_errors=True)
            raise


def _sweep(handle: Any, root: Path | None) -> None:
    """Stop an own cluster, if there is one, and remove its scratch folder."""
    if handle is not None:
        handle.stop()
    if root is not None:
        shutil.rmtree(root, ignore_errors=True)


def _close_at_exit(fleet: Fleet) -> Any:
    """Close a fleet that the script forgot, while Dask's threads still live (Dask's own exit hooks run later)."""
    found = weakref.ref(fleet)

    def close() -> None:
        alive = found()
        if alive is not None:
            with contextlib.suppress(Exception):
                alive.close()

    atexit.register(close)
    return close


# ---------------------------------------------------------------------- one run
def default_out() -> Path:
    """Return a run directory named by the time, that is free."""
    now = datetime.datetime.now().astimezone()
    first = Path("runs") / now.strftime("%Y%m%d-%H%M%S")
    path, n = first, 1
    while path.exists():
        n += 1
        path = first.with_name(f"{first.name}-{n}")
    return path


def run_spec(specs: Sequence[TaskSpec], planners: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``run.json`` shall hold, with a new run id."""
    now = datetime.datetime.now().astimezone()
    return {
        "format": _SPEC_FORMAT,
        "run": f"{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}",
        "created": now.isoformat(timespec="seconds"),
        "tasks": [spec.to_plain() for spec in specs],
        "planners": dict(planners),
        "settings": {},
        "versions": versions(),
    }


def launch(
    link: Link, spec: Mapping[str, Any], out: Path, on_existing: str = "error", *, fleet: Any = None
) -> Training:
    """Try the environments, prepare the directory, register the run and start its masters.

    Parameters
    ----------
    link
        The way to the cluster.
    spec
        As of :func:`run_spec`, or what ``run.json`` holds.
    out, on_existing
        As of :meth:`Fleet.train`.
    fleet
        Kept alive as long as the training.
    """
    check(out, spec, on_existing)
    probed = {**spec, "tasks": _with_spaces(link, spec["tasks"])}
    run = prepare(out, probed, on_existing)
    spec = run.read_spec()
    attempts = {task["name"]: max(run.attempts(task["name"]), default=0) for task in spec["tasks"]}
    message = {key: spec[key] for key in ("run", "tasks", "planners")} | {"settings": spec.get("settings", {})}
    try:
        link.create_run({**message, "out": str(run.path), "resume": run.resumed, "attempts": attempts})
    except BaseException:
        if not run.resumed:
            run.remove()
            run.path.rmdir()
        raise
    run.write_lock(link.lock(spec["run"]))
    specs = tuple(TaskSpec.from_plain(task) for task in spec["tasks"])
    link.submit_anchors(spec["run"], [task.name for task in specs])
    return Training(spec["run"], specs, run, link, fleet)


def _with_spaces(link: Link, tasks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tasks with their environments' spaces; each environment that is not known yet is tried once."""
    spaces: dict[str, Mapping[str, Any]] = {}
    problems: list[EnvError] = []
    made = []
    for task in tasks:
        env = task["env"]
        if task.get("observation_space") is None and env not in spaces:
            try:
                spaces[env] = link.probe_env(env)
            except EnvError as error:
                problems.append(error)
                spaces[env] = {}
        made.append({**task, **spaces.get(env, {})})
    if len(problems) > 1:
        raise EnvError("; ".join(str(problem) for problem in problems))
    if problems:
        raise problems[0]
    return made


def resume(out: str | Path, client: Any = None, *, n_workers: int | None = None, slots: int | str = "auto") -> Training:
    """Go on with a run that was stopped or interrupted, from its last checkpoints.

    Parameters
    ----------
    out
        Its directory.
    client, n_workers, slots
        As of :class:`Fleet`.

    Returns
    -------
    Training
        Close its ``fleet`` when it has ended; otherwise that happens when this process ends.

    Raises
    ------
    ConfigError
        If no run is there, or it is finished.
    RunLocked
        If it is going on already.
    """
    check(out, RunDir(out).read_spec(), "resume")
    return Fleet(client, n_workers=n_workers, slots=slots).go_on(out)
