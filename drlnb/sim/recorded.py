"""What would this run do under another rule?  Its own durations, taken from its journal, on the virtual clock."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records import round as words
from drlnb.records.journal import Journal, Stream
from drlnb.records.leasing import LeaseExpired, LeaseGranted, LeaseReleased, SlotAdded, SlotFailed
from drlnb.records.placement import NodeLost
from drlnb.records.warmup import CollectorReady, WakeCollector
from drlnb.sim.costs import Costs, RoundCosts
from drlnb.sim.driver import Clock
from drlnb.sim.pool import Pool
from drlnb.sim.task import Task

__all__ = [
    "Load",
    "RecordedTask",
    "load_of",
    "newest_attempts",
    "pools_of",
    "recorded_tasks",
    "simulate_recorded",
    "slots_of",
]

#: Fewest finished rounds of a task that can stand for the others.
_FEWEST = 5
#: Environment steps that no simulation reaches.
_ENDLESS = 10**15
#: Newest requests whose way to the pool and back is looked at.
_RPCS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What tasks on shared slots came to, while all of them trained: recorded, or simulated."""

    #: Length of that time, in seconds.
    window_s: float
    #: Mean round in seconds, by task.
    round_s: Mapping[str, float]
    #: Mean wait for a slot per round in seconds, by task.
    wait_s: Mapping[str, float]
    #: Rounds that it holds, first and last, by task.
    rounds: Mapping[str, tuple[int, int]]
    #: Seconds held / (slots x window), dimensionless.
    held_frac: float

    @property
    def rounds_per_s(self) -> float:
        """Rounds of all tasks per second."""
        return sum(1.0 / mean for mean in self.round_s.values())


class RecordedTask:
    """The durations of some of a task's finished rounds, given again in their order and then from the start.

    Parameters
    ----------
    stream
        The journal of one attempt.
    rounds
        First and last round that are taken; None: all.

    Raises
    ------
    ValueError
        If fewer than 5 of them are finished.
    """

    def __init__(self, stream: Stream, rounds: tuple[int, int] | None = None) -> None:
        self.config: Mapping[str, Any] = stream.header.config
        self.name = str(self.config["task"])
        reading = _Reading(int(self.config["n_collectors"]))
        for event, answer in stream.answers():
            reading.take(event.t, event, *answer)
        first, last = rounds or (0, max(reading.rounds, default=0))
        self._rounds = [costs for k, costs in reading.rounds.items() if first <= k <= last]
        self._first = reading.first
        if len(self._rounds) < _FEWEST:
            raise ValueError(
                f"task {self.name}: {len(self._rounds)} of its finished rounds can be used, at least {_FEWEST} are "
                "needed: let it train on"
            )
        self._start_s = median(reading.starts) if reading.starts else Costs().start_s
        self.costs: Costs = replace(Costs(start_s=self._start_s), **_saving(stream))

    def round(self, k: int) -> RoundCosts:
        """Return the durations of round `k`; 0 makes the initial parameters."""
        return self._rounds[(k - 1) % len(self._rounds)] if k else self._first

    def start_s(self) -> float:
        """Return the median start of a collector, in seconds."""
        return self._start_s


