"""What holds processes that must not outlive their starter?  Run as a script: ``python anchor.py WORD...``.

It starts the words as its child and holds its standard input, the life line.  When the line closes, whoever held the
other end is gone, however it died: then everything below the child is killed, also what has left its family.  SIGTERM
is handed on; what the child leaves behind when it ends is killed, too.  The standard library and psutil alone: it
starts in a tenth of a second.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import psutil

__all__ = ["main"]

#: prctl(2): orphans below this process become its children, instead of the machine's first process's.
_PR_SET_CHILD_SUBREAPER = 36
#: Longest that killing takes, in seconds; and the pause between two looks.
_KILL_S, _LOOK_S = 5.0, 0.02


def main(words: list[str]) -> int:
    """Run a command to its end; return its exit status, 128 + n for a signal."""
    _adopt_orphans()
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL)

    def signalled(number: int, frame: Any = None) -> None:
        del frame
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)

    def watch() -> None:
        while os.read(0, 64):
            pass
        signalled(signal.SIGKILL)  # the rest follows

    signal.signal(signal.SIGTERM, signalled)
    threading.Thread(target=watch, daemon=True).start()
    code = os.waitstatus_to_exitcode(_wait(child.pid))
    _kill_below()
    return code if code >= 0 else 128 - code


def _adopt_orphans() -> None:
    """Become the parent of orphans below, where the system knows that (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wait(pid: int) -> int:
    """Wait for one child, burying adopted ones meanwhile; return its status."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return status


def _kill_below() -> None:
    """Kill every process below this one; again, since one may be born meanwhile or become ours by another's death."""
    end = time.monotonic() + _KILL_S
    while time.monotonic() < end:
        alive = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        if not alive:
            return
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
