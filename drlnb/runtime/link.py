"""Speak for one node: with the broker, with other agents; and hold what runs in its background."""

import asyncio
import contextlib
import errno
import functools
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from distributed.protocol import to_serialize

from drlnb.runtime.background import Background
from drlnb.runtime.protocol import RPC_TIMEOUT_S, Handler, Payload, Plain, ask, from_wire, refused, serve, to_wire

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["TOPIC", "Link"]

#: Begins the address of whoever has no server, a client: the rest is a topic of Dask's events, to which it listens.
TOPIC = "topic:"

_T = TypeVar("_T")

#: Pause before a message is sent to the broker again that it did not answer, in seconds.
_AGAIN_S = 0.2


class Link:
    """The messages that one node sends.

    Parameters
    ----------
    worker
        The Dask worker.
    """

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self.node = str(worker.name)
        #: Not ``drlnb``: the worker's folder is on every child's path, where that would be a package.
        self.directory = Path(worker.local_directory) / "drlnb-node"
        #: What answers messages here: one to this node itself needs no wire.
        self._handlers: dict[str, Handler] = {}
        self.closed = False
        self._background = Background()

    @property
    def address(self) -> str:
        """Where other agents reach this one."""
        return str(self._worker.address)

    def serve(self, table: Mapping[str, Handler]) -> None:
        """Answer messages, by their names; an OSError of what answers becomes ``refused``, with its text."""
        self._handlers |= {op: _answered(handler) for op, handler in table.items()}
        serve(self._worker.handlers, self._handlers)

    def keep(self, coroutine: Coroutine[object, object, _T]) -> "asyncio.Task[_T]":
        """Run something in the background until it is done or the agent ends."""
        return self._background.keep(coroutine)

    def cut(self, address: str) -> None:
        """End what is under way to an agent that is gone: Dask would try to reach it until a time-out."""
        self._worker.rpc.remove(address)

    async def close(self) -> None:
        """End what runs in the background."""
        self.closed = True
        await self._background.cancel()

    async def ask_broker(self, op: str, /, *, timeout_s: float = RPC_TIMEOUT_S, **message: object) -> Plain:
        """Call a handler of the broker.

        Raises
        ------
        OSError
            If it cannot be reached, or is not there (any more).
        TimeoutError
            If it does not answer in time.
        """
        return await ask(self._worker.scheduler, op, timeout_s, message)

    async def insist(self, op: str, /, **message: object) -> Plain:
        """Call a handler of the broker, again and again until it answers or this node ends."""
        while not self.closed:
            with contextlib.suppress(OSError, TimeoutError):
                return await self.ask_broker(op, timeout_s=RPC_TIMEOUT_S, **message)
            await asyncio.sleep(_AGAIN_S)
        return refused("over", "the worker is closing")

    async def call(
        self,
        address: str,
        op: str,
        /,
        *,
        timeout_s: float | None = RPC_TIMEOUT_S,
        payload: Payload = b"",
        **message: object,
    ) -> Plain:
        """Call a handler of an agent, of this one without a wire; ``refused``, with why, if it does not answer.

        What goes to a topic has no answer.
        """
        if address.startswith(TOPIC):
            self._worker.log_event(address, {"op": op, "fields": to_wire(message)})
            return {}
        beside: dict[str, object] = {"payload": payload} if len(payload) else {}
        if address == self.address:
            reply: Plain = await self._handlers[op](**message, **beside)
            return reply
        if not address:
            return {"refused": "no node of this name is up"}
        if beside:
            beside["payload"] = to_serialize(memoryview(payload))
        try:
            rpc = getattr(self._worker.rpc(address), op)
            reply = await asyncio.wait_for(rpc(**to_wire(message), **beside), timeout_s)
        except TimeoutError:
            return {"refused": f"{address} did not answer {op} in {timeout_s:g} s"}
        except (OSError, ValueError) as error:
            return {"refused": f"{address} does not answer: {error}"}
        return from_wire(reply) if reply is not None else {"refused": f"{address} does not know {op}"}


def _answered(handler: Handler) -> Handler:
    @functools.wraps(handler)
    async def answer(**message: object) -> object:
        try:
            return await handler(**message) or {"ok": True}
        except OSError as error:
            return {"refused": str(error)} | ({"no_room": True} if error.errno == errno.ENOSPC else {})

    return answer
