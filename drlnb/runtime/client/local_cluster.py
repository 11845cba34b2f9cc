"""Run a cluster of our own on this machine: an ordinary LocalCluster inside a supervisor child.

No GIL and no fate is shared with a notebook's kernel.  The supervisor's life line is its standard input: when whoever
started it is gone, it stops the cluster and ends.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from drlnb.records.errors import PeerError
from drlnb.runtime.ipc.lifeline import become
from drlnb.runtime.ipc.start_modes import how_ended, import_path, last_line, python
from drlnb.runtime.protocol import BROKER

if TYPE_CHECKING:
    from distributed import LocalCluster

__all__ = ["PREFIX", "LocalHandle", "main", "start_local", "sweep", "wait_gone"]

#: Longest start of scheduler and workers, in seconds: two imports of distributed on a busy machine.
_START_S = 60.0
#: How an own cluster's folder among temporary files begins, and the file in it that its processes hold.
PREFIX, _LOG = "drlnb-", "supervisor.log"
#: Age at which what is left of one is removed, in seconds: its log may have been named in a message.
_OLD_S = 3600.0
#: Seconds between two looks at whether all workers are there.
_LOOK_S = 1.0
#: Longest time in which runs may save what they have done when whoever started their cluster is gone, in seconds.
_ORPHANS_S = 20.0
#: Seconds between two looks at whether processes have ended; longest wait for those below a supervisor that has ended.
_GONE_S, _LAST_S = 0.01, 3.0


class LocalHandle:
    """A running supervisor, seen from whoever started it."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self.process, self.address, self.log = process, address, log
        self.pid = process.pid

    def stop(self, timeout_s: float = 15.0) -> None:
        """Close the life line, wait, and leave no process behind."""
        family = _family(self.pid)
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        self._sweep(family)

    def kill(self) -> None:
        """SIGKILL the supervisor and everything below it."""
        family = _family(self.pid)
        self.process.kill()
        self._sweep(family)

    def _sweep(self, family: list[psutil.Process]) -> None:
        """Kill what is left and wait until it is gone."""
        if self.process.poll() is None:
            family += _family(self.pid)
            self.process.kill()
        self.process.wait(10.0)
        trackers = [process for process in family if _is_tracker(process)]
        alive = wait_gone([process for process in family if process not in trackers], _LAST_S)
        _kill(alive)
        wait_gone(alive, 5.0)
        # It ends by itself after all others, and removes their semaphores.
        _kill(wait_gone(trackers, _LAST_S))
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _is_tracker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    return False


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def wait_gone(processes: Iterable[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Wait until processes have ended; return those that live on.

    One that has ended and was not reaped holds nothing, and whoever should reap it may take seconds, or never do so
    (process 1 of a container).
    """
    deadline = time.monotonic() + timeout_s
    alive = list(processes)
    while (alive := [process for process in alive if _lives(process)]) and time.monotonic() < deadline:
        time.sleep(_GONE_S)
    return alive


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def sweep(folder: Path) -> None:
    """Remove what killed clusters of this user have left in a folder: old ``drlnb-*`` whose processes all are gone."""
    for log in folder.glob(f"{PREFIX}*/{_LOG}"):
        with contextlib.suppress(OSError), log.open("rb") as file:
            is_old = time.time() - os.fstat(file.fileno()).st_mtime > _OLD_S
            if is_old and log.parent.lstat().st_uid == os.getuid():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(log.parent)


def start_local(*, n_workers: int, root: Path) -> LocalHandle:
    """Start a supervisor and wait until its cluster is up.

    Parameters
    ----------
    n_workers
        Dask workers, at least 1.
    root
        Folder for logs and workers' scratch space.

    Raises
    ------
    PeerError
        If the cluster is not up in time; the message holds the end of the supervisor's log.  Also if there is no shared
        memory for its processes.
    """
    try:
        get_context("fork").Lock()  # the kind that leaves nothing behind
    except OSError as error:  # Dask's processes would end without a word
        why = f"/dev/shm cannot be used ({error.strerror}); processes need a few bytes there: make room, or mount it so"
        raise PeerError("local cluster", f"{why} that it can be written") from None
    root.mkdir(parents=True, exist_ok=True)
    log = root / _LOG
    with log.open("ab") as output:
        fcntl.flock(output, fcntl.LOCK_SH)  # held until the last process ends that writes there
        line = python("drlnb.runtime.client.local_cluster", str(n_workers), str(root.resolve()))
        environment = {**os.environ, "PYTHONPATH": import_path()}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            line, stdin=pipe, stdout=pipe, stderr=output, env=environment, start_new_session=True
        )
    handle = LocalHandle(process, "", log)
    try:
        first = _first_line(process)
    except BaseException:  # Ctrl-C while it starts: nothing may stay behind
        handle.kill()
        raise
    if not first:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        ended = how_ended(process.returncode) if process.returncode is not None else f"was not up within {_START_S:g} s"
        short = " (the system does so when memory is short)" if process.returncode == -signal.SIGKILL else ""
        handle.kill()
        said = f"its supervisor {'was ' if short else ''}{ended}{short}"
        raise PeerError(
            "local cluster", f"did not start: {': '.join(filter(None, (said, last_line(log))))} (see {log})"
        )
    handle.address = json.loads(first)["address"]
    return handle


def _first_line(process: "subprocess.Popen[bytes]") -> bytes:
    """Return what the supervisor reports, which it writes at once; empty if it has ended or takes too long."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], _START_S)
    return process.stdout.readline() if readable else b""


async def _supervise(n_workers: int, root: Path) -> None:
    import dask
    from distributed import LocalCluster

    dask.config.set({
        "temporary-directory": str(root),  # of the scheduler, too; it would leave files beside those of other programs
        "distributed.scheduler.allowed-failures": 20,
        "distributed.scheduler.worker-ttl": "60s",
        "distributed.worker.memory.terminate": False,
        "distributed.admin.tick.limit": "60s",
        # A nanny restarts its worker by itself; on a busy machine that takes longer than the 15 s of the default.
        "distributed.deploy.lost-worker-timeout": "120s",
        # Dask would sample every thread 100 times a second: threads of ours that wait, on loops that should sleep.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "100ms",
        # Samples that scheduler, nannies and workers keep of themselves each half second, for a dashboard that is off.
        "distributed.admin.system-monitor.log-length": 120,
    })
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(0, ended.set)  # nobody writes there: it can be read once it is closed
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    # While the worker's process imports Dask, this one loads what its client is about to install here.
    loading = asyncio.create_task(asyncio.to_thread(import_module, "drlnb.runtime.scheduler.plugin"))
    cluster = await LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
        local_directory=str(root),
        asynchronous=True,
        memory_limit=0,
        silence_logs=False,
    )
    keeper = asyncio.create_task(_keep_whole(cluster, n_workers))
    try:
        await loading
        print(json.dumps({"address": cluster.scheduler_address}), flush=True)  # noqa: T201 - the pipe to our owner
        await ended.wait()
        loop.remove_reader(0)
        broker = cluster.scheduler.plugins.get(BROKER)
        if broker is not None:  # of runs that go on nobody has said that they shall end
            await broker.runs.stop_all("whoever started their cluster is gone", _ORPHANS_S)
    finally:
        keeper.cancel()
        await asyncio.wait_for(cluster.close(), 12.0)


async def _keep_whole(cluster: "LocalCluster", n_workers: int) -> None:
    """Replace nannies that have ended, or that the cluster has given up since their workers took long to come back."""
    from distributed import Status

    while True:
        await asyncio.sleep(_LOOK_S)
        gone = [name for name, nanny in cluster.workers.items() if nanny.status in (Status.closed, Status.failed)]
        for name in gone:
            del cluster.workers[name]  # the cluster's specification still names it: it is made anew under this name
        if len(cluster.workers) < n_workers:
            cluster.scale(n_workers)


def main() -> None:
    """Run as ``python -m drlnb.runtime.client.local_cluster N_WORKERS ROOT``."""
    n_workers, root = sys.argv[1:]
    become("drlnb supervisor")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(TimeoutError):
        asyncio.run(_supervise(int(n_workers), Path(root)))


if __name__ == "__main__":
    main()
