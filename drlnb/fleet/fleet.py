"""How does a person get a pool of slots and put tasks onto it?  The one place where everything is put together."""

import atexit
import contextlib
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from drlnb.fleet.cluster.cluster import check_pool, close_at_exit, current_client, start_cluster, sweep
from drlnb.fleet.cluster.link import connect
from drlnb.fleet.cluster.pool_facts import Pooled
from drlnb.fleet.cluster.user_lease import Lending
from drlnb.fleet.faces import faces
from drlnb.fleet.faces.say import note, say
from drlnb.fleet.launch import attach, default_out, launch, run_spec, same_work
from drlnb.fleet.tasks.live_settings import plain
from drlnb.fleet.tasks.planners import planner_names
from drlnb.fleet.tasks.task import Task, task_specs
from drlnb.fleet.training import Training
from drlnb.planning.settings import owner, unknown_setting
from drlnb.records.errors import ConfigError, PeerError
from drlnb.rl.algorithms.live_settings import PREFIX
from drlnb.rl.tracking.sinks import sinks_of
from drlnb.runtime.files.run_directory import RunDir

__all__ = ["Fleet", "default_out", "launch", "run_spec"]

#: Longest wait for the checkpoints of an own cluster's runs when it is closed, in seconds.
_STOP_S = 60.0


