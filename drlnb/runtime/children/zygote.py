"""Fork collectors from a server that imports once: in milliseconds.

It stays single-threaded and runs no numerical work, so that a fork is safe; before each fork it counts its threads and
refuses if there is more than one (the agent then spawns).  Its control socket carries two descriptors per request: the
child's end of a pair, and the child's log.  It reaps its children and reports how each ended.
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator

import psutil

from drlnb.runtime.ipc.frames import FrameSocket, receive_fds
from drlnb.runtime.ipc.lifeline import CLOSE_S, become, end_group

__all__ = ["main"]

#: What every collector needs; a module that cannot be imported here fails in the child, with its own message.
_PRELOAD = (
    "numpy",
    "gymnasium",
    "drlnb.rl.collecting.collector",
    "drlnb.rl.collecting.evaluation",
    "drlnb.rl.envs.make",
    "drlnb.runtime.children.collector",
)

#: Pause between two looks for children that have ended, in seconds.
_LOOK_S = 0.02


def _child(sock: socket.socket, log_fd: int, keep: int) -> None:
    """Turn the fork into a collector; never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        # A sibling's life line must not live on in this process.
        os.closerange(3, keep)
        os.closerange(keep + 1, 4096)
        become("drlnb collector")
        from drlnb.runtime.children.collector import serve

        serve(sock)
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends here whatever happens; its log says why
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


class Zygote:
    """The loop: fork on request, report exits, end with the control socket."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.frames = FrameSocket(control)
        #: Process -> the request that it was forked for.
        self.children: dict[int, int] = {}
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self.wake_w, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the agent is gone, then end every child that is left."""
        self.frames.send({"op": "up"})
        try:
            while True:
                readable, _, _ = select.select((self.control.fileno(), self.wake_r), (), ())
                if self.wake_r in readable:
                    os.read(self.wake_r, 4096)
                    for request, code in self._ended():
                        self.frames.send({"op": "exited", "request": request, "code": code})
                if self.control.fileno() in readable and not self._request():
                    return
        except (BrokenPipeError, ConnectionResetError):
            return
        finally:
            self._end_children()

    def _end_children(self) -> None:
        """Wait while the children, whose life lines have ended too, close their environments; kill what is left."""
        deadline = time.monotonic() + CLOSE_S
        while self.children and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            list(self._ended())
        for pid in self.children:
            end_group(pid)

    def _request(self) -> bool:
        received = receive_fds(self.control, 2)
        if received is None:
            return False
        request, (sock_fd, log_fd) = received[0]["id"], received[1]
        if (n_threads := psutil.Process().num_threads()) != 1:
            self.frames.send({"op": "refused", "answers": request, "reason": f"{n_threads} threads"})
        else:
            pid = os.fork()
            if pid == 0:
                sock = socket.socket(fileno=sock_fd)
                _child(sock, log_fd, keep=sock_fd)
            with contextlib.suppress(OSError):  # the child does so itself; whoever comes first
                os.setpgid(pid, pid)
            self.children[pid] = request
            self.frames.send({"op": "forked", "answers": request, "pid": pid})
        os.close(sock_fd)
        os.close(log_fd)
        return True

    def _ended(self) -> Iterator[tuple[int, int]]:
        """Reap who has ended, and end what they had started; yield each one's request and exit code."""
        with contextlib.suppress(ChildProcessError):  # there is none left
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                end_group(ended[0])
                yield self.children.pop(ended[0]), os.waitstatus_to_exitcode(ended[1])


def main() -> None:
    """Run as ``python -m drlnb.runtime.children.zygote --fd N``."""
    control = socket.socket(fileno=int(sys.argv[2]))
    become("drlnb zygote")
    for name in _PRELOAD:
        importlib.import_module(name)
    become("drlnb zygote")
    Zygote(control).run()


if __name__ == "__main__":
    main()
