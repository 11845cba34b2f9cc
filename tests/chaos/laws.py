"""Find the laws that a run broke, from its journal alone, apart from the machines that wrote it."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.base import Event
from drlnb.records.columns import leasing
from drlnb.records.errors import JournalError
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream
from drlnb.records.replay import ParametersCarried

#: Law -> what it says.
LAWS: Mapping[str, str] = {
    "replay": "every stream is decided again exactly, and its time never runs backwards",
    "holder": "no slot is held by two live leases, and fences grow",
    "rounds": "versions grow by one within an attempt, and no fragment is used twice",
    "fences": "every accepted update has one lease of its own, granted to that attempt, not expired and not known lost",
    "masters": "no attempt has a lease once a later one has had one, and none goes on from an update after its end",
}
#: A master's clock is related to the pool's by messages; what is less than this apart is no order, in seconds.
_SLACK_S = 0.001


@dataclass(slots=True)
class Grants:
    """What the pool's streams say about leases."""

    #: Fence -> (the task's name in the pool, attempt).
    holder: dict[Fence, tuple[str, int]] = field(default_factory=dict)
    #: Fence -> when it was granted, and when it was over or taken away, on the pool's clock.
    granted_t: dict[Fence, float] = field(default_factory=dict)
    over_t: dict[Fence, float] = field(default_factory=dict)
    #: Fence -> why it was over: ``returned``, ``expired``, ``task-stopped`` (a later attempt asks), and others.
    why: dict[Fence, str] = field(default_factory=dict)


def grants_of(journal: Journal) -> Grants:
    """Return what became of every lease that a journal tells of."""
    found = Grants()
    for stream in _streams(journal, "pool"):
        for event, answer in stream.answers():
            for record in answer:
                if isinstance(record, leasing.LeaseGranted):
                    found.holder[record.fence] = (record.task, record.attempt)
                    found.granted_t[record.fence] = event.t
                elif isinstance(record, leasing.LeaseExpired | leasing.LeaseReleased):
                    found.over_t[record.fence] = event.t
                    found.why[record.fence] = getattr(record, "reason", "expired")
    return found


def broken_laws(journal: Journal, *, run: str) -> dict[str, list[str]]:
    """Return what breaks each law of :data:`LAWS`, in words; empty lists where it holds.

    Parameters
    ----------
    journal
        Of one run, whole: every attempt of every task, and the pool.
    run
        Its name, which tells its tasks from others in the pool.
    """
    grants = grants_of(journal)
    found: dict[str, list[str]] = {law: [] for law in LAWS}
    for name, stream in journal.streams.items():
        found["replay"] += [f"{name}: {what}" for what in _replays(stream)]
    for stream in _streams(journal, "pool"):
        found["holder"] += _holders(stream)
        found["masters"] += _masters(stream)
    for task, attempts in _attempts(journal).items():
        for _, stream in attempts:
            found["rounds"] += [f"{task}: {what}" for what in _rounds(stream)]
        updates = [one for attempt, stream in attempts for one in _updates(stream, attempt, grants)]
        found["fences"] += _fences(f"{run}/{task}", updates, grants)
        found["fences"] += [f"{task}: {what}" for _, stream in attempts for what in _known_lost(stream)]
        found["masters"] += _lineage(task, attempts, updates, grants)
    return found


def _streams(journal: Journal, machine: str) -> Iterator[Stream]:
    return (stream for stream in journal.streams.values() if stream.header.machine == machine)


def _attempts(journal: Journal) -> dict[str, list[tuple[int, Stream]]]:
    """Return every task's attempts in their order."""
    found: dict[str, list[tuple[int, Stream]]] = {}
    for stream in _streams(journal, "round"):
        opened = stream.of(words.TaskOpened)
        if opened:
            found.setdefault(str(stream.header.config["task"]), []).append((opened[0].attempt, stream))
    return {task: sorted(attempts, key=lambda one: one[0]) for task, attempts in found.items()}


def _replays(stream: Stream) -> Iterator[str]:
    try:
        difference = replay(stream).difference
    except (JournalError, AssertionError) as error:
        difference = f"{type(error).__name__}: {error}"
    if difference is not None:
        yield difference
    times = [record.t for record in stream.records if isinstance(record, Event)]
    if times != sorted(times):
        yield "time runs backwards"


def _holders(stream: Stream) -> Iterator[str]:
    holder: dict[str, Fence] = {}
    last: Fence | None = None
    for record in stream.records:
        if isinstance(record, leasing.LeaseGranted):
            if last is not None and not record.fence > last:
                yield f"fence {record.fence} follows {last}"
            last = record.fence
            for slot in record.slots:
                if slot in holder:
                    yield f"{slot} is granted under {record.fence} while {holder[slot]} holds it"
                holder[slot] = record.fence
        elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired):
            for slot in record.slots:
                if holder.pop(slot, record.fence) != record.fence:
                    yield f"the end of {record.fence} frees {slot}, which another lease holds"


