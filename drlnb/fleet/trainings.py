"""Find, stop and change the runs of a fleet."""

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from drlnb.fleet.launch import same_work
from drlnb.fleet.steering import change
from drlnb.fleet.training import Training
from drlnb.planning.settings import owner, unknown_setting
from drlnb.records.errors import ConfigError, PeerError
from drlnb.records.spec import WorkSpec
from drlnb.rl.algorithms.resolve import PREFIX

__all__ = ["STOP_S", "change_all", "going_on", "stop_all"]

#: Longest wait for the checkpoints of runs that are stopped, in seconds.
STOP_S = 60.0


def going_on(
    trainings: Iterable[Training], specs: Sequence[WorkSpec], planners: Mapping[str, str], out: str | Path | None
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
        change(training.watch, key, value, task, try_only=True)
    for training in meant:
        training.set(key, value, task)
