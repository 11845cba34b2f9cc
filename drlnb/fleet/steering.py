"""Check what is asked for of a run, and send it to its cluster."""

from typing import Protocol

from drlnb.fleet.follower import Follower
from drlnb.fleet.plain import checked_plain
from drlnb.fleet.tasks.planners import not_of_rounds, without_effect
from drlnb.fleet.watch import Watch, known, refuse_task, status_of
from drlnb.planning.settings import owner, unknown_setting
from drlnb.records.errors import ConfigError, PeerError, RunLocked
from drlnb.records.settings import between, count, quoted
from drlnb.records.spec import FitWork
from drlnb.rl.algorithms.resolve import PREFIX, live_keys, live_value

__all__ = ["RESTARTABLE", "ROUNDS", "TIMES", "change", "control", "followed", "restart", "slow_down"]

#: So many times as long may a member take, in so many rounds.
TIMES, ROUNDS = between(1, 100), count(1)
#: Ends that a task can be started again from.
RESTARTABLE = ("failed", "stopped")


class _Watched(Protocol):
    """A run."""

    watch: Watch


def followed(watch: Watch) -> Follower:
    """Return what follows a run on its cluster; raise ConfigError for a recording: it cannot be steered."""
    if not isinstance(watch, Follower):
        raise ConfigError(f"this is a recording of run {watch.run_id}: nothing can be changed in it")
    return watch


def control(watch: Watch, action: str, task: str | None) -> None:
    """Stop, kill, pause, resume or checkpoint one task or all; a run that has ended is left as it is."""
    run = followed(watch)
    if task is not None:
        known(run.specs, task)
    if not run.ended:
        run.link.control(run.run_id, action, task=task, reason="asked for")


def change(watch: Watch, key: str, value: object, task: str | None, *, try_only: bool = False) -> None:
    """Change a setting, as of :meth:`drlnb.fleet.training.Training.set`; `try_only`: raise what that would, no more.

    A setting of the algorithm is checked here, for every task that is meant; one of scheduling is judged by the
    cluster, beside what is in force there.
    """
    run = followed(watch)
    if task is not None:
        known(run.specs, task)
    refuse_task(key, task)
    meant = {name: row for name, row in run.tasks.items() if task in (None, name)}
    if run.ended:
        raise ConfigError(f"run {run.run_id} is {status_of(run.tasks)}: nothing is left to change")
    specs = [run.specs[name] for name, row in meant.items() if not row.ended]
    if not specs:
        names = ", ".join(f"{name} is {row.state}" for name, row in meant.items())
        raise ConfigError(f"task {names}: nothing is left to change")
    idle = [
        without_effect([key], several=spec.n_learners > 1) if isinstance(spec, FitWork) else not_of_rounds([key])
        for spec in specs
    ]
    if all(idle):
        raise ConfigError(idle[0])
    if owner(key):
        values = [checked_plain(key, value)]
    elif key.startswith(PREFIX):
        values = [live_value(spec, key, value) for spec in specs]  # all are checked before any is sent
    else:
        raise ConfigError(unknown_setting(key, sorted({known for spec in specs for known in live_keys(spec)})))
    send = run.link.check if try_only else run.link.set
    send(run.run_id, key, values[0], task=task)


def slow_down(
    self: _Watched, member: str | int, factor: float = 2.0, n_rounds: int = 20, task: str | None = None
) -> None:
    """Have a learner or a collector take longer, from the next round on: an emulated slow member.

    It does its work, then sleeps; what comes of the work is the same.  It ends by itself, or with the task's attempt.

    Parameters
    ----------
    self
        The run.
    member
        Name of a slot, or number of a collector, as ``run.rows("shares")`` has them.
    factor, n_rounds
        So many times as long as it takes (1 to 100; 1: it is as usual again), in so many rounds of the task, those in
        which it has no share included.
    task
        None where the run has only one.

    Raises
    ------
    ConfigError
        If there is no such member or task, the task does not train, or a number is wrong.
    """
    run, spec = followed(self.watch), known(self.watch.specs, task)
    factor, n_rounds = TIMES.read("factor", factor), ROUNDS.read("n_rounds", n_rounds)
    if not isinstance(member, str | int) or isinstance(member, bool):
        raise ConfigError(f"member must be the name of a slot or the number of a collector, got {quoted(member)}")
    if (row := run.tasks[spec.name]).ended or run.ended:
        raise ConfigError(f"task {spec.name} is {row.state}: nobody can be slowed down")
    run.link.slow_down(run.run_id, spec.name, str(member), float(factor), n_rounds)


def restart(watch: Watch, task: str | None) -> None:
    """Start tasks again; as of :meth:`drlnb.fleet.training.Training.restart`."""
    run = followed(watch)
    if task is not None:
        known(run.specs, task)
    states, out = {name: status.state for name, status in run.tasks.items()}, str(run.folder.path)
    names = [name for name, state in states.items() if state in RESTARTABLE and task in (None, name)]
    if not names and task is None:
        raise ConfigError(f"no task of run {run.run_id} has failed or was stopped")
    if not names:
        raise ConfigError(
            f"task {task} is {states[str(task)]}: only one that failed or was stopped can be started again"
        )
    if run.closed:
        raise ConfigError(f"this handle of run {run.run_id} was closed; go on with: drlnb.resume({out!r})")
    lock = run.link.lock(run.run_id)
    live = run.folder.live_lock() if run.ended else None
    if live is not None and live.epoch != lock.epoch:
        raise RunLocked(f"{out} is in use: {live.said}")
    with run.standing:
        for name in names:
            try:
                attempt = run.link.restart(run.run_id, name)
            except PeerError as error:
                raise PeerError(error.node, f"{error.what}; go on with: drlnb.resume({out!r})") from None
            run.restarted(name, attempt)
    run.folder.write_lock(lock)
    run.go_on()
