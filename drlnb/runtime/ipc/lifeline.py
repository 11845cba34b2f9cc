"""End a child when its agent ends: the socketpair is its life line; what the child itself has started ends with it."""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable

from setproctitle import setproctitle

__all__ = ["CLOSE_S", "become", "end_group", "end_own_group", "watch"]

#: Longest time that a collector has to close its environments, in seconds; simulators write their files then.
CLOSE_S = 3.0
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


def watch(fd: int, on_end: Callable[[], object] = lambda: None, grace_s: float = 0.0) -> None:
    """End this process and its group when the other end of a socket is closed, whatever it is doing.

    Not PR_SET_PDEATHSIG: it fires when the creating *thread* ends.

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
            for _, events in poller.poll():
                if not events & (select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)):
                    continue
                if _watching[-1] is not threading.current_thread():
                    return
                on_end()
                time.sleep(grace_s)
                end_own_group()

    _watching.append(threading.Thread(target=wait, name="drlnb-lifeline", daemon=True))
    _watching[-1].start()
