"""Ask a run, live or recorded, how it stands and for its journal, policies and pictures; steer it while it trains."""

import asyncio
import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from drlnb.fleet import faces, steering
from drlnb.fleet.faces import say
from drlnb.fleet.plain import Row
from drlnb.fleet.policies.files import refuse_code
from drlnb.fleet.policies.modules import load_module
from drlnb.fleet.policies.policy import load_model
from drlnb.fleet.rows.tables import frame_of, from_second, table_rows
from drlnb.fleet.watch import Watch, known, known_rl, outcome, status_of
from drlnb.fleet.whatif.preview import Preview, preview
from drlnb.records.attributes import fixed
from drlnb.records.journal import Journal
from drlnb.records.spec import FitWork, WorkSpec
from drlnb.rl.tracking.sinks import Sink
from drlnb.views.folds.status import TaskStatus

__all__ = ["Training"]

#: How often who awaits a run looks whether it has ended.
_LOOK_S = 0.05


@fixed()
class Training:
    """A run of one or more tasks, as far as its `watch` has brought its rows; it keeps its fleet alive.

    Made by :meth:`drlnb.fleet.fleet.Fleet.train`, :func:`drlnb.resume` and :func:`drlnb.play`.  A thread brings the
    rows.  Nothing blocks but :meth:`wait`, :meth:`close` and, until the cluster has answered, the steering methods; of
    a recording, these raise ConfigError.
    """

    watch: Watch
    id: str
    #: Its tasks, by name.
    specs: Mapping[str, WorkSpec]
    #: Its directory.
    out: Path
    #: Decision -> name, as the run began.
    planners: Mapping[str, str]
    fleet: Any

    def __init__(self, watch: Watch, *, planners: Mapping[str, str] | None = None, fleet: Any = None) -> None:
        self.watch = watch
        self.id, self.specs, self.out = watch.run_id, watch.specs, watch.folder.path
        self.planners = dict(planners or {})
        self.fleet = fleet

    def __repr__(self) -> str:
        rows = ", ".join(f"{t.name} {t.n_timesteps:,}/{t.total_timesteps:,}" for t in self.tasks.values())
        return f"<{type(self).__name__} {self.id} {self.status}: {rows}>"

    # ------------------------------------------------------------------ watch
    @property
    def tasks(self) -> dict[str, TaskStatus]:
        """Each task's status now, by name."""
        return self.watch.tasks

    @property
    def status(self) -> str:
        """``running`` (or ``paused``) while any task is; then ``failed``, ``stopped`` or ``done``, the worst end."""
        return status_of(self.tasks)

    @property
    def ended(self) -> bool:
        """Whether every task has ended, or nobody watches any more."""
        return self.watch.ended

    @property
    def notices(self) -> tuple[str, ...]:
        """What went wrong beside the training, in words."""
        return self.watch.notices

    def wait(self, timeout_s: float | None = None) -> dict[str, TaskStatus]:
        """Wait until every task has ended.

        Parameters
        ----------
        timeout_s
            None: as long as it takes.

        Returns
        -------
        dict
            Each task's last status.

        Raises
        ------
        TrainingFailed
            If a task failed; the message names it and the cause.
        TimeoutError
            If the time is up first; the training goes on.
        ConfigError
            If the tasks can have no slot meanwhile, because this is inside the block of a lease that holds all of them.
        """
        if self.fleet is not None and not self.ended and timeout_s is None:
            self.fleet.leases.refuse_endless_wait(f"run {self.id}")
        with _interruptible(self):
            ended = self.watch.settle(timeout_s)
        if not ended:
            raise TimeoutError(f"run {self.id} is still {self.status} after {timeout_s:g} s")
        return outcome(self.tasks)

    def __await__(self) -> Generator[object, None, dict[str, TaskStatus]]:
        """Wait without blocking the loop: panels stay alive meanwhile."""
        if self.fleet is not None and not self.ended:
            yield from self.fleet.leases.refuse_endless_await(f"run {self.id}").__await__()
        with _interruptible(self):
            while not self.ended:
                yield from asyncio.sleep(_LOOK_S).__await__()
        return outcome(self.tasks)

    def close(self, timeout_s: float = 7.0) -> None:
        """Stop watching (or playing); a run goes on if its cluster does.

        Parameters
        ----------
        timeout_s
            Longest wait for the watching thread to end.
        """
        self.watch.close(timeout_s)

    # ------------------------------------------------------------------ steer
    def stop(self, task: str | None = None, *, now: bool = False) -> None:
        """Stop within seconds, with a checkpoint; returns at once.

        A round that would take longer than 5 s, or wait for a lost collector, is left unfinished: the task ends as of
        the last commit, and :attr:`notices` says so.

        Parameters
        ----------
        task
            None: every task.
        now
            Stop at once: what was done since the last checkpoint is lost.
        """
        steering.control(self.watch, "kill" if now else "stop", task)

    def pause(self, task: str | None = None) -> None:
        """Finish the round, write a checkpoint, rest."""
        steering.control(self.watch, "pause", task)

    def resume(self, task: str | None = None) -> None:
        """Go on after a pause."""
        steering.control(self.watch, "resume", task)

    def checkpoint(self, task: str | None = None) -> None:
        """Write a checkpoint at the next round boundary."""
        steering.control(self.watch, "checkpoint", task)

    def set(self, key: str, value: object, task: str | None = None) -> None:
        """Change a setting of the running tasks; from when on it counts is in docs/reference/settings.md.

        It outlives a move of the task to another executor or node, and is in its next checkpoint.

        Parameters
        ----------
        key
            ``leasing.hold``: which planner decides how long a slot is kept; ``task.priority``: who comes first;
            ``warmup.planner``, ``warmup.collector_mode``, ``warmup.rho`` ...: what becomes of collectors between two
            rounds; ``rl.NAME``: a setting of the algorithm, such as ``rl.learning_rate``; ``leasing.NAME``: a setting
            of the pool, for all who share it; ``slot.drain``, ``slot.undrain``: a slot is lent no more, or again.
        value
            Its new value, judged beside what is in force now; of a slot its name.
        task
            None: all that still train.

        Raises
        ------
        ConfigError
            If the key or the task is unknown, a task's algorithm cannot change the setting while it trains, the value
            is wrong, or nothing that is meant trains any more.  Nothing has been changed then.
        """
        steering.change(self.watch, key, value, task)

    slow_down = steering.slow_down

    def restart(self, task: str | None = None) -> None:
        """Start a task that failed or was stopped again, from its newest checkpoint; the others are left alone.

        Parameters
        ----------
        task
            None: every task that failed or was stopped.

        Raises
        ------
        ConfigError
            If there is no such task, it has not failed and was not stopped, or this handle was closed.
        RunLocked
            If the run goes on somewhere else.
        PeerError
            If the cluster is gone; :func:`drlnb.resume` goes on with the run on another one.
        """
        steering.restart(self.watch, task)

    def track(self, track: "str | Sink | Sequence[str | Sink]") -> None:
        """Send the run's scalars elsewhere too, from its first round on; this process writes, no Dask worker.

        A sink that breaks is named in :attr:`notices`; training goes on.  Sinks end with the run.

        Parameters
        ----------
        track
            ``tensorboard``, ``wandb``, ``mlflow``, an object of :class:`drlnb.rl.tracking.sinks.Sink`'s form, or
            several.

        Raises
        ------
        ConfigError
            If it is something else.
        MissingExtra
            If its library is not installed.
        """
        watch = steering.followed(self.watch)
        watch.tracking.begin(track)
        if self.ended or watch.closed:
            watch.tracking.close()

    def record(self, key: str, value: float | None, task: str | None = None, *, mean: bool = False) -> None:
        """Add a scalar of your own to the tracked rows: of several values between two rows the last one counts.

        Parameters
        ----------
        key
            Its name, such as ``mine/temperature``.
        value
            A number; None with `mean`: nothing.
        task
            None: every task.
        mean
            Average the values between two rows instead.

        Raises
        ------
        ConfigError
            If nothing tracks the run, or there is no such task.
        """
        if task is not None:
            known(self.specs, task)
        steering.followed(self.watch).tracking.record(key, value, task=task, mean=mean)

    # ------------------------------------------------------------------ results
    def load(self, task: str | None = None, *, trust: bool = False) -> Any:
        """Return the policy of a task's newest checkpoint; of supervised work its module, in evaluation mode.

        Parameters
        ----------
        task
            Its name; None where the run has only one.
        trust
            Of a recording, take what was made by a function of its author's as well: using it runs their code.

        Raises
        ------
        ConfigError
            If there is no such task, or its module cannot be rebuilt here.
        CheckpointError
            If it has no checkpoint yet, or a recording's holds code and `trust` is not given.
        """
        spec = known(self.specs, task)
        if not (trust or self.watch.live):
            refuse_code(spec.to_plain(), self.out)
        if isinstance(spec, FitWork):
            return load_module(spec, self.out)
        return load_model(known_rl(self.specs, task), self.watch.folder.checkpoints / spec.name)

    def journal(self, since: float = 0.0) -> Journal:
        """Return the run's journal as it is now; of a recording, the part that has been played.

        Parameters
        ----------
        since
            Leave out events before this, in seconds on each stream's own clock, and what was answered to them.

        Raises
        ------
        JournalError
            If there is none yet.
        """
        return from_second(self.watch.journal(), since)

    def rows(self, table: str = "metrics", every: int = 1) -> list[Row]:
        """Return the rows of a table as plain data.

        Parameters
        ----------
        table
            ``metrics``, ``rounds``, ``leases``, ``pool``, ``episodes``, ``placement``, ``swapping``, ``batching`` or
            ``shares``: docs/reference/tracking.md has their columns.
        every
            Leave all rows out but every so manieth: the journal is never held in memory, the rows are.

        Raises
        ------
        ConfigError
            If there is no such table, or `every` is no whole number above 0.
        """
        return table_rows(self.journal(), table, every)

    def frame(self, table: str = "metrics", every: int = 1) -> Any:
        """Return the rows of a table as a ``pandas.DataFrame``; as of :meth:`rows`.

        Raises
        ------
        ConfigError
            As of :meth:`rows`.
        MissingExtra
            If pandas is not installed.
        """
        return frame_of(self.rows(table, every))

    def preview(self, key: str, value: object, task: str | None = None) -> Preview:
        """Compute what would come of a change, without making it, from the settings that are in force now.

        For leasing and warm-up, the durations of this run are played once more on a virtual clock, before and after the
        change; for batching its splits, with the speeds that members had.  For swapping, the recorded gradient step is
        planned again, which takes up to seconds.

        Parameters
        ----------
        key
            ``leasing.hold``, another setting of leasing, ``task.priority``, ``slots``, ``warmup.NAME``,
            ``batching.NAME`` or ``swapping.NAME``.
        value
            Its new value.
        task
            None: all that still train; in a run that has ended, all.

        Returns
        -------
        Preview
            A figure before and after, :meth:`~drlnb.fleet.whatif.preview.Preview.rows` of it, and by how much the
            simulation of things as they are misses what was recorded, ``calibration_frac``: for leasing and warm-up
            rounds and waits of each task, for batching and swapping seconds of a step.

        Raises
        ------
        ConfigError
            If the key or task is unknown, the value wrong, too little recorded yet (5 rounds of a task, 4 splits, a
            start of the kind that is asked for), or the setting cannot matter where nothing fails.
        """
        training = [name for name, row in self.tasks.items() if not row.ended] or list(self.specs)
        return preview(self.journal(), key, value, task, tasks=training, run=self.id)

    # ------------------------------------------------------------------ pictures
    #: Tasks and leases in a notebook.
    _repr_mimebundle_ = faces.shown_as("desk")

    def panel(self, name: str | None = None, **settings: object) -> Any:
        """Return a live panel; None: the first two of those that there are.

        Parameters
        ----------
        name
            ``fleet`` (the tasks), ``leasing``, ``placement``, ``batching``, ``distribution``, ``swapping``.
        **settings
            As its :meth:`code` writes them.

        Raises
        ------
        MissingFace
            If no panels are installed.
        """
        return faces.face("panel")(self, name, **settings)

    def report(self, path: str | Path, **options: object) -> Any:
        """Write the run as it is now as one HTML file that needs no network.

        Parameters
        ----------
        path
            The file.
        **options
            ``notes`` (text below the summary).

        Raises
        ------
        MissingFace
            If no reports are installed.
        """
        here = any(self.watch.folder.journal.glob("*.jsonl"))
        return faces.face("report")(self.out if here else self.journal(), path, **options)


@contextlib.contextmanager
def _interruptible(run: Training) -> Iterator[None]:
    """Write in a notebook that an interrupted cell has ended its waiting."""
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        if faces.notebook() and not run.ended:
            say(f"interrupted: this cell waits no more, run {run.id} goes on (run.stop() ends it)")
        raise