def _masters(stream: Stream) -> Iterator[str]:
    """Find attempts that have leases beside a later one's, in the order of the pool: no clocks are compared."""
    held: dict[Fence, tuple[str, int]] = {}
    newest: dict[str, int] = {}
    for record in stream.records:
        if isinstance(record, leasing.LeaseGranted):
            task, attempt = record.task, record.attempt
            for fence, (other, earlier) in held.items():
                if other == task and earlier < attempt:
                    yield f"{task}: attempt {attempt} is granted {record.fence} while attempt {earlier} has {fence}"
            if attempt < newest.get(task, 0):
                yield f"{task}: attempt {attempt} is granted {record.fence} after attempt {newest[task]} had one"
            newest[task] = max(attempt, newest.get(task, 0))
            held[record.fence] = task, attempt
        elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired):
            held.pop(record.fence, None)


def _rounds(stream: Stream) -> Iterator[str]:
    versions = [r.version for r in stream.records if isinstance(r, words.ParametersCommitted | ParametersCarried)]
    for before, after in itertools.pairwise(versions):
        if after != before + 1:
            yield f"version {after} follows {before}"
    used = Counter((r.collector, r.round) for r in stream.of(words.DropExperience) if r.reason == "used")
    for (collector, round_), n in used.items():
        if n > 1:
            yield f"round {round_} of collector {collector} is used {n} times"


# ------------------------------------------------------------------ updates, each held against the pool's clock
@dataclass(frozen=True, slots=True, kw_only=True)
class _Update:
    """A version that a master took as its task's parameters."""

    attempt: int
    version: int
    fence: Fence
    #: When that was at the earliest, on the pool's clock.
    earliest_t: float


def _updates(stream: Stream, attempt: int, grants: Grants) -> list[_Update]:
    ahead_s = _ahead_s(stream, grants)
    return [
        _Update(attempt=attempt, version=one.version, fence=one.fence, earliest_t=one.t + ahead_s)
        for one in stream.of(words.ParametersCommitted)
    ]


def _ahead_s(stream: Stream, grants: Grants) -> float:
    """Return by how much the pool's clock is ahead of a master's at least: a lease is received after it was granted."""
    received = [event for event in stream.of(words.LeaseReceived) if event.fence in grants.granted_t]
    return max((grants.granted_t[event.fence] - event.t for event in received), default=float("-inf"))


def _fences(task: str, updates: Sequence[_Update], grants: Grants) -> Iterator[str]:
    # Hold planners differ in how long a lease lasts, none makes two updates under one.
    for fence, n in Counter(one.fence for one in updates).items():
        if n > 1:
            yield f"{task}: {n} updates under {fence}"
    for one in updates:
        what = f"{task}: version {one.version} of attempt {one.attempt} under {one.fence}"
        holder = grants.holder.get(one.fence)
        if holder != (task, one.attempt):
            yield f"{what}, which the pool granted to {holder}"
        # A lease that the pool takes away for another reason (its slot died, a later attempt asks) is over for its
        # holder once it hears of it: what is accepted in between must have no effect, see `_lineage`.
        late_s = _late_s(one, grants)
        if late_s > 0 and grants.why[one.fence] == "expired":
            yield f"{what} was accepted {late_s:.3f} s or more after the lease had expired"


def _late_s(update: _Update, grants: Grants) -> float:
    """Return how long after the end of its lease an update was accepted at least; 0 if that is not certain."""
    late_s = update.earliest_t - grants.over_t.get(update.fence, float("inf"))
    return late_s if late_s > _SLACK_S else 0.0


def _known_lost(stream: Stream) -> Iterator[str]:
    lost: set[Fence] = set()
    for record in stream.records:
        if isinstance(record, words.LeaseLost):
            lost.add(record.fence)
        elif isinstance(record, words.ParametersCommitted) and record.fence in lost:
            yield f"version {record.version} under {record.fence}, which its master knew to be lost"


def _lineage(
    task: str, attempts: Sequence[tuple[int, Stream]], updates: Sequence[_Update], grants: Grants
) -> Iterator[str]:
    """Find attempts that begin where an earlier one came to after its own end."""
    for attempt, stream in attempts:
        (opened, *_) = stream.of(words.TaskOpened)
        came_to = [one for one in updates if one.attempt < attempt and one.version == opened.version]
        if came_to and all(_late_s(one, grants) and grants.why[one.fence] == "task-stopped" for one in came_to):
            yield f"{task}: attempt {attempt} begins with version {opened.version}, which no living attempt accepted"
