"""Keep the broker's part of one run: its spec, its tasks' states, its stream of the pool, and its newest rows."""

import asyncio
import contextlib
import itertools
import json
import re
import time
from collections import deque
from pathlib import Path

from drlnb.runtime.ipc.pickling import unpack_planners
from drlnb.runtime.machine_host import JournalWriter
from drlnb.runtime.protocol import Plain
from drlnb.runtime.scheduler.run_settings import OVER

__all__ = ["LiveRun", "free_stream", "journalled_epoch"]

#: Rows kept per run for who looks late; the file stays whole.
_RING = 20_000
#: Least time between two writes of status.json, in seconds.
_STATUS_S = 1.0
#: Name of a stream of the pool's records.
_STREAM = re.compile(r"broker-e(?P<epoch>[0-9]+)(-.*)?")


class LiveRun:
    """One run: its spec, its tasks' states, its ring of rows."""

    def __init__(self, run: str, spec: Plain, epoch: int) -> None:
        self.run = run
        self.spec = spec
        self.planners = unpack_planners(spec.get("own_planners", {}), ["placement"])
        self.out = Path(spec["out"])
        self.tasks: dict[str, Plain] = {
            task["name"]: {
                "state": "starting",
                "attempt": int(spec.get("attempts", {}).get(task["name"], 0)),
                "node": "",
                "wanted": "",
                #: Settings of scheduling that were changed while it ran; its next attempt begins with them, and so
                #: does the run when it is resumed.
                "scheduling": dict(spec.get("scheduling", {}).get(task["name"], {})),
                #: Settings of the algorithm that were changed while it ran; its next attempt begins with them.
                "live": {},
                "reason": "",
                "n_timesteps": 0,
            }
            for task in spec["tasks"]
        }
        self.open_stream(epoch)
        self.ring: deque[Plain] = deque(maxlen=_RING)
        self.n_rows = 0
        self.changed = asyncio.Event()
        self._status_t = 0.0

    @property
    def state(self) -> str:
        """``running`` while any task is, else the worst end."""
        states = {task["state"] for task in self.tasks.values()}
        for state in ("starting", "running", "failed", "stopped"):
            if state in states:
                return "running" if state == "starting" else state
        return "done"

    def is_over(self, task: str) -> bool:
        """Whether nothing of a task runs any more."""
        return self.tasks[task]["state"] in OVER

    def open_stream(self, epoch: int) -> None:
        """Begin a new stream of the pool's records; the former one has been closed."""
        self.stream = free_stream(self.out / "journal", f"broker-e{epoch}")
        self.writer = JournalWriter(self.out / "journal" / f"{self.stream}.jsonl")

    def add(self, rows: list[Plain]) -> None:
        """Append rows and wake who waits for them."""
        self.ring.extend(rows)
        self.n_rows += len(rows)
        self.changed.set()
        self.changed = asyncio.Event()

    def forget_rows(self) -> None:
        """Keep no row of a run that has ended; whoever asks for one gets the answer that it is not kept."""
        if self.state != "running":
            self.ring.clear()

    def write_status(self, *, force: bool = False) -> None:
        """Write status.json, at most once per second."""
        now = time.monotonic()
        if not force and now - self._status_t < _STATUS_S:
            return
        self._status_t = now
        shown = ("state", "attempt", "reason", "n_timesteps", "scheduling")
        tasks = {name: {key: row[key] for key in shown} for name, row in self.tasks.items()}
        text = json.dumps({"run": self.run, "state": self.state, "tasks": tasks}, indent=1)
        temporary = self.out / "status.json.tmp"
        with contextlib.suppress(OSError):  # a full disk is reported by the journal's writer
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self.out / "status.json")


def free_stream(folder: Path, name: str) -> str:
    """Return a stream name without a file: a run that is resumed on the same broker opens another stream."""
    names = (name if n == 1 else f"{name}-{n}" for n in itertools.count(1))
    return next(free for free in names if not (folder / f"{free}.jsonl").exists())


def journalled_epoch(out: Path) -> int:
    """Return the highest epoch of the brokers that have journalled into a run directory; 0 if none has."""
    names = (_STREAM.fullmatch(path.stem) for path in (out / "journal").glob("broker-e*.jsonl"))
    return max((int(name["epoch"]) for name in names if name is not None), default=0)
