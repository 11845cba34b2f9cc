"""Follow the lease and the batches of one task's round.

One :class:`Hold` is part of the state of each task's round.  A *batch* is one collector's fragment of this round:
queued until the executor has staged it.  Batches whose lease was lost before the commit are queued again, because what
the executor had made of them is void (leasing O7); but a batch is *done* once its gradient lies at the master
(``kept``), and then it outlives any lease.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from drlnb.planning.leasing.planners import HoldView
from drlnb.records.ids import Fence
from drlnb.records.round import ParametersReady

__all__ = ["Batch", "Hold", "middle"]

#: Switches and batches whose medians a plan rests on.
_WINDOW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One collector's fragment in this round."""

    collector: int
    key: str
    n_samples: int


@dataclass(slots=True, kw_only=True)
class Hold:
    """Lease and batches of one task's current round; it changes by method calls of the round machine alone."""

    #: Gradients are computed at arrival, and can be kept at the master.
    streams: bool = False
    #: Open request, if a slot has been asked for.
    request_id: str | None = None
    fence: Fence | None = None
    #: Slots of the lease; the first one is its lead, where the new version is made.
    slots: tuple[str, ...] = ()
    #: Seconds computed under the present lease on each of them.
    computed_s: list[float] = field(default_factory=list)
    #: Collector -> the slot that computes its batch under the present lease; the lead where nothing else is said.
    shares: dict[int, str] = field(default_factory=dict)
    batches: dict[int, Batch] = field(default_factory=dict)
    #: Collector -> the slot that its batch was sent to; empty if its gradient was kept under a former lease.
    sent: dict[int, str] = field(default_factory=dict)
    staged: set[int] = field(default_factory=set)
    #: Those of them that the lead has, and those that are on their way to it.
    gathered: set[int] = field(default_factory=set)
    restoring: tuple[int, ...] = ()
    #: Batches whose gradient lies at the master: collector -> its key.
    done: dict[int, str] = field(default_factory=dict)
    #: Batches whose gradient is on its way there from the lead: it must be there before the lease is given away.
    keeping: set[int] = field(default_factory=set)
    #: The new version has been made under the present lease and is on its way to the store.
    committing: bool = False
    #: All batches are in and the executor makes the new version.
    finishing: bool = False
    #: Slots that compute minibatches beside the lead and have not said that they are done; the new version waits for
    #: them, since the lease is returned with it.
    joining: set[str] = field(default_factory=set)
    ready: ParametersReady | None = None
    #: Somebody waits for the slot that is held.
    demand: bool = False
    #: Somebody waited for slots in this round, and in the one before.
    crowd: list[bool] = field(default_factory=lambda: [False, False])
    switch_limit_frac: float = 0.2
    #: Event time of the grant, until the first batch is in.
    granted_t: float | None = None
    switches: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    computes: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    n_requests: int = 0

    @property
    def held(self) -> bool:
        """Whether a lease is held."""
        return self.fence is not None

    def view(self, n_expected: int) -> HoldView:
        """Return what the planner may look at."""
        computed = self.staged if self.held else self.done.keys()
        return HoldView(
            n_arrived=len(self.batches),
            n_expected=n_expected,
            held=self.held,
            requested=self.request_id is not None,
            n_queued=len(self.batches.keys() - computed),
            divisible=self.streams,
            demand=self.demand,
            crowded=any(self.crowd),
            switch_p50_s=middle(self.switches),
            compute_p50_s=middle(self.computes),
            switch_limit_frac=self.switch_limit_frac,
        )

    def wanted(self) -> None:
        """Count the slot that is held as wanted."""
        self.demand = self.crowd[0] = True

    @property
    def lead(self) -> str:
        """The slot of the lease where the new version is made."""
        return self.slots[0]

    @property
    def busy_s(self) -> float:
        """Seconds that the slot of the lease which computed longest has computed."""
        return max(self.computed_s, default=0.0)

    @property
    def apart(self) -> tuple[int, ...]:
        """Collectors whose gradients the lead lacks: computed on its other slots, in the order of their arrival."""
        return tuple(i for i in self.done if i in self.staged and i not in self.gathered)

    def to_keep(self) -> tuple[int, ...]:
        """Return the batches whose gradient only the lead has, and count them as on their way to the master."""
        fresh = tuple(sorted(self.staged - self.done.keys() - self.keeping)) if self.streams else ()
        self.keeping.update(fresh)
        return fresh

    def kept(self, collector: int, key: str) -> None:
        """Count a batch's gradient as kept at the master."""
        self.keeping.discard(collector)
        self.done[collector] = key

    def restored(self, t: float) -> None:
        """Count the gradients that were on their way as staged at the lead."""
        self.staged.update(self.restoring)
        self.gathered.update(self.restoring)
        self.restoring = ()
        self.began(t)

    def request(self, prefix: str) -> str:
        """Begin a request and return its id; ids never repeat inside an attempt."""
        self.n_requests += 1
        self.request_id = f"{prefix}-{self.n_requests}"
        return self.request_id

    def add(self, batch: Batch) -> None:
        """Queue a batch."""
        self.batches[batch.collector] = batch

    def granted(
        self, fence: Fence, slots: tuple[str, ...], waited_s: float, *, demand: bool = False, t: float = 0.0
    ) -> None:
        """Begin to hold a lease."""
        self.request_id, self.fence, self.slots = None, fence, slots
        self.computed_s, self.shares = [0.0] * len(slots), {}
        self.committing = self.finishing = False
        self.demand, self.granted_t = demand, t
        self.crowd[0] = self.crowd[0] or demand or waited_s > 0.0

    def to_send(self) -> tuple[Batch, ...]:
        """Return the batches that the executor has not been given yet, in arrival order, and count them as given."""
        if not self.held:
            return ()
        fresh = tuple(batch for collector, batch in self.batches.items() if collector not in self.sent)
        self.sent |= {batch.collector: self.shares.get(batch.collector, self.lead) for batch in fresh}
        return fresh

    def computed(self, collector: int, elapsed_s: float, *, t: float = 0.0, key: str = "") -> None:
        """Count a batch as staged; under `key` its gradient lies at the master."""
        slot = self.sent[collector]
        self.staged.add(collector)
        if slot == self.lead:
            self.gathered.add(collector)
        if key:
            self.done[collector] = key
        self.computed_s[self.slots.index(slot)] += elapsed_s
        self.began(t - elapsed_s)
        self.computes.append(elapsed_s)

    def began(self, t: float) -> None:
        """Measure the switch: it ended when the first batch of a lease began."""
        if self.granted_t is not None:
            self.switches.append(max(0.0, t - self.granted_t))
            self.granted_t = None

    def lost(self) -> None:
        """Forget the lease; every batch of the round whose gradient is not kept is queued again."""
        self.fence, self.slots, self.request_id = None, (), None
        self._off()

    def returned(self) -> tuple[Fence, tuple[float, ...]]:
        """Forget the lease and return its fence and the seconds computed on each of its slots."""
        assert self.fence is not None
        fence, computed_s = self.fence, tuple(self.computed_s)
        self.fence, self.slots = None, ()
        self.demand = False
        return fence, computed_s

    def yielded(self) -> tuple[Fence, tuple[float, ...]]:
        """Give the lease away in the midst of a round; return its fence and the seconds computed on each slot."""
        fence, computed_s = self.returned()
        self._off()
        return fence, computed_s

    def _off(self) -> None:
        self.sent, self.staged = dict.fromkeys(self.done, ""), set()
        self.gathered, self.restoring, self.keeping = set(), (), set()
        self.demand = self.finishing = False
        self.granted_t = None
        self.joining, self.ready = set(), None

    def next_round(self) -> tuple[Batch, ...]:
        """Forget the round's batches and return them."""
        used = tuple(self.batches.values())
        self.batches.clear()
        self.done.clear()
        self.sent.clear()
        self.staged.clear()
        self.gathered.clear()
        self.keeping.clear()
        self.restoring = ()
        self.finishing, self.ready = False, None
        self.crowd = [False, self.crowd[0]]
        return used


def middle(times: Sequence[float]) -> float | None:
    """Return the median of some times, the upper one of two; None of none."""
    return sorted(times)[len(times) // 2] if times else None
