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

import psutil

from drlnb.runtime.ipc.frames import FrameSocket, receive_fds
from drlnb.runtime.ipc.lifeline import become

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


def _child(sock: socket.socket, log_fd: int, keep: int) -> None:
    """Turn the fork into a collector; never returns."""
    code = 1
    try:
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
                    self._reap()
                if self.control.fileno() in readable and not self._request():
                    return
        except (BrokenPipeError, ConnectionResetError):
            return
        finally:
            for pid in self.children:
                os.kill(pid, signal.SIGKILL)

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
            self.children[pid] = request
            self.frames.send({"op": "forked", "answers": request, "pid": pid})
        os.close(sock_fd)
        os.close(log_fd)
        return True

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):  # there is none left
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                request = self.children.pop(ended[0])
                self.frames.send({"op": "exited", "request": request, "code": os.waitstatus_to_exitcode(ended[1])})


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
