"""How do callbacks hear of a run that nobody waits for?  In a thread of their own, by the rows of its journal."""

import threading
from collections.abc import Callable
from typing import Any

from drlnb.fleet.callbacks.base import BaseCallback, as_callback
from drlnb.fleet.callbacks.sessions import RunSession
from drlnb.fleet.faces.say import say
from drlnb.fleet.policies.policy import Model
from drlnb.records.errors import ConfigError

__all__ = ["listen", "start_listening"]


def listen(run: Any, callback: Any, *, task: str | None = None) -> threading.Thread:
    """Call a callback for one task of a run, from its first round on, until the run has ended.

    The callback is called in a thread of its own.  False from it stops its task; if it raises, its task is stopped, and
    what it raised is said in a line.  Its ``model`` knows the task; ``run.load(task)`` has the newest parameters.

    Parameters
    ----------
    run
        What ``fleet.train`` returned.
    callback
        As of ``learn``; one that needs evaluations must be known when training begins: a model's ``learn`` or
        ``submit`` takes it.
    task
        Name of the task; may be left out where the run has one.

    Returns
    -------
    threading.Thread
        Ends with the run; a daemon.

    Raises
    ------
    ConfigError
        If there is no such task, or the callback is none, or needs evaluations.
    """
    names = list(run.specs)
    if task is None and len(names) == 1:
        task = names[0]
    if task is None or task not in names:
        raise ConfigError(f"task must be one of {', '.join(names)}, got {task!r}")
    heard = as_callback(callback)
    spec = run.specs[task]
    model = Model(spec)
    heard.init_callback(model)
    if wanted := heard.settings(spec.n_envs):
        raise ConfigError(
            f"a run that has begun cannot be given {', '.join(sorted(wanted))}: hand the callback to a model's learn "
            "or submit"
        )
    return start_listening(run, task, model, heard)


def start_listening(
    run: Any, task: str, model: Any, callback: BaseCallback, at_end: Callable[[], None] | None = None
) -> threading.Thread:
    """Start the thread; `at_end` is called when it ends, however that is.

    Parameters
    ----------
    run, task
        The run and one of its tasks.
    model
        What the callback gets as its ``model``.
    callback
        One, or a list of them as one.
    at_end
        Called in the thread.
    """

    def follow() -> None:
        try:
            session = RunSession(run, task, callback)
            callback.init_callback(model, session)
            session.follow()
        except Exception as error:  # noqa: BLE001 - a callback is foreign code, and nobody waits for this thread
            say(f"a callback of {task} raised {type(error).__name__}: {error}; the task was stopped")
        finally:
            if at_end is not None:
                at_end()

    thread = threading.Thread(target=follow, name=f"drlnb callbacks of {run.id}", daemon=True)
    thread.start()
    return thread
