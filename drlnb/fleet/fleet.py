"""Put tasks onto a pool of slots: the one place where everything is put together."""

import atexit
import contextlib
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from drlnb.fleet import faces
from drlnb.fleet.cluster.pool import Client, Pool, Wanted, close_at_exit, current_client
from drlnb.fleet.cluster.user_lease import Lease, Leases
from drlnb.fleet.faces import note, say
from drlnb.fleet.fit import fit
from drlnb.fleet.follower import Follower
from drlnb.fleet.launch import Files, States, known_run, launch
from drlnb.fleet.plain import Plain, Row
from drlnb.fleet.steering import followed
from drlnb.fleet.tasks.planners import chosen, trained_for
from drlnb.fleet.tasks.run_spec import RunSpec, default_out, run_spec
from drlnb.fleet.tasks.task import Task, task_specs
from drlnb.fleet.training import Training
from drlnb.fleet.trainings import STOP_S, change_all, going_on, stop_all
from drlnb.fleet.watch import refuse_task
from drlnb.planning.settings import owner
from drlnb.records.attributes import fixed
from drlnb.records.errors import ConfigError, PeerError
from drlnb.records.journal import Journal
from drlnb.rl.tracking.sinks import Sink, sinks_of
from drlnb.runtime.files.run_directory import RunDir
from drlnb.views.folds.entries import decoded, journal_of

if TYPE_CHECKING:
    from drlnb.runtime.client.link import SlotRow

__all__ = ["Fleet", "client_of", "current_fleet"]


