"""Play a run under other rules on the virtual clock, with its own durations, read from its journal."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from drlnb.records import round as words
from drlnb.records.columns.leasing import SlotAdded, SlotClosed, SlotFailed
from drlnb.records.columns.placement import NodeLost
from drlnb.records.columns.warmup import WarmupMeasured
from drlnb.records.common import SettingChanged
from drlnb.records.journal import Journal, Stream
from drlnb.sim.driver import Clock
from drlnb.sim.leases import Lease, inside, leases
from drlnb.sim.recorded.settings import Rules
from drlnb.sim.recorded.task import FEWEST, MOST, RecordedTask, switched_slots
from drlnb.sim.training.pool import Pool
from drlnb.sim.training.task import Task

__all__ = [
    "Load",
    "load_of",
    "newest_attempts",
    "pools_of",
    "recorded_tasks",
    "simulate_recorded",
    "slots_of",
    "starts_of",
]

#: Environment steps that no simulation reaches.
_ENDLESS = 10**15


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
    #: Task -> mean seconds of a round from the parameters' arrival until its last collector was ready, and that a
    #: collector was ready before; of tasks whose collectors were started between rounds, or never stopped.
    starts: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def rounds_per_s(self) -> float:
        """Rounds of all tasks per second."""
        return sum(1.0 / mean for mean in self.round_s.values())


def pools_of(journal: Journal) -> list[Stream]:
    """Return the journals of the run's pool, in the order in which they were opened."""
    pools = [stream for stream in journal.streams.values() if stream.header.machine == "pool"]
    return sorted(
        pools, key=lambda pool: (int(pool.header.config["epoch"]), len(pool.header.stream), pool.header.stream)
    )


def slots_of(pool: Stream) -> int:
    """Return how many slots of a pool could be lent when its journal ended."""
    slots = (pool.header.snapshot or {}).get("leases", {}).get("slots", {}).values()
    node_of = {str(slot["name"]): str(slot["node"]) for slot in slots if slot["state"] != "failed"}
    closed = {str(slot["name"]) for slot in slots if slot.get("closed")}
    for record in pool.records:
        if isinstance(record, SlotAdded):
            node_of[record.slot] = record.node
        elif isinstance(record, SlotFailed):
            node_of.pop(record.slot, None)
        elif isinstance(record, NodeLost):
            node_of = {slot: node for slot, node in node_of.items() if node != record.node}
        elif isinstance(record, SlotClosed):
            closed.add(record.slot)
        elif isinstance(record, SettingChanged) and record.key == "slot.undrain":
            closed.discard(str(record.value))
    return len(node_of.keys() - closed)


def load_of(pools: Iterable[Stream], tasks: Collection[str], n_slots: int) -> Load:
    """Return what some tasks of a pool came to while all of them trained, in their newest 5,000 leases.

    Parameters
    ----------
    pools
        Journals of the pool, oldest first; the newest that knows all of the tasks counts.
    tasks
        Names of the tasks, at least one.
    n_slots
        Slots of the pool, at least 1.

    Raises
    ------
    ValueError
        If there was no time in which all of them trained.
    """
    for pool in reversed(list(pools)):
        mine: dict[str, deque[Lease]] = {}
        for lease in leases(pool):
            if (name := lease.grant.task.rpartition("/")[2]) in tasks:
                mine.setdefault(name, deque(maxlen=MOST)).append(lease)
        if mine.keys() >= set(tasks):
            return _load(mine, n_slots)
    raise ValueError(f"no pool of this run has lent a slot to each of {', '.join(sorted(tasks))}")