class Fleet(Pooled, Lending):
    """A pool of slots on a Dask cluster, and the runs that share it.

    Parameters
    ----------
    client
        Client, Cluster, address or scheduler file of a cluster where drlnb is installed.  None: the current Dask
        client if there is one, else a cluster of our own on this machine, in processes of its own.
    n_workers
        Dask workers of a cluster of our own; None: 1.
    slots
        ``"auto"``: every CUDA device, or 2 virtual CPU devices where there is none; or how many; or which, by the names
        that PyTorch has for them: ``["cuda:0", "cuda:2"]`` (as torch counts on each node), ``["GPU-<uuid>"]``, or
        virtual ones, ``["cpu:0", "cpu:1"]``; ``"n0/gpu1"`` is that of one node.
    seats
        Slots of each device: so many leases at once, each with an executor of its own; at most 4, on virtual devices
        never more than there are CPU cores.  ``"auto"``: as many as pay, found out while tasks train.
    isolation
        ``"shared"``: one executor process per slot serves all tasks, so that changing hands costs next to nothing; when
        it dies, all of them load their models anew.  ``"process"``: each task has a process of its own on each slot
        that it uses; one that dies, or runs out of memory, costs no other task anything.
    name
        Shown in ``repr``.

    Raises
    ------
    ConfigError
        If a number is wrong, more slots are asked for than there are, or a name means no device: the message lists
        what there is.
    SchedulerUnreachable
        If no scheduler answers within 15 s.

    Notes
    -----
    Closing a fleet stops the runs of its own cluster, with a checkpoint; on somebody else's cluster runs go on.
    In a notebook, ``Fleet()`` again gives the fleet whose own cluster is still up, and ``train`` again with the tasks
    of a run that goes on gives that run: a cell may be run twice.
    """

    def __new__(
        cls,
        client: Any = None,
        *,
        n_workers: int | None = None,
        slots: int | str | Sequence[str] = "auto",
        seats: int | str = 1,
        isolation: str = "shared",
        name: str | None = None,
    ) -> Self:
        """Return the fleet of this notebook whose own cluster is up, if that is what is asked for; else a new one."""
        del name
        check_pool(n_workers, slots, seats, isolation)  # before a fleet that is idle is closed for the sake of another
        found = _own.get("fleet") if client is None and faces.notebook() else None
        if not isinstance(found, cls) or found._closed or not found._serves(n_workers, slots, seats, isolation):
            return super().__new__(cls)
        say(f"using the fleet that is up already ({len(found.slots)} slots at {found.address})")
        return found

    def __init__(
        self,
        client: Any = None,
        *,
        n_workers: int | None = None,
        slots: int | str | Sequence[str] = "auto",
        seats: int | str = 1,
        isolation: str = "shared",
        name: str | None = None,
    ) -> None:
        if "pool" in self.__dict__:
            return  # it was there already
        n_slots, names = check_pool(n_workers, slots, seats, isolation)
        if client is None:
            client = current_client()
        if client is not None and n_workers is not None:
            raise ConfigError("n_workers is for a cluster of our own, not for one that is there already")
        self.name = name or "fleet"
        self._trainings: list[Training] = []
        self._closed = False
        self._handle: Any = None
        self._root: Path | None = None
        if client is None:
            self._handle, self._root = start_cluster(n_workers or 1)
            self._n_workers = n_workers or 1
        self._finalizer = weakref.finalize(self, sweep, self._handle, self._root)
        try:
            if self._handle is None:
                self._link = connect(client)
            else:
                self._link = connect(self._handle.address, pid=self._handle.pid)
            own_workers = (n_workers or 1) if self._handle is not None else None
            self.pool = self._link.open_pool(
                n_slots, seats=seats, names=names, isolation=isolation, own_workers=own_workers
            )
        except BaseException:
            if (link := getattr(self, "_link", None)) is not None:
                link.close()  # its client, if it is ours, would go on
            self._finalizer()
            raise
        self._at_exit = close_at_exit(self)
        if self._handle is not None:
            _own["fleet"] = self
        for notice in self.notices:
            note(notice)

    def __repr__(self) -> str:
        kind = "own cluster" if self._handle is not None else "cluster"
        state = "closed" if self._closed else f"{len(self.pool.slots)} slots on {len(self.pool.nodes)} nodes"
        return f"<Fleet {self.name!r}: {state}, {kind} at {self.address}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Show the launcher in a notebook, ``repr`` elsewhere; never raises."""
        del include, exclude
        return faces.mimebundle("launcher", self)

    def panel(self, **settings: Any) -> Any:
        """Return the launcher: a form, and the tasks of the newest run.

        Raises
        ------
        MissingFace
            If no panels are installed.
        """
        return faces.face("launcher")(self, **settings)

    def _serves(
        self, n_workers: int | None, slots: int | str | Sequence[str], seats: int | str, isolation: str
    ) -> bool:
        """Whether this fleet is what was asked for; an idle one that is not is closed."""
        same = self._has(slots) and seats in (1, self.pool.seats) and isolation in ("shared", self.pool.isolation)
        if same and n_workers in (None, self._n_workers):
            return True
        if any(not training.ended for training in self._trainings):
            raise ConfigError(
                f"a fleet with {len(self.slots)} slots is training in this notebook; close it first: fleet.close()"
            )
        self.close()
        return False

    @property
    def closed(self) -> bool:
        """Whether it has hung up."""
        return self._closed

    @property
    def trainings(self) -> tuple[Training, ...]:
        """The runs that were started or attached here, oldest first."""
        return tuple(self._trainings)

    def train(
        self,
        tasks: str | Task | Iterable[str | Task],
        *,
        out: str | Path | None = None,
        on_existing: str = "error",
        planners: Mapping[str, str] | str | None = None,
        track: Any = None,
        env_timeout_s: float | None = 60.0,
        settings: Mapping[str, Any] | None = None,
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
            Decision -> planner's name, where it shall not be the default; or ``"seed"``: the patents' own rules.
        track
            ``tensorboard``, ``wandb``, ``mlflow``, a sink of your own, or several; :meth:`Training.track`.
        env_timeout_s
            Seconds that a collector's environments may take for one step (with the resets in it), or to be made; one
            that hangs longer is interrupted or killed, its collector is started again, and the third time in a row
            fails its task.  None: all time.
        settings
            Settings of scheduling to begin with, as ``{"warmup.collector_mode": "respawn"}``; :meth:`Training.set`
            changes them later.

        Raises
        ------
        ConfigError
            If tasks, planners, settings, sinks or the directory are wrong.
        MissingExtra
            If a sink's library is not installed.
        EnvError
            If an environment cannot be built, or its spaces cannot be served; no run directory is made.
        RunLocked
            If a live run uses the directory.
        SpecMismatch
            If another run would be resumed.
        """
        specs, names = task_specs(tasks), planner_names(planners)
        sinks = sinks_of(track)  # wrong ones are told before anything starts
        if faces.notebook():
            for training in self._trainings:
                if _goes_on(training, out) and same_work(training, specs, names):
                    say(f"{training!r} goes on at {self.address}: attached (run.stop() ends it)")
                    if sinks and not training.tracked:
                        training.track(sinks)
                    return training
        spec = {**run_spec(specs, names, env_timeout_s=env_timeout_s, settings=settings), "pool": self.shape}
        training = self._started(launch(self._link, spec, Path(out or default_out()), on_existing, fleet=self))
        if sinks:
            training.track(sinks)
        return training

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

    def probe(self, env: str) -> Mapping[str, Any]:
        """Return an environment's spaces, or raise EnvError as :meth:`train` would; takes seconds the first time."""
        return self._link.probe_env(env)

    def set(self, key: str, value: Any, task: str | None = None) -> None:
        """Change a setting of the pool, or of all tasks that train on it.

        Parameters
        ----------
        key
            ``leasing.NAME`` of the pool (such as ``leasing.ttl_s``), ``slot.drain`` and ``slot.undrain``, or a key of
            :meth:`Training.set`.
        value
            Its new value, judged beside what is in force now; of a slot its name.
        task
            Only tasks of this name, in whichever run of this fleet; None: all.

        Raises
        ------
        ConfigError
            If the key is unknown, the value wrong, or no task is meant; nothing has been changed then.
        """
        if owner(key) == "pool":
            if task is not None:
                raise ConfigError(f"{key} belongs to the pool, not to a task: leave task out")
            self._link.set_pool(key, plain(key, value))
            return
        if not owner(key) and not key.startswith(PREFIX):
            raise ConfigError(unknown_setting(key))
        meant = [one for one in self.trainings if not one.ended and (task is None or task in one.specs)]
        if not meant:
            whose = "task trains" if task is None else f"task {task!r} trains"
            raise ConfigError(f"{key} cannot be changed: no {whose} on this fleet")
        for training in meant:
            training.check(key, value, task=task)
        for training in meant:
            training.set(key, value, task=task)

    def attach(self, run_id: str) -> Training:
        """Watch and steer a run that this cluster knows, from its beginning; closing it stops nothing.

        Raises
        ------
        ConfigError
            If there is no such run, or its directory cannot be read from here.
        """
        known = (run for run in reversed(self._trainings) if run.run_id == run_id and not run.closed)
        found = next(known, None)
        if found is None:
            return self._started(attach(self._link, run_id, fleet=self))
        if found.ended:  # a task may have been started again elsewhere
            found.go_on(next((row["tasks"] for row in self.runs() if row["run"] == run_id), {}))
        return found

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
        self._give_back()
        for training in self._trainings:
            training.close(timeout_s=0.0)
        with contextlib.suppress(OSError, TimeoutError):
            self._link.close()
        for training in self._trainings:
            training.close()


#: The fleet of this process whose cluster is its own, if its object still lives.
_own: "weakref.WeakValueDictionary[str, Fleet]" = weakref.WeakValueDictionary()


def _goes_on(training: Training, out: str | Path | None) -> bool:
    same = out is None or Path(out).expanduser().absolute() == training.out
    return same and not training.ended and not training.closed
