"""Watch and steer a run while its tasks train."""

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from drlnb.fleet.follower import Follower
from drlnb.fleet.launch import same_work
from drlnb.fleet.plain import checked_plain
from drlnb.fleet.run import Run
from drlnb.fleet.watch import known, refuse_task, status_of
from drlnb.planning.settings import owner, unknown_setting
from drlnb.records.errors import ConfigError, PeerError, RunLocked
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.resolve import PREFIX, live_keys, live_value
from drlnb.rl.tracking.sinks import Sink

__all__ = ["STOP_S", "Training", "change_all", "going_on", "stop_all"]

#: Longest wait for the checkpoints of runs that are stopped, in seconds.
STOP_S = 60.0
#: Ends that a task can be started again from.
_RESTARTABLE = ("failed", "stopped")


class Training(Run):
    """A run of one or more tasks; made by :meth:`drlnb.fleet.fleet.Fleet.train` and :func:`drlnb.resume`.

    A thread follows the journal.  Nothing blocks but :meth:`wait`, :meth:`close` and, until the cluster has answered,
    the steering methods.
    """

    watch: Follower

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
        _control(self.watch, "kill" if now else "stop", task)

    def pause(self, task: str | None = None) -> None:
        """Finish the round, write a checkpoint, rest."""
        _control(self.watch, "pause", task)

    def resume(self, task: str | None = None) -> None:
        """Go on after a pause."""
        _control(self.watch, "resume", task)

    def checkpoint(self, task: str | None = None) -> None:
        """Write a checkpoint at the next round boundary."""
        _control(self.watch, "checkpoint", task)

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
        _change(self.watch, key, value, task)

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
        _restart(self.watch, task)

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
        self.watch.tracking.begin(track)
        if self.ended or self.watch.closed:
            self.watch.tracking.close()

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
        self.watch.tracking.record(key, value, task=task, mean=mean)


def going_on(
    trainings: Iterable[Training], specs: Sequence[TaskSpec], planners: Mapping[str, str], out: str | Path | None
) -> Training | None:
    """Return the run that goes on with just these tasks and planners, None if there is none.

    Parameters
    ----------
    trainings
        Those that are known.
    specs, planners
        What was asked for.
    out
        Its directory; None: any.
    """
    for training in trainings:
        here = out is None or Path(out).expanduser().absolute() == training.out
        alive = not training.ended and not training.watch.closed
        if here and alive and training.planners == planners and same_work(training.specs.values(), specs):
            return training
    return None


def stop_all(trainings: Iterable[Training], timeout_s: float) -> None:
    """Stop what still trains, and wait for the checkpoints."""
    running = [training for training in trainings if not training.ended]
    for training in running:
        with contextlib.suppress(PeerError):
            training.stop()
    deadline = time.monotonic() + timeout_s
    for training in running:
        training.watch.settle(max(0.0, deadline - time.monotonic()))


def change_all(trainings: Iterable[Training], key: str, value: object, task: str | None) -> None:
    """Change a setting of whatever trains, or of the tasks of one name; nothing is changed if one cannot have it.

    Raises
    ------
    ConfigError
        If the key is unknown, the value wrong, or no task is meant.
    """
    if not owner(key) and not key.startswith(PREFIX):
        raise ConfigError(unknown_setting(key))
    meant = [run for run in trainings if not run.ended and (task is None or task in run.specs)]
    if not meant:
        whose = "task trains" if task is None else f"task {task!r} trains"
        raise ConfigError(f"{key} cannot be changed: no {whose} on this fleet")
    for training in meant:
        _change(training.watch, key, value, task, try_only=True)
    for training in meant:
        training.set(key, value, task)


# ---------------------------------------------------------------------- what is asked for is checked, then sent
def _control(watch: Follower, action: str, task: str | None) -> None:
    """Stop, kill, pause, resume or checkpoint one task or all; a run that has ended is left as it is."""
    if task is not None:
        known(watch.specs, task)
    if not watch.ended:
        watch.link.control(watch.run_id, action, task=task, reason="asked for")


def _change(watch: Follower, key: str, value: object, task: str | None, *, try_only: bool = False) -> None:
    """Change a setting, as of :meth:`drlnb.fleet.training.Training.set`; `try_only`: raise what that would, no more.

    A setting of the algorithm is checked here, for every task that is meant; one of scheduling is judged by the
    cluster, beside what is in force there.
    """
    if task is not None:
        known(watch.specs, task)
    refuse_task(key, task)
    meant = {name: row for name, row in watch.tasks.items() if task in (None, name)}
    if watch.ended:
        raise ConfigError(f"run {watch.run_id} is {status_of(watch.tasks)}: nothing is left to change")
    specs = [watch.specs[name] for name, row in meant.items() if not row.ended]
    if not specs:
        names = ", ".join(f"{name} is {row.state}" for name, row in meant.items())
        raise ConfigError(f"task {names}: nothing is left to change")
    if owner(key):
        values = [checked_plain(key, value)]
    elif key.startswith(PREFIX):
        values = [live_value(spec, key, value) for spec in specs]  # all are checked before any is sent
    else:
        raise ConfigError(unknown_setting(key, sorted({known for spec in specs for known in live_keys(spec)})))
    send = watch.link.check if try_only else watch.link.set
    send(watch.run_id, key, values[0], task=task)


def _restart(watch: Follower, task: str | None) -> None:
    """Start tasks again; as of :meth:`drlnb.fleet.training.Training.restart`."""
    if task is not None:
        known(watch.specs, task)
    states, out = {name: status.state for name, status in watch.tasks.items()}, str(watch.folder.path)
    names = [name for name, state in states.items() if state in _RESTARTABLE and task in (None, name)]
    if not names and task is None:
        raise ConfigError(f"no task of run {watch.run_id} has failed or was stopped")
    if not names:
        raise ConfigError(
            f"task {task} is {states[str(task)]}: only one that failed or was stopped can be started again"
        )
    if watch.closed:
        raise ConfigError(f"this handle of run {watch.run_id} was closed; go on with: drlnb.resume({out!r})")
    lock = watch.link.lock(watch.run_id)
    live = watch.folder.live_lock() if watch.ended else None
    if live is not None and live.epoch != lock.epoch:
        raise RunLocked(f"{out} is in use: {live.said}")
    with watch.standing:
        for name in names:
            try:
                attempt = watch.link.restart(watch.run_id, name)
            except PeerError as error:
                raise PeerError(error.node, f"{error.what}; go on with: drlnb.resume({out!r})") from None
            watch.restarted(name, attempt)
    watch.folder.write_lock(lock)
    watch.go_on()
