"""Keep the broker's part of one run: its spec, its tasks' states, its stream of the pool, and its newest rows.

A run that ended is resumed under its old name.  Whoever watched it goes on to ask for rows by number, and what its
former masters and clients have sent may still be under way.

A change of a setting is judged beside what is in force: what the run began with, and what was changed since.  What a
task refuses is forgotten again: its next attempt would begin with it, and fail.
"""

import asyncio
import contextlib
import itertools
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.pool import PoolMachine
from drlnb.planning.registry import OWN
from drlnb.planning.settings import SETTINGS, TASK_ROOMS, as_config, begun_with, owner, setting_problem, unknown_setting
from drlnb.records.base import Record
from drlnb.records.errors import ConfigError
from drlnb.records.round import ENDS
from drlnb.records.spec import read_work
from drlnb.rl.algorithms.resolve import PREFIX, live_keys, live_value
from drlnb.runtime.ipc.pickling import unpack_planners
from drlnb.runtime.machine_host import JournalWriter, stream_header
from drlnb.runtime.protocol import Plain

__all__ = ["LiveRun", "becomes", "forget", "journalled", "journalled_epoch", "look", "note", "with_changes"]

_T = TypeVar("_T")

#: Setting that a task brings along.
_BUDGET = "swapping.memory_budget_bytes"
#: Rows kept per run for who looks late; the file stays whole.
_RING = 20_000
#: Most rows of one answer.
_PAGE = 2000
#: Least time between two writes of status.json, in seconds.
_STATUS_S = 1.0
#: Longest wait for it at the end of a task, in seconds.
_SAID_S = 2.0
#: Longest wait for a disk that may hang, in seconds: a scheduler serves others, too.
_DISK_S = 15.0
#: Name of a stream of the pool's records.
_STREAM = re.compile(r"broker-e(?P<epoch>[0-9]+)(-.*)?")


