"""Run trainings in processes of their own: one per task, or one ``drlnb train``; none outlives its row."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import psutil

from benchmarks.frame.stage import virtual_devices
from drlnb.records.errors import TrainingFailed
from drlnb.runtime.client.local_cluster import wait_gone
from drlnb.runtime.ipc.start_modes import child_environment, last_line, tail

__all__ = ["OWN", "Trained", "drlnb_train", "train_all"]

#: The child that trains by drlnb, without a cluster.
OWN = "benchmarks.frame.training_child"


@dataclass(frozen=True, slots=True)
class Trained:
    """What was measured of a training."""

    seconds: float
    n_timesteps: int = 0
    #: Seconds of that spent collecting and updating.
    collect_s: float = 0.0
    update_s: float = 0.0
    #: Mean return of the episodes that were played afterwards; not a number where none were asked for.
    mean_reward: float = float("nan")
    #: When its rounds ended, on the machine's monotonic clock.
    ends: Sequence[float] = ()
    #: Mean return of the last 100 training episodes, at each tenth of the rounds.
    curve: Sequence[float] = ()


def train_all(
    works: Sequence[Mapping[str, object]], *, module: str = OWN, at_once: int | None = None, longest_s: float = 900.0
) -> list[Trained]:
    """Train each piece of work in a fresh process, with one thread per library.

    Parameters
    ----------
    works
        What the children read from their standard input, as JSON.
    module
        Of the children.
    at_once
        How many processes there are at once; None: all, and they begin together.
    longest_s
        Seconds after which a training is stopped.

    Raises
    ------
    TrainingFailed
        If one fails, or takes longer.
    """
    begin = Barrier(1 if at_once else len(works))
    running: list[subprocess.Popen[str]] = []
    pool = ThreadPoolExecutor(at_once or len(works))
    try:
        return list(pool.map(partial(_trained, module, begin, running, longest_s), works))
    finally:
        begin.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.kill()
        pool.shutdown()


def _trained(
    module: str, begin: Barrier, running: list["subprocess.Popen[str]"], longest_s: float, work: Mapping[str, object]
) -> Trained:
    """Run one child to its end."""
    with tempfile.NamedTemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=child_environment(**({} if "device" in work else {"CUDA_VISIBLE_DEVICES": ""})),
            start_new_session=True,  # Ctrl-C is the bench's: it ends its children itself
        )
        running.append(process)
        try:
            with process:
                answer = _answer(process, json.dumps(work), begin, longest_s)
        except subprocess.TimeoutExpired:
            raise TrainingFailed(f"{module} took more than {longest_s:.0f} s and was stopped") from None
        if process.returncode:
            begin.abort()
            last = last_line(Path(errors.name)) or "it wrote no error"
            raise TrainingFailed(f"{module} exited with {process.returncode}: {last}")
        return Trained(**json.loads(answer))


def _answer(process: "subprocess.Popen[str]", work: str, begin: Barrier, longest_s: float) -> str:
    """Give a child its work, let it begin when all are ready, and return the last line that it prints."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError, BrokenBarrierError):  # it has failed, and its exit code says so
        process.stdin.write(work + "\n")
        process.stdin.flush()
        if process.stdout.readline():
            begin.wait()
    try:
        return process.communicate("go\n", timeout=longest_s)[0].strip().rpartition("\n")[2]
    finally:
        process.kill()


@contextlib.contextmanager
def drlnb_train(words: Sequence[str]) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Run ``drlnb train`` with these words on virtual devices; give process and run directory.

    At the end of the block the process, and everything that it started, is gone: after its own way to end, or killed.
    """
    with tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder:
        out, log = Path(folder) / "run", Path(folder) / "log"
        command = [sys.executable, "-m", "drlnb.cli.main", "train", *words, "--out", str(out)]
        with virtual_devices(), log.open("wb") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        try:
            yield process, out
            if process.poll():
                raise TrainingFailed(f"drlnb train exited with {process.returncode}: {tail(log, 300)}")
        finally:
            _end_family(process)


def _end_family(process: "subprocess.Popen[bytes]") -> None:
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20.0)
    process.kill()
    process.wait()
    for child in wait_gone(family, 15.0):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
