"""Start child processes: forked from a warm zygote, or spawned as new interpreters."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from drlnb.runtime.ipc.frames import ChildChannel, socket_pair
from drlnb.runtime.protocol import Plain

__all__ = ["NICE", "ChildProcess", "Zygote", "child_environment", "last_line", "signal_pid", "tail"]

#: Environment variable of a worker: the niceness of what computes below it, as ``nice`` counts.
NICE = "DRLNB_NICE"

#: Thread limits must be set before numpy or torch are imported; nannies export 1 anyway, bare workers do not.
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def child_environment(**extra: str) -> dict[str, str]:
    """Return the environment of a child: the worker's, one thread per library, no Dask configuration of its own."""
    environment = dict(os.environ)
    environment.update(dict.fromkeys(_ONE_THREAD, "1"))
    # A nanny makes its worker give freed memory back at once; a child that computes would fault it in again each step.
    environment.pop("MALLOC_TRIM_THRESHOLD_", None)
    environment.update({"PYTHONUNBUFFERED": "1", "SDL_VIDEODRIVER": "dummy"})
    environment.update(extra)
    return environment


def last_line(log: Path) -> str:
    """Return the last line of a log, empty if there is none."""
    lines = tail(log, 2000).strip().splitlines()
    return lines[-1] if lines else ""


def tail(path: Path, n_bytes: int = 8192) -> str:
    """Return the end of a log, empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - n_bytes))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _give_way(pid: int) -> None:
    """Lower a child's priority to what :data:`NICE` says; what the child forks has it, too."""
    niceness = int(os.environ.get(NICE, "0"))
    with contextlib.suppress(OSError):  # it has ended already, or we are nicer than that: nothing to lower
        if niceness > os.getpriority(os.PRIO_PROCESS, 0):
            os.setpriority(os.PRIO_PROCESS, pid, niceness)
            # A child has a session of its own, and most Linux desktops share the processor out by session first.
            Path(f"/proc/{pid}/autogroup").write_text(str(niceness), encoding="ascii")


class ChildProcess:
    """A Popen'd child with its channel."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, log: Path) -> None:
        self.process, self.sock, self.log = process, sock, log
        self.pid = process.pid
        self.channel: ChildChannel | None = None

    @classmethod
    def start(cls, module: str, *arguments: str, log: Path, environment: Mapping[str, str]) -> "ChildProcess":
        """Start ``python -m module --fd N ...`` in a session of its own, its output in `log`."""
        ours, theirs = socket_pair()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output, theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", module, "--fd", str(theirs.fileno()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        _give_way(process.pid)
        return cls(process, ours, log)

    async def open(self, on_frame: Callable[[Plain, bytes], object], on_close: Callable[[], object]) -> ChildChannel:
        """Open the channel to the child."""
        self.channel = await ChildChannel.open(self.sock, on_frame, on_close)
        return self.channel

    def kill(self) -> None:
        """SIGKILL; harmless if it is gone."""
        if self.process.poll() is None:
            self.process.kill()

    async def ended(self) -> int:
        """Wait for the end and reap it; return the exit code (negative: the signal)."""
        return await asyncio.to_thread(self.process.wait)

    async def end(self, grace_s: float = 3.0) -> None:
        """Close the life line, then kill after `grace_s`; nothing of the child is left afterwards."""
        if self.channel is not None:
            await self.channel.aclose()
        self.sock.close()
        try:
            await asyncio.wait_for(self.ended(), grace_s)
        except TimeoutError:
            self.kill()
            await self.ended()


class Zygote:
    """The agent's end of the fork server of one node."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.process: ChildProcess | None = None
        self.up: asyncio.Future[Plain] | None = None
        self._requests: dict[int, asyncio.Future[Plain]] = {}
        self._next_request = 0
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process; :attr:`up` resolves when it has imported everything."""
        loop = asyncio.get_running_loop()
        self.up = loop.create_future()
        environment = child_environment(CUDA_VISIBLE_DEVICES="")
        self.process = ChildProcess.start("drlnb.runtime.children.zygote", log=self.log, environment=environment)
        self.process.sock.setblocking(False)
        self._reader = loop.create_task(self._read(self.process))

    @property
    def alive(self) -> bool:
        """Whether it can be asked to fork."""
        return self.process is not None and self.process.process.poll() is None

    async def fork(self, sock: socket.socket, log: Path) -> int:
        """Fork a collector that owns `sock` and writes to `log`; return its pid.

        Raises
        ------
        ConnectionError
            If the zygote is gone, or refuses (it has more than one thread).
        """
        if self.process is None or self.up is None:
            raise ConnectionError("the zygote was never started")
        await asyncio.shield(self.up)
        self._next_request += 1
        request = self._next_request
        future = self._requests[request] = asyncio.get_running_loop().create_future()
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("ab") as output:
                message = json.dumps({"request": request}).encode()
                socket.send_fds(self.process.sock, [message], [sock.fileno(), output.fileno()])
            reply = await asyncio.wait_for(future, 15.0)
        except (OSError, TimeoutError) as error:
            raise ConnectionError(f"the zygote does not answer: {error}") from None
        finally:
            self._requests.pop(request, None)
        if reply["op"] != "forked":
            raise ConnectionError(f"the zygote refused: {reply['reason']}")
        return int(reply["pid"])

    async def exit_code(self, pid: int, timeout_s: float = 1.0) -> int | None:
        """Return how a forked child ended, ``None`` if the zygote has not said so in time."""
        future = self._exit_of(pid)
        try:
            return await asyncio.wait_for(asyncio.shield(future), timeout_s)
        except TimeoutError:
            return None

    def _exit_of(self, pid: int) -> "asyncio.Future[int]":
        if pid not in self._exits:
            self._exits[pid] = asyncio.get_running_loop().create_future()
        return self._exits[pid]

    async def _read(self, process: ChildProcess) -> None:
        loop = asyncio.get_running_loop()
        rest = b""
        try:
            while data := await loop.sock_recv(process.sock, 65536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        except OSError:
            pass
        for future in [self.up, *self._requests.values()]:
            if future is not None and not future.done():
                future.set_exception(ConnectionError(f"the zygote is gone: {tail(self.log, 400).strip()}"))
                future.exception()  # noted here: nobody may be waiting for it
        await process.ended()

    def _take(self, message: Plain) -> None:
        if message["op"] == "up" and self.up is not None and not self.up.done():
            self.up.set_result(message)
        elif message["op"] == "exited":
            future = self._exit_of(message["pid"])
            if not future.done():
                future.set_result(message["code"])
        elif message.get("request") in self._requests:
            self._exits.pop(message.get("pid", 0), None)  # of a former process with this number
            self._requests[message["request"]].set_result(message)

    async def end(self) -> None:
        """End the zygote and, with it, every collector that it forked."""
        if self.process is None:
            return
        with contextlib.suppress(OSError):
            self.process.sock.shutdown(socket.SHUT_RDWR)
        try:
            await asyncio.wait_for(self.process.ended(), 3.0)
        except TimeoutError:
            self.process.kill()
            await self.process.ended()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)
        self.process.sock.close()


def signal_pid(pid: int, name: str) -> None:
    """Send a signal, such as ``SIGKILL``, to a process that may be gone; nothing where there is no such signal."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(signal, name):
            os.kill(pid, getattr(signal, name))
