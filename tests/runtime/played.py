"""Executor processes that are played: they answer at once, and die when a test says so."""

import asyncio
from typing import ClassVar

__all__ = ["Child"]


class Child:
    """A child that answers every frame at once, until it is killed."""

    made: ClassVar = []
    #: Bytes of the device in use, and in all.
    used: ClassVar = (0, 0)
    #: A child that never comes up.
    stuck: ClassVar = False

    def __init__(self, arguments):
        self.arguments, self.pid = arguments, 1000 + len(self.made)
        self.frames, self.closed = [], False
        #: What it computes until this is done; None: nothing takes time.
        self.working = None
        self.code = asyncio.get_running_loop().create_future()
        self.made.append(self)

    @classmethod
    def start(cls, module, *arguments, log, environment):
        assert module == "drlnb.runtime.children.executor"
        return cls(arguments)

    @property
    def channel(self):
        return self

    async def open(self, on_frame, on_close):
        self._on_close = on_close
        if not self.stuck:
            on_frame({"op": "up", "device_name": "cpu"}, b"")

    async def ask(self, header, *payloads):
        self.frames.append(header["op"])
        await asyncio.sleep(0)
        if header["op"] == "memory":
            return {"used_bytes": self.used[0], "total_bytes": self.used[1]}, b""
        if self.working is not None:
            await asyncio.shield(self.working)
        return {"op": "done"}, b""

    def send(self, header, *payloads):
        self.frames.append(header["op"])

    def kill(self):
        if not self.code.done():
            self.closed = True
            if self.working is not None and not self.working.done():
                self.working.set_exception(ConnectionError("the child is gone"))
            self.code.set_result(-9)
            self._on_close()

    async def ended(self):
        return await asyncio.shield(self.code)

    async def end(self, grace_s=3.0):
        self.kill()