def _load(leases_of: Mapping[str, Sequence[Lease]], n_slots: int) -> Load:
    begin_t = max(mine[0].ended_t for mine in leases_of.values())  # the first lease makes the initial parameters
    end_t = min(mine[-1].ended_t for mine in leases_of.values())
    seen = {name: [lease for lease in mine if begin_t < lease.ended_t <= end_t] for name, mine in leases_of.items()}
    n_rounds = {name: len({lease.grant.round for lease in mine}) for name, mine in seen.items()}
    if short := sorted(name for name, n in n_rounds.items() if n < FEWEST):
        raise ValueError(f"{', '.join(short)}: fewer than {FEWEST} rounds while all tasks trained: let them train on")
    window_s = end_t - begin_t
    every = [lease for mine in leases_of.values() for lease in mine]
    held_s = sum(len(each.grant.slots) * inside(each.granted_t, each.ended_t, begin_t, end_t) for each in every)
    return Load(
        window_s=window_s,
        round_s={name: window_s / n for name, n in n_rounds.items()},
        wait_s={name: sum(lease.grant.waited_s for lease in mine) / n_rounds[name] for name, mine in seen.items()},
        rounds={name: (mine[0].grant.round, mine[-1].grant.round) for name, mine in seen.items()},
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
    switched = switched_slots(pools_of(journal))
    return tuple(RecordedTask(newest[name], rounds[name], switched) for name in sorted(rounds))


def newest_attempts(journal: Journal, tasks: Collection[str]) -> dict[str, Stream]:
    """Return the journal of each task's newest attempt.

    Raises
    ------
    ValueError
        If a task is not in the journal.
    """
    newest: dict[str, Stream] = {}
    rounds = [stream for stream in journal.streams.values() if stream.header.machine == "round"]
    for stream in sorted(rounds, key=_attempt, reverse=True):
        newest.setdefault(str(stream.header.config["task"]), stream)
    missing = sorted(set(tasks) - newest.keys())
    if missing:
        raise ValueError(f"the journal has no task {', '.join(missing)}")
    return {name: newest[name] for name in tasks}


def _attempt(stream: Stream) -> int:
    return next((opened.attempt for opened in stream.each(words.TaskOpened)), 0)


def simulate_recorded(tasks: Sequence[RecordedTask], rules: Rules, *, until_s: float) -> Load:
    """Run tasks on the virtual clock with the durations that were recorded of them; none of them ends.

    Parameters
    ----------
    tasks
        What was recorded.
    rules
        Slots, settings, priorities, and what differs in the tasks from their recorded configurations.
    until_s
        Seconds that are simulated, above 0.

    Raises
    ------
    ValueError
        If the time is too short for 5 rounds of each task.
    """
    clock = Clock()
    slots = {f"n0/slot{k}": "n0" for k in range(rules.n_slots)}
    pool = Pool(clock, slots=slots, nodes=("n0",), settings=rules.settings)
    for name, priority in rules.priorities.items():
        pool.host.feed(SettingChanged, key="task.priority", value=priority, task=name)
    played = [
        Task(clock, pool, task, config=_config(task, rules.tasks.get(task.name, {})), node="n0") for task in tasks
    ]
    for each in played:
        each.open()
    clock.run(until_s)
    load = load_of([pool.host.stream], [task.name for task in tasks], rules.n_slots)
    return replace(load, starts=starts_of({each.name: each.host.stream for each in played}, load.rounds))


def starts_of(streams: Mapping[str, Stream], rounds: Mapping[str, tuple[int, int]]) -> dict[str, tuple[float, float]]:
    """Return :attr:`Load.starts` by the journals of tasks, in some of their rounds."""
    means = {}
    for name, stream in streams.items():
        first, last = rounds[name]
        rested = deque((each for each in stream.each(WarmupMeasured) if first <= each.round <= last), MOST)
        if rested:
            means[name] = fmean(each.wait_s for each in rested), fmean(each.idle_s for each in rested)
    return means


def _config(task: RecordedTask, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the round machine's configuration, without an end and without evaluations."""
    nested = {
        name: {**task.config.get(name, {}), **more, **changes.get(name, {})}
        for name, more in (("planners", {"placement": "first"}), ("warmup", {}))
    }
    nested["swapping"] = {}  # what was recorded took as long as its plans did
    return {**task.config, **changes, **nested, "total_timesteps": _ENDLESS, "eval_freq": 0, "replay": False}