@fixed("closed")
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
        ``"auto"``: every CUDA device, or 2 virtual CPU devices where there is none; or how many; or which, by the names
        that PyTorch has for them: ``["cuda:0", "cuda:2"]`` (as torch counts on each node), ``["GPU-<uuid>"]``, or
        virtual ones, ``["cpu:0", "cpu:1"]``; ``"n0/gpu1"`` is that of one node.
    seats
        Slots of each device: so many leases at once, each with an executor of its own; at most 4, on virtual devices
        never more than there are CPU cores.
    isolation
        ``"shared"``: one executor process per slot serves all tasks, so that changing hands costs next to nothing; when
        it dies, all of them load their models anew.  ``"process"``: each task has a process of its own on each slot
        that it uses; one that dies, or runs out of memory, costs no other task anything.
    name
        Shown in ``repr``.

    Raises
    ------
    ConfigError
        If a number is wrong, there are fewer slots, or a name means no device: the message lists what there is.
    SchedulerUnreachable
        If no scheduler answers within 15 s.

    Attributes
    ----------
    address
        Of the scheduler.
    slots
        What the pool had when this fleet opened it.
    pool
        Its devices, slots and facts.
    leases
        The leases of loops of the user's own.
    trainings
        The runs that were started or attached here, oldest first.
    closed
        Whether it has hung up.

    Notes
    -----
    Closing a fleet stops the runs of its own cluster, with a checkpoint; on somebody else's cluster runs go on.
    In a notebook, ``Fleet()`` again gives the fleet whose own cluster is still up, and ``train`` again with the tasks
    of a run that goes on gives that run: a cell may be run twice.
    """

    name: str
    address: str
    slots: "tuple[SlotRow, ...]"
    pool: Pool
    leases: Leases
    trainings: list[Training]
    closed: bool
    _at_exit: Callable[[], None]

    def __new__(
        cls,
        client: Client = None,
        *,
        n_workers: int | None = None,
        slots: int | str | Sequence[str] = "auto",
        seats: int = 1,
        isolation: str = "shared",
        name: str | None = None,
    ) -> Self:
        """Return the fleet of this notebook whose own cluster is up, if that is what is asked for; else a new one."""
        # Refused, if it is wrong, before a fleet that is idle is closed for the sake of another.
        wanted = Wanted(n_workers=n_workers, slots=slots, seats=seats, isolation=isolation)
        up = _own.get("fleet") if client is None and faces.notebook() else None
        if isinstance(up, cls) and not up.closed:
            if up.pool.serves(wanted):
                say(f"using the fleet that is up already ({len(up.slots)} slots at {up.address})")
                return up
            if any(not training.ended for training in up.trainings):
                raise ConfigError(
                    f"a fleet with {len(up.slots)} slots is training in this notebook; close it first: fleet.close()"
                )
            up.close()
        made = super().__new__(cls)
        made.name = name or "fleet"
        made.pool = Pool(client, wanted)
        made.address, made.slots = made.pool.address, made.pool.slots
        made.leases = Leases(made.pool.link.client)
        made.trainings = []
        made.closed = False
        made._at_exit = close_at_exit(made.close)
        if made.pool.handle is not None:
            _own["fleet"] = made
        for notice in made.pool.said:
            note(notice)
        return made

    def __repr__(self) -> str:
        kind = "own cluster" if self.pool.handle is not None else "cluster"
        state = "closed" if self.closed else f"{len(self.slots)} slots on {self.pool.n_nodes} nodes"
        return f"<Fleet {self.name!r}: {state}, {kind} at {self.address}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def notices(self) -> tuple[str, ...]:
        """What a user should know of the pool: no CUDA device, or workers that cannot be used, also of later ones."""
        return self.pool.said if self.closed else self.pool.notices

    #: The launcher in a notebook.
    _repr_mimebundle_ = faces.shown_as("launcher")

    def panel(self, **settings: object) -> Any:
        """Return the launcher: a form, and the tasks of the newest run."""
        return faces.face("launcher")(self, **settings)

    # ------------------------------------------------------------------ runs
    def train(
        self,
        tasks: str | Task | Iterable[str | Task],
        *,
        out: str | Path | None = None,
        on_existing: str = "error",
        planners: Mapping[str, object] | str | None = None,
        track: str | Sink | Sequence[str | Sink] | None = None,
        env_timeout_s: float | None = 60.0,
        settings: Plain | None = None,
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
            Decision -> a planner's name (``relay:m=4``), or a planner of your own or its class, where it shall not be
            the default; or ``"patent"``: the patents' own rules, collectors that end between rounds included.
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
        specs, rules = task_specs(tasks), chosen(planners)
        sinks = sinks_of(track)  # wrong ones are refused before anything starts
        training = going_on(self.trainings, specs, rules.names, out) if faces.notebook() else None
        if training is None:
            spec = run_spec(specs, rules, env_timeout_s=env_timeout_s, settings=settings)
            training = self.begin(spec, out or default_out(), on_existing)
        else:
            say(f"{training!r} goes on at {self.address}: attached (run.stop() ends it)")
            sinks = [] if followed(training.watch).tracking.active else sinks
        if sinks:
            training.track(sinks)
        return training

    fit = fit

    def go_on(self, out: str | Path) -> Training:
        """Go on with the run of a directory, from its last checkpoints; raises what :func:`drlnb.resume` does."""
        return self.begin(RunSpec.read(RunDir(out)), out, "resume")

    def begin(
        self, spec: RunSpec, out: str | Path, on_existing: str, start: States | None = None, files: Files | None = None
    ) -> Training:
        """Start the run of a complete spec, if it is new from a state of each task; else as of :meth:`train`."""
        own = trained_for(lambda: [row.slot for row in self.pool.slots], spec.planners, spec.own_planners)
        whole = replace(spec, pool=self.pool.shape, own_planners=own)
        return self._watched(*launch(self.pool.link, whole, Path(out), on_existing, start=start, files=files))

    def runs(self) -> list[Row]:
        """Return the runs that the cluster knows: id, directory, state, tasks."""
        return self.pool.link.runs()

    def attach(self, run_id: str) -> Training:
        """Watch and steer a run that this cluster knows, from its beginning; closing it stops nothing.

        Raises
        ------
        ConfigError
            If there is no such run, or its directory cannot be read from here.
        """
        training = next((run for run in self.trainings[::-1] if run.id == run_id and not run.watch.closed), None)
        if training is None:
            return self._watched(*known_run(self.pool.link, run_id), guest=True)
        if training.ended:  # a task may have been started again elsewhere
            followed(training.watch).go_on(next((row["tasks"] for row in self.runs() if row["run"] == run_id), {}))
        return training

    def _watched(self, folder: RunDir, spec: RunSpec, *, guest: bool = False) -> Training:
        watch = Follower(self.pool.link, spec.run, spec.tasks, folder, guest=guest)
        self.trainings.append(Training(watch, planners=spec.planners, fleet=self))
        return self.trainings[-1]

    # ------------------------------------------------------------------ the pool
    def set(self, key: str, value: object, task: str | None = None) -> None:
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
        refuse_task(key, task)
        if owner(key) == "pool":
            self.pool.set(key, value)
        else:
            change_all(self.trainings, key, value, task)

    def lease(
        self,
        n_slots: int = 1,
        name: str = "loop",
        *,
        priority: int = 0,
        wait_s: float | None = None,
        timeout_s: float | None = None,
    ) -> Lease:
        """Return a lease for a loop of your own: ``with fleet.lease(name="mine") as lease: lease.run(fn, ...)``.

        It waits in the pool's queue like any task, and the tasks wait while it is held.

        Parameters
        ----------
        n_slots
            Slots wanted, all at once or none; functions then run on each of them.
        name
            Shown in journals and pictures; leases of one name follow one another.
        priority
            As of a task.
        wait_s
            Longest wait for the slots, in seconds; None: as long as it takes.
        timeout_s
            Seconds that a function may compute without a sign of life; None: the pool's ``leasing.compute_timeout_s``.

        Raises
        ------
        ConfigError
            If something of that is wrong, or the fleet is closed.
        """
        if self.closed:
            raise ConfigError("this fleet is closed: make a new one with drlnb.Fleet(...)")
        return self.leases.make(name, n_slots=n_slots, priority=priority, wait_s=wait_s, timeout_s=timeout_s)

    def journal(self) -> Journal:
        """Return the pool's newest records: who asked for slots, held them, waited, in runs or in loops of their own.

        It begins with the first lease of a loop (or the first call of this), and only the newest 10,000 to 20,000
        records are kept, in the scheduler's memory.  ``drlnb.views.leasing.gantt.gantt(fleet.journal())`` draws it.

        Raises
        ------
        PeerError
            If the scheduler does not answer.
        """
        return journal_of(decoded(self.pool.link.pool_rows()))

    # ------------------------------------------------------------------ the end
    def close(self, timeout_s: float = STOP_S) -> None:
        """Hang up; an own cluster's runs are stopped first, with a checkpoint, and then the cluster.

        Parameters
        ----------
        timeout_s
            Longest wait for the checkpoints.
        """
        if self.closed:
            return
        self.closed = True
        atexit.unregister(self._at_exit)
        try:
            if self.pool.handle is not None:
                stop_all(self.trainings, timeout_s)
        finally:
            self._hang_up()
            self.pool.close()

    def kill(self) -> None:
        """End our runs now, without checkpoints, and an own cluster with them."""
        if self.closed:
            return
        self.closed = True
        atexit.unregister(self._at_exit)
        if self.pool.handle is None:
            for training in self.trainings:
                with contextlib.suppress(PeerError):
                    training.stop(now=True)
        try:
            self._hang_up()  # first, or Dask's client complains at length that its scheduler is gone
        finally:
            self.pool.kill()

    def _hang_up(self) -> None:
        """Give back whatever is leased (what cannot be given back expires), and end the connection."""
        with contextlib.suppress(Exception):
            self.leases.close()
        for training in self.trainings:
            training.close(timeout_s=0.0)
        with contextlib.suppress(OSError, TimeoutError):
            self.pool.link.close()
        for training in self.trainings:
            training.close()


#: The fleet of this process whose cluster is its own, if its object still lives.
_own: "weakref.WeakValueDictionary[str, Fleet]" = weakref.WeakValueDictionary()


def current_fleet() -> Fleet:
    """Return the fleet of this process whose own cluster is up, else a new one (on Dask's current client, if any)."""
    up = _own.get("fleet")
    return up if up is not None and not up.closed else Fleet()


def client_of(attached: Client = None) -> Client:
    """Return the client of a client, a fleet, or what is up in this process (None); a text: why there is none."""
    attached = attached or current_client() or _own.get("fleet")
    if attached is None:
        return "no Dask cluster is attached: give a client or a fleet, distribution(client)"
    client = attached.pool.link.client if isinstance(attached, Fleet) else attached
    status = getattr(client, "status", f"no Dask client, but {client!r}")
    return client if status == "running" else f"the client of the cluster is {status}"
