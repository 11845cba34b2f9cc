"""Name what a master needs of the node agent that hosts it."""

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from drlnb.runtime.ipc.frames import Answer
from drlnb.runtime.protocol import RPC_TIMEOUT_S, Key, Payload, Plain

__all__ = ["Agent", "Processes"]

_T = TypeVar("_T")


class Agent(Protocol):
    """Speaks for the node: with the broker, with other agents."""

    #: The node's name.
    node: str

    @property
    def address(self) -> str:
        """Where other agents reach this one."""

    def keep(self, coroutine: Coroutine[object, object, _T]) -> "asyncio.Task[_T]":
        """Run something in the background until it is done or the agent ends."""

    async def ask_broker(self, op: str, /, *, timeout_s: float = RPC_TIMEOUT_S, **message: object) -> Plain:
        """Call a handler of the broker; raises OSError or TimeoutError if it does not answer."""

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
        """Call a handler of an agent; raises OSError if it does not answer."""


class Process(Protocol):
    """A collector process."""

    attempt: int


class Processes(Protocol):
    """The node's collector processes: a task's replay ring is one of them."""

    @property
    def live(self) -> Mapping[Key, Process]:
        """Those that are up."""

    async def start(
        self, key: Key, *, attempt: int, configuration: Mapping[str, object], state: Payload, log: Path
    ) -> Plain:
        """Start a process; raises RuntimeError or OSError if it cannot begin."""

    async def ask(self, key: Key, header: Plain, *payloads: Payload) -> Answer:
        """Send it a frame and wait for the answer; raises ConnectionError if it is gone."""

    async def stop(self, key: Key) -> None:
        """End it; harmless if it is not up."""
