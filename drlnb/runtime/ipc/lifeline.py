"""End a child when its agent ends: the socketpair is its life line."""

import os
import select
import socket
import threading

from setproctitle import setproctitle

__all__ = ["become", "watch"]


def become(title: str) -> None:
    """Show this process as `title` in ``ps``."""
    setproctitle(title)


def watch(sock: socket.socket) -> None:
    """End this process at once when the other end of `sock` is closed, whatever it is doing.

    Not PR_SET_PDEATHSIG: it fires when the creating *thread* ends.
    """
    poller = select.poll()
    poller.register(sock.fileno(), getattr(select, "POLLRDHUP", 0) | select.POLLHUP)

    def wait() -> None:
        while True:
            for _, events in poller.poll():
                if events & (select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)):
                    os._exit(0)

    threading.Thread(target=wait, name="drlnb-lifeline", daemon=True).start()
