"""Start child processes: forked from a warm zygote, or spawned as new interpreters."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

from drlnb.runtime.ipc.frames import ChildChannel, socket_pair
from drlnb.runtime.ipc.lifeline import end_group
from drlnb.runtime.protocol import Plain

__all__ = [
    "ChildProcess",
    "Zygote",
    "child_environment",
    "how_ended",
    "import_path",
    "last_line",
    "python",
    "signal_pid",
    "tail",
]

#: Thread limits must be set before numpy or torch are imported; nannies export 1 anyway, bare workers do not.
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module as a child; its folders for modules are those of :func:`import_path`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def import_path() -> str:
    """Return a child's PYTHONPATH: where this process looks for modules, but for Python's own folders; last, here.

    So a module beside the caller's script, or in a folder that it put on `sys.path` or into its own PYTHONPATH, is
    found in every process below.
    """
    said = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = (Path(entry).absolute() for entry in (*sys.path, *said, ""))
    others = (path for path in folders if path.exists() and not path.is_relative_to(sysconfig.get_path("stdlib")))
    # What is installed any interpreter finds by itself, after its own library, which none of it may hide.
    return os.pathsep.join(dict.fromkeys(str(path) for path in others if not path.name.endswith("-packages")))


def child_environment(**extra: str) -> dict[str, str]:
    """Return the environment of a child: the worker's, one thread per library, and where modules are found."""
    environment = {**os.environ, "PYTHONPATH": import_path()}
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


class ChildProcess:
    """A Popen'd child with its channel."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, log: Path) -> None:
        self.process, self.sock, self.log = process, sock, log
        self.pid = process.pid
        self.channel: ChildChannel | None = None

    @classmethod
    def start(
        cls, module: str, *arguments: str, log: Path, environment: Mapping[str, str], forks: bool = False
    ) -> "ChildProcess":
        """Start ``python -m module --fd N ...`` in a session of its own, its output in `log`.

        It ends with us, from its first import on; one that `forks` may have no second thread, and looks by itself.
        """
        ours, theirs = socket_pair()
        begins = () if forks else ("drlnb.runtime.ipc.child",)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output, theirs:
            process = subprocess.Popen(
                python(*begins, module, "--fd", str(theirs.fileno()), *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return cls(process, ours, log)

    async def open(self, on_frame: Callable[[Plain, bytes], object], on_close: Callable[[], object]) -> ChildChannel:
        """Open the channel to the child."""
        self.channel = await ChildChannel.open(self.sock, on_frame, on_close)
        return self.channel

    def kill(self) -> None:
        """SIGKILL; harmless if it is gone."""
        self.process.kill()

    async def ended(self) -> int:
        """Wait for the end, reap it, end what it had started; return the exit code (negative: the signal)."""
        try:
            code = await asyncio.to_thread(self.process.wait)
        except RuntimeError:  # this interpreter ends: there is no thread any more that could wait
            self.kill()
            code = self.process.wait()
        end_group(self.pid)
        return code

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
        self.up: asyncio.Future[int] | None = None
        #: Process -> its request; request -> how the process that was forked for it ended.
        self._requests: dict[int, int] = {}
        self._exits: dict[int, asyncio.Future[int]] = {}

    async def start(self) -> None:
        """Start the process; :attr:`up` resolves when it has imported everything."""
        self.up = asyncio.get_running_loop().create_future()
        environment = child_environment(CUDA_VISIBLE_DEVICES="")
        module = "drlnb.runtime.children.zygote"
        self.process = ChildProcess.start(module, log=self.log, environment=environment, forks=True)
        await self.process.open(self._on_frame, self._on_close)

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
        if self.process is None or self.process.channel is None or self.up is None:
            raise ConnectionError("the zygote was never started")
        await asyncio.shield(self.up)
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("ab") as output:
                asking = self.process.channel.ask({"op": "fork"}, fds=[sock.fileno(), output.fileno()])
                reply, _ = await asyncio.wait_for(asking, 15.0)
        except (OSError, TimeoutError) as error:
            raise ConnectionError(f"the zygote does not answer: {error}") from None
        if reply["op"] != "forked":
            raise ConnectionError(f"the zygote refused: {reply['reason']}")
        self._requests[reply["pid"]] = reply["answers"]
        return int(reply["pid"])

    async def exit_code(self, pid: int, timeout_s: float = 1.0) -> int | None:
        """Return how a forked child ended, ``None`` if the zygote has not said so in time."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._exit_of(self._requests.get(pid, 0))), timeout_s)
        except TimeoutError:
            return None

    def _exit_of(self, request: int) -> "asyncio.Future[int]":
        if request not in self._exits:
            self._exits[request] = asyncio.get_running_loop().create_future()
        return self._exits[request]

    def _on_frame(self, message: Plain, payload: bytes) -> None:
        del payload
        future = self.up if message["op"] == "up" else self._exit_of(message["request"])
        if future is not None and not future.done():
            future.set_result(message.get("code", 0))

    def _on_close(self) -> None:
        if self.up is not None and not self.up.done():
            self.up.set_exception(ConnectionError(f"the zygote is gone: {tail(self.log, 400).strip()}"))
            self.up.exception()  # noted here: nobody may be waiting for it

    async def end(self) -> None:
        """End the zygote and, with it, every collector that it forked."""
        if self.process is not None:
            await self.process.end()


def how_ended(code: int | None) -> str:
    """Return in words how a process ended, by its exit code (negative: the signal; None: unknown)."""
    if code is None:
        return "ended"
    return f"killed by signal {-code}" if code < 0 else f"exited with code {code}"


def signal_pid(pid: int, name: str) -> None:
    """Send a signal, such as ``SIGKILL``, to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.Signals[name])
