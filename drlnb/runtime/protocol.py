"""Define what our Dask messages have in common: names of the plugins, time-outs, forms of ids, fences on the wire."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from drlnb.records.base import Record
from drlnb.records.errors import InputError
from drlnb.records.ids import Fence

__all__ = [
    "AGENT",
    "BROKER",
    "OWN",
    "PROTOCOL",
    "RPC_TIMEOUT_S",
    "SOON_S",
    "Handler",
    "Key",
    "Payload",
    "Plain",
    "Refusal",
    "anchor_key",
    "ask",
    "drlnb_version",
    "fields_of",
    "from_wire",
    "pool_task",
    "probe_patience_s",
    "refused",
    "serve",
    "split_pool_task",
    "table",
    "task_stream",
    "to_wire",
]

#: Plain data of a message, as msgpack and JSON hold it: its fields are checked where they are read.
Plain = dict[str, Any]
#: (run, task, collector): names a collector process.
Key = tuple[str, str, int]
#: Bytes beside a message, which are not copied.
Payload = bytes | bytearray | memoryview
#: What answers a message; its parameters are the message's fields.
Handler = Callable[..., Awaitable[Any]]

#: Raised with each incompatible change of a message.
PROTOCOL = 1
#: Name of the scheduler plugin.
BROKER = "drlnb-broker"
#: Name of the worker plugin.
AGENT = "drlnb-agent"
#: Beginning of a loop's name in the pool, before the client's id: ``own-<id>/<name>``.
OWN = "own-"
#: Longest wait for an answer that needs no computing, in seconds.
RPC_TIMEOUT_S = 15.0
#: Longest wait for a node that is asked to pass something on, in seconds.
SOON_S = 5.0


def probe_patience_s(env_timeout_s: float | None, more_s: float) -> float | None:
    """Return the longest wait for an environment that is built and tried, and built and frozen; None: all time."""
    return None if env_timeout_s is None else 2.0 * env_timeout_s + more_s


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


class Refusal(InputError):
    """A message is about what is not here, or not here any more; at its sender it becomes a PeerError."""


def refused(kind: str, message: str, **more: object) -> Plain:
    """Return an error as a reply; the receiver raises it again by its kind."""
    return {"error": kind, "message": message, **more}


def fields_of(record: Record) -> Plain:
    """Return a record's fields as those of a message."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


# ---------------------------------------------------------------------- fences on the wire
def to_wire(message: Mapping[str, object]) -> Plain:
    """Return a message, or a reply, as it travels: a fence is a pair of numbers, which needs no pickle."""
    return {key: _sent(value) for key, value in message.items()}


def _sent(value: object) -> object:
    if isinstance(value, Fence):
        return (value.epoch, value.token)
    if isinstance(value, dict) and any(isinstance(part, Fence) for part in value.values()):
        return to_wire(value)
    return value


def from_wire(message: Mapping[str, object]) -> Plain:
    """Return a message, or a reply, that has arrived: the field ``fence`` holds a fence, ``fences`` one per name."""
    arrived: Plain = dict(message)
    if arrived.get("fence") is not None:
        arrived["fence"] = Fence(*arrived["fence"])
    if "fences" in arrived:
        arrived["fences"] = {name: Fence(*pair) for name, pair in arrived["fences"].items()}
    return arrived


async def ask(rpc: Any, op: str, timeout_s: float | None, message: Mapping[str, object]) -> Plain:
    """Call a handler of ours on a Dask server, through its rpc.

    Raises
    ------
    OSError
        If it cannot be reached, or drlnb is not there (any more).
    TimeoutError
        If it does not answer in time.
    """
    reply = await asyncio.wait_for(getattr(rpc, op)(**to_wire(message)), timeout_s)
    if reply is None:
        raise ConnectionError(f"the scheduler does not know {op}")
    return from_wire(reply)


def table(part: object, *names: str) -> dict[str, Handler]:
    """Return what answers messages: methods, each under its own name behind ``drlnb_``."""
    return {f"drlnb_{name}": getattr(part, name) for name in names}


def serve(handlers: dict[str, Handler], table: Mapping[str, Handler]) -> None:
    """Register what answers messages with a Dask server: by data, by nothing, or by an error that its sender mends.

    Parameters
    ----------
    handlers
        The server's.
    table
        Names of messages, and what answers them.
    """
    handlers.update({op: _served(handler) for op, handler in table.items()})


def _served(handler: Handler) -> Handler:
    @functools.wraps(handler)
    async def answer(**message: object) -> object:
        try:
            reply = await handler(**from_wire(message))
        except InputError as error:
            return refused(type(error).__name__, str(error))
        if reply is None:
            return {"ok": True}
        return to_wire(reply) if isinstance(reply, dict) else reply

    return answer
