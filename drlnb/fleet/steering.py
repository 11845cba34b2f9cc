"""Steer a run on its cluster: what is asked for is checked here first, then sent."""

from drlnb.fleet.follower import Follower
from drlnb.fleet.tasks.live_settings import sendable
from drlnb.fleet.watch import known, status_of
from drlnb.planning.settings import owner
from drlnb.records.errors import ConfigError, PeerError, RunLocked

__all__ = ["change", "check", "control", "restart"]

#: Ends that a task can be started again from.
_RESTARTABLE = ("failed", "stopped")


def control(watch: Follower, action: str, task: str | None) -> None:
    """Stop, kill, pause, resume or checkpoint one task or all; a run that has ended is left as it is."""
    if task is not None:
        known(watch.specs, task)
    if not watch.ended:
        watch.link.control(watch.run_id, action, task=task, reason="asked for")


def change(watch: Follower, key: str, value: object, task: str | None) -> None:
    """Change a setting; as of :meth:`drlnb.fleet.training.Training.set`."""
    watch.link.set(watch.run_id, key, _checked(watch, key, value, task), task=task)


def check(watch: Follower, key: str, value: object, task: str | None) -> None:
    """Raise what :func:`change` would, and change nothing."""
    watch.link.check(watch.run_id, key, _checked(watch, key, value, task), task=task)


def _checked(watch: Follower, key: str, value: object, task: str | None) -> object:
    """Return a value as plain data, if a task that still trains is meant by it."""
    if task is not None:
        known(watch.specs, task)
        if owner(key) == "pool":
            raise ConfigError(f"{key} belongs to the pool, not to a task: leave task out")
    meant = {name: row for name, row in watch.tasks.items() if task in (None, name)}
    if watch.ended:
        raise ConfigError(f"run {watch.run_id} is {status_of(watch.tasks)}: nothing is left to change")
    if all(row.ended for row in meant.values()):
        names = ", ".join(f"{name} is {row.state}" for name, row in meant.items())
        raise ConfigError(f"task {names}: nothing is left to change")
    checked: object = sendable([watch.specs[name] for name, row in meant.items() if not row.ended], key, value)
    return checked


def restart(watch: Follower, task: str | None) -> None:
    """Start tasks again; as of :meth:`drlnb.fleet.training.Training.restart`."""
    names, out = _restartable(watch, task), str(watch.folder.path)
    if watch.closed:
        raise ConfigError(f"this handle of run {watch.run_id} was closed; go on with: drlnb.resume({out!r})")
    lock = watch.link.lock(watch.run_id)
    live = watch.folder.live_lock() if watch.ended else None
    if live is not None and live.epoch != lock.epoch:
        raise RunLocked(f"run {watch.run_id} goes on at {live.address}: fleet.attach({watch.run_id!r}) there")
    with watch.standing:
        for name in names:
            try:
                attempt = watch.link.restart(watch.run_id, name)
            except PeerError as error:
                raise PeerError(error.node, f"{error.what}; go on with: drlnb.resume({out!r})") from None
            watch.restarted(name, attempt)
    watch.folder.write_lock(lock)
    watch.go_on()


def _restartable(watch: Follower, task: str | None) -> list[str]:
    """Return the tasks that are to be started again."""
    states = {name: status.state for name, status in watch.tasks.items()}
    if task is None:
        names = [name for name, state in states.items() if state in _RESTARTABLE]
        if not names:
            raise ConfigError(f"no task of run {watch.run_id} has failed or was stopped")
        return names
    known(watch.specs, task)
    if states[task] not in _RESTARTABLE:
        raise ConfigError(f"task {task} is {states[task]}: only one that failed or was stopped can be started again")
    return [task]
