"""Read from a task's journal how long its rounds took, to be played once more on the virtual clock."""

import math
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from drlnb.planning.warmup.processes import is_guide
from drlnb.records import round as words
from drlnb.records.base import Record
from drlnb.records.columns.leasing import GradientsRestored, LeaseGranted, RestoreGradients, SlotAdded
from drlnb.records.columns.warmup import CollectorReady, StartCollector, WakeCollector
from drlnb.records.ids import Fence
from drlnb.records.journal import Stream
from drlnb.sim.costs import Costs, RoundCosts

__all__ = ["FEWEST", "MOST", "RecordedTask", "switched_slots"]

#: Fewest finished rounds of a task that can stand for the others.
FEWEST = 5
#: Newest leases of a task, and starts of its collectors, that are kept: a run may be larger than memory.
MOST = 5_000
#: Newest requests whose way to the pool and back is looked at.
_RPCS = 50
#: A lease, and one of its slots.
Held = tuple[Fence, str]
#: Two durations that differ by less are one: times are rounded to microseconds.
_SAME_S = 2e-6


def switched_slots(pools: Sequence[Stream]) -> frozenset[Held]:
    """Return the newest leases' slots on which another task, or nobody, had computed before."""
    switched: deque[Held] = deque(maxlen=20 * MOST)
    for pool in pools:
        tenants: dict[str, str] = {}
        for record in pool.records:
            if isinstance(record, SlotAdded):
                tenants.pop(record.slot, None)
            elif isinstance(record, LeaseGranted):
                switched += [(record.fence, slot) for slot in record.slots if tenants.get(slot) != record.task]
                tenants.update(dict.fromkeys(record.slots, record.task))
    return frozenset(switched)


@dataclass(slots=True, kw_only=True)
class _Staged:
    """One batch on the slot, in seconds: all of its time there, and what its gradients took of that."""

    slot_s: float
    compute_s: float
    #: It was the first one of its task after another task's: making the slot ready is part of its time.
    switched: bool

    @property
    def overhead_s(self) -> float:
        """Its time on the slot without the gradients."""
        return max(0.0, self.slot_s - self.compute_s)


class RecordedTask:
    """The durations of some of a task's finished rounds, given again in their order and then from the start.

    Parameters
    ----------
    stream
        The journal of one attempt.
    rounds
        First and last round that are taken; None: all.
    switched
        Slots of leases where another task had computed, see :func:`switched_slots`.

    Raises
    ------
    ValueError
        If fewer than 5 of them are finished.
    """

    def __init__(self, stream: Stream, rounds: tuple[int, int] | None = None, switched: Collection[Held] = ()) -> None:
        self.config = stream.header.config
        self.name = str(self.config["task"])
        reading = _Reading(stream, switched, rounds or (0, sys.maxsize))
        switch_s = reading.switch_s
        self._rounds = [_without(costs, staged, switch_s) for costs, staged in reading.rounds]
        self._first = reading.first
        if len(self._rounds) < FEWEST:
            raise ValueError(
                f"task {self.name}: {len(self._rounds)} of its finished rounds can be used, at least {FEWEST} are "
                "needed: let it train on"
            )
        self.costs = Costs.from_mapping({"switch_s": switch_s, **_saving(stream)})
        #: Collector and mode -> its latest starts, but for those that tell nothing.
        self._starts: defaultdict[tuple[int, str], deque[float]] = defaultdict(lambda: deque(maxlen=MOST))
        warm_t: dict[str, float] = {}
        for ready in stream.each(CollectorReady):
            if is_guide(warm_t, ready):
                self._starts[ready.collector, ready.start_mode].append(ready.start_s)

    def round(self, k: int) -> RoundCosts:
        """Return the durations of round `k`; 0 makes the initial parameters."""
        return self._rounds[(k - 1) % len(self._rounds)] if k else self._first

    @property
    def start_modes(self) -> frozenset[str]:
        """How its collectors were started."""
        return frozenset(mode for _, mode in self._starts)

    def start_s(self, command: StartCollector) -> float:
        """Return what a start takes, in seconds: its collector's own of that mode by turns, else any that there is."""
        mode, collector = command.start_mode, command.collector
        keys = sorted(self._starts, key=lambda key: (key[1] != mode, key[0] != collector))
        starts = self._starts[keys[0]] if keys else (self.costs.start_s,)
        return starts[command.round % len(starts)]


