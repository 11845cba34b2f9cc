"""Fork collectors from a server that imports once: in milliseconds.

It stays single-threaded and runs no numerical work, so that a fork is safe; before each fork it counts its threads and
refuses if there is more than one (the agent then spawns).  Its control socket carries two descriptors per request: the
child's end of a pair, and the child's log.  It reaps its children and reports how each ended.
"""

import argparse
import errno
import importlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

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


def n_threads() -> int:
    """Return the threads of this process, as the kernel counts them."""
    task = Path("/proc/self/task")
    return len(list(task.iterdir())) if task.is_dir() else 1


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
        self.children: set[int] = set()
        self.wake_r, self.wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self.wake_w, warn_on_full_buffer=False)

    def send(self, **message: object) -> None:
        """Send one line to the agent."""
        self.control.sendall(json.dumps(message).encode() + b"\n")

    def run(self) -> None:
        """Serve until the agent is gone, then end every child that is left."""
        self.send(op="up", pid=os.getpid(), n_threads=n_threads())
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
        message, fds, _, _ = socket.recv_fds(self.control, 4096, 2)
        if not message:
            return False
        request = json.loads(message)["request"]
        sock_fd, log_fd = fds
        if n_threads() != 1:
            self.send(op="refused", request=request, reason=f"{n_threads()} threads")
        else:
            pid = os.fork()
            if pid == 0:
                sock = socket.socket(fileno=sock_fd)
                _child(sock, log_fd, keep=sock_fd)
            self.children.add(pid)
            self.send(op="forked", request=request, pid=pid)
        os.close(sock_fd)
        os.close(log_fd)
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except OSError as error:
                if error.errno == errno.ECHILD:
                    return
                raise
            if pid == 0:
                return
            self.children.discard(pid)
            self.send(op="exited", pid=pid, code=os.waitstatus_to_exitcode(status))


def main() -> None:
    """Run as ``python -m drlnb.runtime.children.zygote --fd N``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    control = socket.socket(fileno=parser.parse_args().fd)
    become("drlnb zygote")
    for name in _PRELOAD:
        importlib.import_module(name)
    become("drlnb zygote")
    Zygote(control).run()


if __name__ == "__main__":
    main()
