"""Run a command, and be red if a process that it started outlives it.

Usage: ``python .ci/supervise.py --limit-s N -- COMMAND ...``.  Orphans below the command come to this process (Linux),
so that none is missed and nobody else's is touched.  What is left is named, then killed.
"""

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

#: From <sys/prctl.h>.
PR_SET_CHILD_SUBREAPER = 36
#: How long processes may take to end after the command has.
GRACE_S = 5.0


def _parents() -> dict[int, int]:
    """Return pid -> parent of every process."""
    out = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                out[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return out


def _below() -> list[int]:
    parents, found = _parents(), {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return sorted(found - {os.getpid()})


def _title(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return f"{pid} {words[:200]}"
    return str(pid)


def _reap(command: int) -> int | None:
    """Reap whatever has ended; return the command's status if it is among them."""
    ended = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == command:
                ended = status
    return ended


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait(command: int, limit_s: float) -> int:
    """Wait for the command, reaping orphans meanwhile; return its exit code, 124 if it took too long."""
    end = time.monotonic() + limit_s
    while (status := _reap(command)) is None:
        if time.monotonic() > end:
            print(f"supervise: took longer than {limit_s:g} s")
            _kill([command])
            end = float("inf")
            continue
        time.sleep(0.02)
    return 124 if end == float("inf") else os.waitstatus_to_exitcode(status)


def main() -> int:
    """Run the command; return its exit code, or 1 if it was 0 and processes were left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit-s", type=float, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(given.command[1:])
    code = _wait(command.pid, given.limit_s)
    command.returncode = code  # reaped above
    end = time.monotonic() + GRACE_S
    while (left := _below()) and time.monotonic() < end:
        _reap(-1)
        time.sleep(0.02)
    for pid in left:
        print(f"supervise: outlived the command: {_title(pid)}")
    while left := _below():
        _kill(left)
        _reap(-1)
        time.sleep(0.02)
        code = code or 1
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