class LiveRun:
    """One life of a run: its spec, its tasks' states, its ring of rows.

    Parameters
    ----------
    run, spec
        Its name, and what it was asked for with.
    former
        Its life before this one: attempts and rows are counted on from there.
    taken
        Streams that its journal has.
    """

    def __init__(self, run: str, spec: Plain, former: "LiveRun | None" = None, taken: Set[str] = frozenset()) -> None:
        self.run = run
        self.spec = spec
        self.planners = unpack_planners(spec.get("own_planners", {}), ["placement"])
        self.out = Path(spec["out"])
        attempts = dict(spec.get("attempts", {}))
        for task, row in former.tasks.items() if former is not None and spec.get("resume") else ():
            attempts[task] = max(row["attempt"], attempts.get(task, 0))
        self.tasks: dict[str, Plain] = {
            task["name"]: {
                "state": "starting",
                "attempt": int(attempts.get(task["name"], 0)),
                "node": "",
                "wanted": "",
                #: Settings of scheduling that were changed while it ran; its next attempt begins with them, and so
                #: does the run when it is resumed.
                "scheduling": {
                    **({_BUDGET: task["memory_budget_bytes"]} if task.get("memory_budget_bytes") else {}),
                    **spec.get("scheduling", {}).get(task["name"], {}),
                },
                #: Settings of the algorithm that were changed while it ran; its next attempt begins with them.
                "live": {},
                "reason": "",
                "n_timesteps": 0,
            }
            for task in spec["tasks"]
        }
        #: Stream -> bytes of it that are on disk at least, of former lives, too: what nobody may miss later.
        self.n_bytes: dict[str, int] = dict(spec.get("streams", {}) if former is None else former.n_bytes)
        self.taken: set[str] = set(taken) | (set() if former is None else former.taken)
        #: Machine of the scheduler -> the name of its stream here, and what writes it; none once the run has ended.
        self.streams: dict[str, tuple[str, JournalWriter]] = {}
        self.ring: deque[Plain] = deque([] if former is None else former.ring, maxlen=_RING)
        #: Number of the next row, and of the first one of this life.
        self.n_rows: int = 0 if former is None else former.n_rows
        self._first_row = self.n_rows
        self.changed = asyncio.Event()
        #: Somebody else has taken the directory over: nothing of this run is written there any more.
        self.superseded = False
        #: Task that is about to be over -> how it ends: its files say so first.
        self.ending: dict[str, Plain] = {}
        self._status_t = 0.0
        #: What status.json is to say, while it does not; and who writes it.
        self._unsaid = ""
        self._saying: asyncio.Task[None] | None = None
        self._disk = threading.Lock()

    @property
    def state(self) -> str:
        """``running`` while any task is, else the worst end."""
        return _worst(self.tasks)

    def is_over(self, task: str) -> bool:
        """Whether nothing of a task runs any more."""
        return self.tasks[task]["state"] in ENDS

    def open_stream(self, kind: str, name: str, machine: PoolMachine) -> None:
        """Begin a stream of a machine's records with what the machine is between two events.

        A run that is resumed on the same broker opens another stream; a name that is taken gets a number behind.
        """
        names = (name if n == 1 else f"{name}-{n}" for n in itertools.count(1))
        stream = next(free for free in names if free not in self.taken)
        self.taken.add(stream)
        header = partial(stream_header, stream, kind, machine)
        self.streams[kind] = (stream, JournalWriter(self.out / "journal" / f"{stream}.jsonl", header=header))
        self.write(kind, header())

    def write(self, kind: str, record: Record) -> None:
        """Write a record of a machine into its stream, and show it."""
        stream, writer = self.streams[kind]
        writer.write(record)
        self.add([{"s": stream, **record.to_row()}])

    def closing(self) -> Coroutine[object, object, None]:
        """Return what closes the streams, which take nothing from now on, in a thread: it may wait for the disk."""
        streams, self.streams = self.streams, {}

        async def close() -> None:
            for name, writer in streams.values():
                with contextlib.suppress(OSError):  # of a disk that hangs the end is not waited for
                    await _off_loop(writer.close)
                self.n_bytes[name] = writer.n_bytes

        return close()

    def add(self, rows: list[Plain]) -> None:
        """Append rows and wake who waits for them."""
        self.ring.extend(rows)
        self.n_rows += len(rows)
        self.changed.set()
        self.changed = asyncio.Event()

    def page(self, since: int) -> Plain:
        """Return rows from a number on (0: this life's), the next number, and whether some are not kept any more."""
        since = since or self._first_row
        first = self.n_rows - len(self.ring)
        n_new = self.n_rows - max(since, first)
        # From the end, where whoever follows asks: it need not walk through the ring.
        page = list(itertools.islice(reversed(self.ring), max(0, n_new)))[::-1][:_PAGE]
        return {"next": max(since, first) + len(page), "rows": page, "gap": since < first}

    def forget_rows(self) -> None:
        """Keep no row of a run that has ended; whoever asks for one gets the answer that it is not kept."""
        if self.state != "running":
            self.ring.clear()

    def write_status(self, *, force: bool = False) -> None:
        """Write status.json, at most once per second, and until the disk takes it."""
        now = time.monotonic()
        if self.superseded or (not force and now - self._status_t < _STATUS_S):
            return
        self._status_t = now
        shown = ("state", "attempt", "reason", "n_timesteps", "scheduling")
        tasks = {
            name: {key: (row | self.ending.get(name, {}))[key] for key in shown} for name, row in self.tasks.items()
        }
        self.n_bytes |= {name: writer.n_bytes for name, writer in self.streams.values()}
        status = {"run": self.run, "state": _worst(tasks), "tasks": tasks, "streams": self.n_bytes}
        self._unsaid = json.dumps(status, indent=1)
        if self._saying is None or self._saying.done():
            self._saying = asyncio.get_running_loop().create_task(self._say())

    async def _say(self) -> None:
        while text := self._unsaid:
            try:
                await _off_loop(partial(self._replace_status, text))
            except OSError:  # a full disk is reported by the journal's writer
                await asyncio.sleep(_STATUS_S)
            else:
                self._unsaid = self._unsaid if self._unsaid != text else ""

    def _replace_status(self, text: str) -> None:
        temporary = self.out / "status.json.tmp"
        with self._disk:
            if text == self._unsaid:  # else it has waited behind one that hung, and there is a newer one
                temporary.write_text(text, encoding="utf-8")
                temporary.replace(self.out / "status.json")

    async def said(self) -> None:
        """Wait until status.json says what it is to say; of a disk that refuses or hangs not for long."""
        if self._saying is not None:
            await asyncio.wait([self._saying], timeout=_SAID_S)

    def check_change(self, task: str | None, key: str, value: object) -> None:
        """Check whether a setting can be changed so, before anything is sent to any task.

        Parameters
        ----------
        task
            The task that is meant; None: all.
        key, value
            The setting, and its new value.  Of a setting of the pool the value is the pool's to judge.

        Raises
        ------
        ConfigError
            If it cannot.
        """
        meant = [plain for plain in self.spec["tasks"] if task in (None, plain["name"])]
        training = [plain for plain in meant if self.tasks[plain["name"]]["state"] not in ENDS]
        if not training:
            whose, state = (f"task {task}", self.tasks[task]["state"]) if task else (f"run {self.run}", self.state)
            raise ConfigError(f"{whose} is {state}: nothing is left to change")
        if owner(key) == "pool":
            if task:
                raise ConfigError(f"{key} belongs to the pool, not to a task: leave task out")
            return
        problems: dict[str, list[str]] = {}
        for plain in training:
            if text := self._unfit(plain, key, value):
                problems.setdefault(text, []).append(plain["name"])
        of_all = [text for text, names in problems.items() if len(names) == len(training)]
        if problems:
            raise ConfigError(of_all or [f"task {', '.join(names)}: {text}" for text, names in problems.items()])

    def plain(self, task: str) -> Plain:
        """Return the spec of a task."""
        spec: Plain = next(plain for plain in self.spec["tasks"] if plain["name"] == task)
        return spec

    def check_member(self, task: str, member: str, slots: Collection[str]) -> None:
        """Raise ConfigError if a task is over, or has no such learner (one of the pool's slots) or collector."""
        if self.is_over(task):
            raise ConfigError(f"task {task} is over: nobody can be slowed down")
        n = getattr(read_work(self.plain(task)), "n_collectors", 0)
        if member not in {*slots, *map(str, range(n))}:
            collectors = f" and collectors 0 to {n - 1}" if n else ""
            raise ConfigError(f"task {task} has no member {member!r}; there are {', '.join(slots)}{collectors}")

    def _unfit(self, plain: Plain, key: str, value: object) -> str:
        """Return why one task cannot have a value; empty if it can."""
        try:
            if owner(key):
                decision = SETTINGS[key].decision
                if decision and str(value).startswith(OWN) and value != self.spec.get("planners", {}).get(decision):
                    return f"this run has no {decision} planner {value!r}"
                begun = begun_with(self.spec.get("planners", {}), self.spec.get("settings", {}))
                in_force = {**begun, **self.tasks[plain["name"]]["scheduling"]}
                able, n = bool(plain.get("can_snapshot", True)), int(plain.get("n_learners", 1))
                return setting_problem(key, value, in_force=in_force, can_snapshot=able, n_learners=n)
            spec = read_work(plain)
            if not key.startswith(PREFIX):
                return unknown_setting(key, live_keys(spec))
            live_value(spec, key, value)
        except ValueError as error:  # ConfigError is one
            return str(error)
        return ""