class _Reading:
    """Reads a task's stream and keeps what its rounds took.

    On a slot a batch takes from the later of its command and the end of the one before it until its answer: the way to
    the executor and back is part of it, since the slot is held meanwhile.
    """

    def __init__(self, n_collectors: int) -> None:
        self.n = n_collectors
        nothing = (0.0,) * n_collectors
        self.first = RoundCosts(collect_s=nothing, stage_s=nothing, finish_s=0.0, publish_s=0.0, rpc_s=0.0)
        self.rounds: dict[int, RoundCosts] = {}
        self.starts: list[float] = []
        #: Collector or request -> when it was woken, sent to the slot, asked for.
        self._woken: dict[int, float] = {}
        self._sent: dict[int, float] = {}
        self._asked: dict[str, float] = {}
        self._collect: dict[int, float] = {}
        self._stage: dict[int, float] = {}
        self._rpc: list[float] = []
        self._free_t = -math.inf
        self._finish_t: float | None = None
        self._finish_s = 0.0
        self._handlers: dict[type, Callable[[float, Any], None]] = {
            WakeCollector: lambda t, one: self._woken.update({one.collector: t}),
            words.ComputeGradient: lambda t, one: self._sent.update({one.collector: t}),
            words.RequestSlot: lambda t, one: self._asked.update({one.request_id: t}),
            words.ExperienceArrived: self._arrived,
            words.GradientComputed: self._computed,
            words.FinishRound: self._finishes,
            words.ParametersReady: self._made,
            words.LeaseReceived: self._leased,
            words.MetricsRecorded: self._ended,
            CollectorReady: lambda t, one: self.starts.append(one.start_s),
        }

    def take(self, t: float, *records: Any) -> None:
        """Take an event at `t`, and what was answered."""
        for record in records:
            handler = self._handlers.get(type(record))
            if handler is not None:
                handler(t, record)

    def _arrived(self, t: float, event: words.ExperienceArrived) -> None:
        if event.collector in self._woken:
            self._collect[event.collector] = t - self._woken.pop(event.collector)

    def _computed(self, t: float, event: words.GradientComputed) -> None:
        self._stage[event.collector] = t - max(self._sent.get(event.collector, t), self._free_t)
        self._free_t = t

    def _finishes(self, t: float, command: words.FinishRound) -> None:
        del command
        self._finish_t = t

    def _made(self, t: float, event: words.ParametersReady) -> None:
        if event.round:
            self._finish_s = event.elapsed_s if self._finish_t is None else t - self._finish_t
        else:
            nothing = (0.0,) * self.n
            self.first = RoundCosts(
                collect_s=nothing, stage_s=nothing, finish_s=event.elapsed_s, publish_s=0.0, rpc_s=0.0
            )

    def _leased(self, t: float, event: words.LeaseReceived) -> None:
        asked_t = self._asked.pop(event.request_id, None)
        if asked_t is not None:
            self._rpc.append(max(0.0, t - asked_t - event.waited_s) / 2)

    def _ended(self, t: float, record: words.MetricsRecorded) -> None:
        del t
        if len(self._collect) == len(self._stage) == self.n:
            rpc_s = median(self._rpc[-_RPCS:]) if self._rpc else 0.0
            self.rounds[record.round] = RoundCosts(
                collect_s=tuple(self._collect[c] for c in range(self.n)),
                stage_s=tuple(self._stage[c] for c in range(self.n)),
                finish_s=self._finish_s,
                publish_s=float(record.metrics["round/push_s"]),
                rpc_s=rpc_s,
            )
        self._collect.clear()
        self._stage.clear()
        self._sent.clear()
        self._free_t, self._finish_t = -math.inf, None


def _saving(stream: Stream) -> dict[str, Any]:
    """Return what copying and writing of a checkpoint took, in seconds, where there was one."""
    copied: list[float] = []
    begun: dict[int, float] = {}
    for event, answer in stream.answers():
        if isinstance(event, words.CheckpointGathered) and event.version in begun:
            copied.append(event.t - begun[event.version])
        begun.update({r.version: event.t for r in answer if isinstance(r, words.WriteCheckpoint)})
    written = [record.elapsed_s for record in stream.of(words.CheckpointWritten)]
    return ({"gather_s": median(copied)} if copied else {}) | ({"write_s": median(written)} if written else {})


def pools_of(journal: Journal) -> list[Stream]:
    """Return the journals of the run's pool, in the order in which they were opened."""
    pools = [stream for stream in journal.streams.values() if stream.header.machine == "pool"]
    return sorted(
        pools, key=lambda pool: (int(pool.header.config["epoch"]), len(pool.header.stream), pool.header.stream)
    )


def slots_of(pool: Stream) -> int:
    """Return how many slots of a pool could be lent when its journal ended."""
    table = (pool.header.snapshot or {}).get("table", {})
    node_of = {str(slot["name"]): str(slot["node"]) for slot in table.get("slots", ()) if slot["state"] != "failed"}
    for record in pool.records:
        if isinstance(record, SlotAdded):
            node_of[record.slot] = record.node
        elif isinstance(record, SlotFailed):
            node_of.pop(record.slot, None)
        elif isinstance(record, NodeLost):
            node_of = {slot: node for slot, node in node_of.items() if node != record.node}
    return len(node_of)


def load_of(
    pools: Iterable[Stream], tasks: Collection[str], n_slots: int, *, part: tuple[float, float] = (0.0, 1.0)
) -> Load:
    """Return what some tasks of a pool came to while all of them trained.

    Parameters
    ----------
    pools
        Journals of the pool, oldest first; the newest that knows all of the tasks counts.
    tasks
        Names of the tasks, at least one.
    n_slots
        Slots of the pool, at least 1.
    part
        Begin and end of the part of that time that counts, as shares of it; in [0, 1], rising.

    Raises
    ------
    ValueError
        If there was no time in which all of them trained, or `part` is none.
    """
    if not 0.0 <= part[0] < part[1] <= 1.0:
        raise ValueError(f"part must rise within [0, 1], got {part}")
    for pool in reversed(list(pools)):
        leases = _leases(pool, tasks)
        if leases.keys() >= set(tasks):
            return _load(leases, n_slots, part)
    raise ValueError(f"no pool of this run has lent a slot to each of {', '.join(sorted(tasks))}")


@dataclass(frozen=True, slots=True)
class _Lease:
    """One lease on the pool's clock."""

    round: int
    granted_t: float
    waited_s: float
    ended_t: float


