"""End a child when its agent ends: the socketpair is its life line; what the child itself has started ends with it.

The thread that watches it also keeps the child's log from growing without bound.
"""

import contextlib
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from setproctitle import setproctitle

__all__ = ["CLOSE_S", "become", "bound_output", "end_group", "end_own_group", "is_flooded", "watch"]

#: Longest time that a collector has to close its environments, in seconds; simulators write their files then.
CLOSE_S = 3.0
#: Most bytes of a process's log; what is kept of one that has grown beyond, in bytes; seconds between two looks.
_LOG_BYTES, _KEPT_BYTES, _LOOK_S = 2**24, 2**20, 1.0
#: How a log begins whose beginning was dropped.
_FLOODED = b"drlnb: so much was printed that what stood before this was dropped\n"
#: Those that watch, oldest first: the newest one ends the process.
_watching: list[threading.Thread] = []


def become(title: str) -> None:
    """Show this process as `title` in ``ps``."""
    setproctitle(title)


def end_group(pid: int) -> None:
    """Kill what is left of the process group that a process led; nothing if that is nobody."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def end_own_group() -> None:
    """End this process at once and, where it leads a group, what it has started."""
    if os.getpgrp() == os.getpid():
        end_group(os.getpid())
    os._exit(0)


def bound_output(fd: int = 1) -> None:
    """Keep the newest part of the file that this process prints into, where it has grown too large."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size <= _LOG_BYTES:
        return
    # Opened once more, since what is printed is appended: the first line is written over what comes meanwhile.
    with Path(f"/dev/fd/{fd}").open("r+b", buffering=0) as log:
        log.seek(-_KEPT_BYTES, os.SEEK_END)
        newest = log.read().partition(b"\n")[2]
        log.truncate(0)
        log.seek(0)
        log.write(_FLOODED + newest)


def is_flooded(log: Path) -> bool:
    """Return whether the beginning of a process's log was dropped."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        return file.read(len(_FLOODED)) == _FLOODED
    return False


def watch(fd: int, on_end: Callable[[], object] = lambda: None, grace_s: float = 0.0) -> None:
    """End this process and its group when the other end of a socket is closed, whatever it is doing.

    Meanwhile its output is held to a bound.  Not PR_SET_PDEATHSIG: it fires when the creating *thread* ends.

    Parameters
    ----------
    fd
        This process's end of the pair; watched again, the later call decides how the process ends.
    on_end
        Called first, in a thread.
    grace_s
        Longest time that the process then has to end by itself, in seconds.
    """
    poller = select.poll()
    poller.register(fd, getattr(select, "POLLRDHUP", 0) | select.POLLHUP)

    def wait() -> None:
        while True:
            found = poller.poll(1e3 * _LOOK_S)
            if not found:
                with contextlib.suppress(OSError):
                    bound_output()
            for _, events in found:
                if not events & (select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)):
                    continue
                if _watching[-1] is not threading.current_thread():
                    return
                on_end()
                time.sleep(grace_s)
                end_own_group()

    _watching.append(threading.Thread(target=wait, name="drlnb-lifeline", daemon=True))
    _watching[-1].start()


def started(pid: int) -> int:
    """Return when a process was started, in ticks since the system was; 0 if it is gone, or dead and not collected."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    except OSError:
        return 0
    return 0 if state in {b"Z", b"X"} else int(rest[18])
