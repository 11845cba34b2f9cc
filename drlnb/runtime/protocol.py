"""What do our Dask messages have in common?  Protocol number, names of the plugins, time-outs, id forms."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = [
    "AGENT",
    "BROKER",
    "OWN",
    "PROTOCOL",
    "RPC_TIMEOUT_S",
    "SEATS",
    "SEATS_AGENT",
    "anchor_key",
    "drlnb_version",
    "pool_task",
    "refused",
    "split_pool_task",
    "task_stream",
]

#: Raised with each incompatible change of a message.
PROTOCOL = 1
#: Name of the scheduler plugin.
BROKER = "drlnb-broker"
#: Name of the worker plugin.
AGENT = "drlnb-agent"
#: Name of the scheduler plugin that finds out how many seats pay.
SEATS = "drlnb-seats"
#: Name of the worker plugin that serves it.
SEATS_AGENT = "drlnb-seats-agent"
#: Beginning of a loop's name in the pool, before the client's id: ``own-<id>/<name>``.
OWN = "own-"
#: Longest wait for an answer that needs no computing, in seconds.
RPC_TIMEOUT_S = 15.0


def drlnb_version() -> str:
    """Return the installed version of drlnb."""
    try:
        return version("drlnb")
    except PackageNotFoundError:
        return "0+unknown"


def pool_task(run: str, task: str) -> str:
    """Return the name under which the pool knows a task: unique over all runs."""
    return f"{run}/{task}"


def split_pool_task(name: str) -> tuple[str, str]:
    """Return (run, task) of a pool's task name."""
    run, _, task = name.partition("/")
    return run, task


def anchor_key(run: str, task: str, attempt: int) -> str:
    """Return the key of the Dask task that keeps an attempt's master alive.

    Each attempt has its own: a former one may still be closing, and Dask would take the same key for the same work.
    """
    return f"drlnb-{run}/{task}" + (f"#{attempt}" if attempt > 1 else "")


def task_stream(task: str, attempt: int) -> str:
    """Return the stream's name of one attempt of a task."""
    return f"task-{task}-a{attempt}"


def refused(kind: str, message: str, **more: Any) -> dict[str, Any]:
    """Return an error as a reply; the receiver raises it again by its kind."""
    return {"error": kind, "message": message, **more}