def _leases(pool: Stream, tasks: Collection[str]) -> dict[str, list[_Lease]]:
    """Return the ended leases of some tasks, in the order of their ends."""
    granted: dict[Any, tuple[float, LeaseGranted]] = {}
    found: dict[str, list[_Lease]] = {}
    for event, answer in pool.answers():
        for record in answer:
            if isinstance(record, LeaseGranted) and record.task.rpartition("/")[2] in tasks:
                granted[record.fence] = (event.t, record)
            elif isinstance(record, LeaseReleased | LeaseExpired) and record.fence in granted:
                t, grant = granted.pop(record.fence)
                mine = found.setdefault(grant.task.rpartition("/")[2], [])
                mine.append(_Lease(grant.round, t, grant.waited_s, event.t))
    return found


def _load(leases: Mapping[str, Sequence[_Lease]], n_slots: int, part: tuple[float, float]) -> Load:
    first_t = max(mine[0].ended_t for mine in leases.values())  # the first lease makes the initial parameters
    last_t = min(mine[-1].ended_t for mine in leases.values())
    begin_t, end_t = (first_t + share * (last_t - first_t) for share in part)
    seen = {name: [one for one in mine if begin_t < one.ended_t <= end_t] for name, mine in leases.items()}
    short = sorted(name for name, mine in seen.items() if len({one.round for one in mine}) < _FEWEST)
    if short:
        raise ValueError(f"{', '.join(short)}: fewer than {_FEWEST} rounds while all tasks trained: let them train on")
    window_s = end_t - begin_t
    n_rounds = {name: len({one.round for one in mine}) for name, mine in seen.items()}
    held_s = sum(
        max(0.0, min(end_t, one.ended_t) - max(begin_t, one.granted_t)) for mine in leases.values() for one in mine
    )
    return Load(
        window_s=window_s,
        round_s={name: window_s / n for name, n in n_rounds.items()},
        wait_s={name: sum(one.waited_s for one in mine) / n_rounds[name] for name, mine in seen.items()},
        rounds={name: (mine[0].round, mine[-1].round) for name, mine in seen.items()},
        held_frac=min(1.0, held_s / (n_slots * window_s)),
    )


def recorded_tasks(journal: Journal, rounds: Mapping[str, tuple[int, int]]) -> tuple[RecordedTask, ...]:
    """Return tasks of a run, each by its newest attempt.

    Parameters
    ----------
    journal
        The run's journal.
    rounds
        Task -> first and last round that are taken.

    Raises
    ------
    ValueError
        If a task is not in the journal or off-policy, or fewer than 5 of its rounds can be used.
    """
    newest = newest_attempts(journal, rounds)
    rings = sorted(name for name in rounds if newest[name].header.config.get("replay"))
    if rings:
        raise ValueError(f"{', '.join(rings)}: rounds of an off-policy task cannot be simulated")
    return tuple(RecordedTask(newest[name], rounds[name]) for name in sorted(rounds))


def newest_attempts(journal: Journal, tasks: Collection[str]) -> dict[str, Stream]:
    """Return the journal of each task's newest attempt.

    Raises
    ------
    ValueError
        If a task is not in the journal.
    """
    newest: dict[str, tuple[int, Stream]] = {}
    for stream in journal.streams.values():
        if stream.header.machine != "round":
            continue
        name = str(stream.header.config["task"])
        attempt = max((one.attempt for one in stream.of(words.TaskOpened)), default=0)
        if name not in newest or attempt > newest[name][0]:
            newest[name] = (attempt, stream)
    missing = sorted(set(tasks) - newest.keys())
    if missing:
        raise ValueError(f"the journal has no task {', '.join(missing)}")
    return {name: newest[name][1] for name in tasks}


def simulate_recorded(
    tasks: Sequence[RecordedTask],
    *,
    n_slots: int,
    settings: LeasingSettings,
    planners: Mapping[str, Mapping[str, str]],
    until_s: float,
) -> Load:
    """Run tasks on the virtual clock with the durations that were recorded of them; none of them ends.

    Parameters
    ----------
    tasks
        What was recorded.
    n_slots
        Slots of the pool, at least 1.
    settings
        Settings of leasing.
    planners
        Task -> planners that differ from the recorded ones, as ``{"hold": "last"}``.
    until_s
        Seconds that are simulated, above 0.

    Raises
    ------
    ValueError
        If the time is too short for 5 rounds of each task.
    """
    clock = Clock()
    slots = {f"n0/slot{k}": "n0" for k in range(n_slots)}
    pool = Pool(clock, slots=slots, nodes=("n0",), settings=settings)
    for task in tasks:
        Task(clock, pool, task, config=_config(task, planners.get(task.name, {})), node="n0").open()
    clock.run(until_s)
    return load_of([pool.host.stream], [task.name for task in tasks], n_slots)


def _config(task: RecordedTask, planners: Mapping[str, str]) -> dict[str, Any]:
    """Return the round machine's configuration, without an end and without evaluations."""
    return {
        **task.config,
        "planners": {**task.config.get("planners", {}), "placement": "first", **planners},
        "total_timesteps": _ENDLESS,
        "eval_freq": 0,
        "replay": False,
    }