def _worst(tasks: Mapping[str, Plain]) -> str:
    """Return ``running`` while any task is, else the worst end."""
    states = {task["state"] for task in tasks.values()}
    worst = next((state for state in ("starting", "running", "failed", "stopped") if state in states), "done")
    return "running" if worst == "starting" else worst


async def becomes(holds: Callable[[], bool], wait_s: float, look_s: float = 0.02) -> bool:
    """Look every `look_s` seconds whether something holds; false if the time is up first."""
    deadline = time.monotonic() + wait_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(look_s)
    return True


async def _off_loop(work: Callable[[], _T]) -> _T:
    """Do what may wait for a disk in a thread of its own: of shared ones, a disk that hangs would take them all.

    Raises
    ------
    OSError
        If the disk does not answer in time (TimeoutError), or refuses.
    """
    own = ThreadPoolExecutor(1, "drlnb-disk")
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(own, work), _DISK_S)
    finally:
        own.shutdown(wait=False)


def journalled(out: Path) -> set[str]:
    """Return the streams of a run directory."""
    return {path.stem for path in (out / "journal").glob("*.jsonl")}


async def look(out: str) -> set[str]:
    """Return the streams of a run directory; raise ConfigError if it cannot be read, or does not answer."""
    try:
        return await _off_loop(partial(journalled, Path(out)))
    except OSError as error:
        raise ConfigError(f"{out} cannot be read here: {error.strerror or 'its disk does not answer'}") from None


def journalled_epoch(streams: Set[str]) -> int:
    """Return the highest epoch of the brokers that have written any of these streams; 0 if none has."""
    names = (_STREAM.fullmatch(stream) for stream in streams)
    return max((int(name["epoch"]) for name in names if name is not None), default=0)


def note(row: Plain, action: str, key: str, value: object) -> Plain:
    """Remember what a task's next attempt must know of a user's wish; return what was remembered before."""
    former = {kind: dict(row[kind]) for kind in ("scheduling", "live")}
    if action == "set":
        row["scheduling" if owner(key) else "live"][key] = value
    elif action in ("stop", "kill", "pause"):
        row["wanted"] = action
    elif action == "resume":
        row["wanted"] = ""
    return former


def forget(row: Plain, key: str, value: object, former: Plain) -> None:
    """Forget a value that a task has refused, unless another one was set meanwhile."""
    kind = "scheduling" if owner(key) else "live"
    if row[kind].get(key) != value:
        return
    row[kind].pop(key)
    if key in former[kind]:
        row[kind][key] = former[kind][key]


def with_changes(spec: Plain, changes: Mapping[str, object]) -> Plain:
    """Return planners and settings of a task's next attempt, with what a user has changed since the run began."""
    config, settings = as_config(changes), dict(spec.get("settings", {}))
    for room in TASK_ROOMS:
        of_room = {**settings.get(room, {}), **config["settings"].pop(room, {})}
        settings |= {room: of_room} if of_room else {}
    settings |= config["settings"]
    return {"planners": {**spec.get("planners", {}), **config["planners"]}, "settings": settings}