class _Reading:
    """Reads a task's stream and keeps what its rounds took.

    On a slot a batch takes from the later of its command and the end of the one before it until its answer: the way to
    the executor and back is part of it, since the slot is held meanwhile.  What the first batch after another task's
    takes beyond its gradients more than others do, in the median, is the switch: it is kept apart, since another rule
    may switch more often or less.
    """

    def __init__(self, stream: Stream, switched: Collection[Held], wanted: tuple[int, int]) -> None:
        self._wanted = wanted
        self.n = int(stream.header.config["n_collectors"])
        self._switched = switched
        nothing = (0.0,) * self.n
        self.first = RoundCosts(collect_s=nothing, stage_s=nothing, finish_s=0.0, publish_s=0.0, rpc_s=0.0)
        #: Durations of the wanted rounds but for those on the slot, and these.
        self.rounds: list[tuple[RoundCosts, tuple[_Staged, ...]]] = []
        #: Collector or request -> when it was woken, sent to the slot, asked for; when the update of a round began.
        self._woken: dict[int, float] = {}
        self._sent: dict[int, float] = {}
        self._asked: dict[str, float] = {}
        self._collect: dict[int, float] = {}
        self._stage: dict[int, _Staged] = {}
        #: Slot -> lease under which something was answered there last, and when that was.
        self._fence: dict[str, Fence] = {}
        self._free_t: dict[str, float] = {}
        #: Slot that is given gradients which were kept.
        self._restoring = ""
        self._firsts: deque[float] = deque(maxlen=MOST)
        self._others: deque[float] = deque(maxlen=MOST)
        self._rpc: deque[float] = deque(maxlen=_RPCS)
        self._finished: list[float] = []
        self._finish_s = 0.0
        handlers: dict[type, Callable[[float, Any], None]] = {
            WakeCollector: lambda t, wake: self._woken.update({wake.collector: t}),
            words.ComputeGradient: lambda t, batch: self._sent.update({batch.collector: t}),
            words.RequestSlot: lambda t, request: self._asked.update({request.request_id: t}),
            words.ExperienceArrived: self._arrived,
            words.GradientComputed: self._computed,
            RestoreGradients: self._restore,
            GradientsRestored: self._restored,
            words.FinishRound: lambda t, _: self._finished.append(t),
            words.ParametersReady: self._made,
            words.LeaseReceived: self._leased,
            words.MetricsRecorded: self._ended,
        }
        for t, record in stream.timed(Record):
            if handler := handlers.get(type(record)):
                handler(t, record)

    def _arrived(self, t: float, event: words.ExperienceArrived) -> None:
        if event.collector in self._woken:
            self._collect[event.collector] = t - self._woken.pop(event.collector)

    def _computed(self, t: float, event: words.GradientComputed) -> None:
        slot = event.slot
        slot_s = t - max(self._sent.get(event.collector, t), self._free_t.get(slot, -math.inf))
        first = event.fence != self._fence.get(slot) and (event.fence, slot) in self._switched
        staged = _Staged(slot_s=slot_s, compute_s=min(slot_s, event.elapsed_s), switched=first)
        self._stage[event.collector] = staged
        (self._firsts if first else self._others).append(staged.overhead_s)
        self._free_t[slot], self._fence[slot] = t, event.fence

    def _restore(self, t: float, command: RestoreGradients) -> None:
        self._restoring = command.slot

    def _restored(self, t: float, event: GradientsRestored) -> None:
        # What made the slot ready has been paid before the first batch.
        self._free_t[self._restoring], self._fence[self._restoring] = t, event.fence

    @property
    def switch_s(self) -> float:
        """Making a slot ready after another task's work, in seconds."""
        usual_s = median(self._others) if self._others else 0.0
        more_s = median(self._firsts) - usual_s if self._firsts else 0.0
        return more_s if more_s > _SAME_S else 0.0

    def _made(self, t: float, event: words.ParametersReady) -> None:
        if event.round:
            self._finish_s = t - self._finished[-1] if self._finished else event.elapsed_s
        else:
            self.first = replace(self.first, finish_s=event.elapsed_s)

    def _leased(self, t: float, event: words.LeaseReceived) -> None:
        asked_t = self._asked.pop(event.request_id, None)
        if asked_t is not None:
            self._rpc.append(max(0.0, t - asked_t - event.waited_s) / 2)

    def _ended(self, t: float, record: words.MetricsRecorded) -> None:
        first, last = self._wanted
        if first <= record.round <= last and len(self._collect) == len(self._stage) == self.n:
            rpc_s = median(self._rpc) if self._rpc else 0.0
            costs = RoundCosts(
                collect_s=tuple(self._collect[c] for c in range(self.n)),
                stage_s=(),
                finish_s=self._finish_s,
                publish_s=float(record.metrics["round/push_s"]),
                rpc_s=rpc_s,
            )
            self.rounds.append((costs, tuple(self._stage[c] for c in range(self.n))))
        self._collect.clear()
        self._stage.clear()
        self._sent.clear()
        self._finished.clear()
        self._free_t.clear()


def _without(costs: RoundCosts, staged: Sequence[_Staged], switch_s: float) -> RoundCosts:
    """Return a round's durations with those on the slot, switches taken out."""
    return replace(
        costs,
        stage_s=tuple(max(each.compute_s, each.slot_s - switch_s * each.switched) for each in staged),
        compute_s=tuple(each.compute_s for each in staged),
    )


def _saving(stream: Stream) -> dict[str, float]:
    """Return what copying and writing of a checkpoint took, in seconds, where there was one."""
    begun = {command.version: t for t, command in stream.timed(words.WriteCheckpoint)}
    copied = [t - begun[e.version] for t, e in stream.timed(words.CheckpointGathered) if e.version in begun]
    written = [record.elapsed_s for record in stream.of(words.CheckpointWritten)]
    return {name: median(of) for name, of in (("gather_s", copied), ("write_s", written)) if of}
