"""Name who runs a directory's run, and find out whether it lives: by asking it, else by the age of the file.

Masters renew the file while they live.  Its age is measured by the clock of its own disk, against a file made now, so
that machines whose clocks differ agree.
"""

import asyncio
import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from drlnb.runtime.protocol import Plain

__all__ = ["RENEW_S", "Lock", "goes_on", "judged", "machine"]

#: Seconds between two renewals of a lock, and the age at which nobody renews it any more: longer than a disk or a
#: machine stalls, and twelve renewals.
RENEW_S, _STALE_S = 5.0, 60.0
#: Seconds that a scheduler has to answer.
_HELLO_S = 2.0
#: Longest wait for a run that is being stopped, and time between two looks at it, in seconds.
_STOPPING_S, _AGAIN_S = 25.0, 0.1
_LOOPBACK = ("127.", "localhost", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Who runs a directory's run now."""

    #: Empty: the file cannot be read, so nobody knows.
    run: str
    #: Start of the broker, in nanoseconds.
    epoch: int
    #: Address of its scheduler.
    address: str
    #: Process id of the scheduler, 0 if not known; the name of its host, and what tells its machine, see
    #: :func:`machine`.
    pid: int = 0
    host: str = ""
    boot: str = ""
    #: Why it counts, and what to do, in words; not in the file.
    said: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a file's text holds; ValueError or TypeError if we did not write it."""
        lock = cls(**json.loads(text))
        kinds = [type(value) for value in asdict(lock).values()]
        if kinds != [str, int, str, int, str, str, str] or not lock.run or lock.said or not 0 <= lock.pid < 2**31:
            raise ValueError("not what drlnb wrote")
        return lock

    def to_plain(self) -> Plain:
        """Return what the file holds."""
        return {name: value for name, value in asdict(self).items() if name != "said"}


def machine() -> str:
    """Return what tells this machine, since its start, from every other one: process ids mean the same there."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return f"{socket.gethostname()} {psutil.boot_time():.0f}"


def _age_s(path: Path) -> float:
    """Return how long ago a file was changed, by the clock of its disk; by ours where nothing can be written there."""
    now = time.time()
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=path.parent) as new:
        now = os.fstat(new.fileno()).st_mtime
    with path.open("rb") as file:  # opened: a shared disk answers anew, not from what this machine remembers
        return now - os.fstat(file.fileno()).st_mtime


def goes_on(lock: Lock, timeout_s: float = _HELLO_S) -> bool | None:
    """Ask a lock's scheduler whether its run goes on; None if it does not answer in time, or another broker does.

    A run that is being stopped is waited for: whoever restarts a kernel resumes what the old one's cluster still saves.
    """
    answer: list[bool] = []
    deadline = time.monotonic() + _STOPPING_S

    async def ask() -> None:
        from distributed.core import rpc  # heavy, and only needed where a lock was found

        async with rpc(lock.address, timeout=timeout_s) as scheduler:
            if (await asyncio.wait_for(scheduler.drlnb_hello(), timeout_s))["epoch"] != lock.epoch:
                return
            while True:
                runs = await asyncio.wait_for(scheduler.drlnb_runs(), timeout_s)
                ours = [row["tasks"].values() for row in runs if row["run"] == lock.run and row["state"] == "running"]
                asked = [
                    row["wanted"] == "stop" for row in (ours or [()])[0] if row["state"] in ("starting", "running")
                ]
                if not ours or not all(asked) or time.monotonic() > deadline:
                    answer[:] = [bool(ours)]
                    return
                answer[:] = [False]  # should its cluster be gone before it says more
                await asyncio.sleep(_AGAIN_S)

    def run() -> None:
        with contextlib.suppress(OSError, ValueError, TypeError, RuntimeError):  # also where no broker lives
            asyncio.run(ask())

    # A thread of its own: the caller may sit in a notebook's running loop.
    thread = threading.Thread(target=run, name="drlnb-hello", daemon=True)
    thread.start()
    thread.join(3 * timeout_s + _STOPPING_S)
    return answer[0] if answer else None


def judged(lock: Lock, path: Path) -> str:
    """Return in words why a lock that was read counts, and what to do; empty if its run is over.

    Parameters
    ----------
    lock
        What the file holds.
    path
        The file.
    """
    whose = f"its run {lock.run} goes on at {lock.address}"
    here = lock.boot == machine()
    if here and lock.pid and not psutil.pid_exists(lock.pid):
        return ""
    kind, _, place = lock.address.partition("://")
    # An address of loopback means another machine there than here; behind TLS nobody answers without certificates.
    if kind != "tls" and (here or not place.startswith(_LOOPBACK)) and (answer := goes_on(lock)) is not None:
        return f"{whose} (attach to it, or stop it first: drlnb runs stop {path.parent})" if answer else ""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # its cluster may be about to end
        status = json.loads(path.with_name("status.json").read_text(encoding="utf-8"))
        if status["run"] == lock.run and status["state"] != "running":
            return ""
    try:
        age = _age_s(path)
    except FileNotFoundError:
        return ""
    if age > _STALE_S:
        return ""
    on = f" on {lock.host}" if lock.host else ""
    return (
        f"{whose}{on}; nobody there answers from here, but its lock was renewed {max(0.0, age):.0f} s ago: stop it, "
        f"or try again in {_STALE_S - age:.0f} s (a lock that nobody renews for {_STALE_S:.0f} s is free)"
    )
