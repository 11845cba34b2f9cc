"""When does a task ask for a slot, what does it compute on it, and when does it give it back?

One :class:`HoldMachine` lives inside each task's round machine.  A *batch* is one collector's fragment of this round:
queued until the executor has taken it in (staged).  Batches whose lease was lost before the commit are queued again,
because what the executor had made of them is void (leasing O7); but a batch is *done* once its gradient lies at the
master (``kept``), and then it outlives any lease.

**Streams and epochs.**  An algorithm that computes gradients as fragments arrive (``stream``) has work as soon as one
is there, and may give its slot away between two of them.  One that sweeps the whole round again and again (``epochs``)
has little before the last fragment (a copy, a value pass), and that is void after a yield.  So ``yield`` takes a slot
for such a task at the first arrival while nobody else wants one, gives it back on demand before the round is complete,
and while slots are wanted asks for it at the last arrival, as ``last`` does; never between two minibatches, whose
moments run over the whole round (leasing 3, item 12).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from drlnb.records.ids import Fence

__all__ = ["Batch", "HoldMachine", "HoldPlan", "HoldPlanner", "HoldView", "Last", "Round", "Yield", "hold_planner"]

#: Switches and batches whose medians a plan rests on.
_WINDOW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldView:
    """What a hold planner may look at."""

    n_arrived: int
    n_expected: int
    held: bool
    requested: bool
    #: Batches that are here and not computed: not on the slot that is held, or, without one, not kept at the master.
    n_queued: int = 0
    #: Batches that have been computed on the slot and whose gradients are not kept: a return would waste them.
    n_unkept: int = 0
    #: The work can be done batch by batch, and what is done outlives the lease.
    divisible: bool = True
    #: Somebody waits for the slot that is held.
    demand: bool = False
    #: Somebody waited for slots, this task or another, in this round or the one before.
    crowded: bool = False
    #: Median time from a grant to the first batch's start, in seconds; None before the first.
    switch_p50_s: float | None = None
    #: Median time of a batch, in seconds; None before the first.
    compute_p50_s: float | None = None
    #: Share of a batch's compute above which a switch is too dear to yield for, dimensionless.
    switch_limit_frac: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldPlan:
    """``request`` a slot, ``wait`` without one, ``keep`` things as they are, or ``return`` the slot for a while."""

    action: str
    reason: str


class HoldPlanner(Protocol):
    """Observation in, plan out."""

    name: str
    #: Whether its holder may give way when somebody waits.
    yields: bool

    def plan(self, view: HoldView) -> HoldPlan:
        """Say what to do now that the view has changed."""


class Round:
    """Seed 000, paragraph 8: take a slot at the first arrival, use it for the whole round, return it at the commit."""

    name = "round"
    yields = False

    def plan(self, view: HoldView) -> HoldPlan:
        """Request as soon as anything has arrived."""
        if view.held or view.requested:
            return HoldPlan(action="keep", reason="a slot is held or asked for")
        if view.n_arrived == 0:
            return HoldPlan(action="wait", reason="nothing has arrived")
        return HoldPlan(action="request", reason="first experience of the round is here")


class Last:
    """Ask only when all experience of the round is there: shortest holds, latest start (ours)."""

    name = "last"
    yields = False

    def plan(self, view: HoldView) -> HoldPlan:
        """Request when nothing more is expected."""
        if view.held or view.requested:
            return HoldPlan(action="keep", reason="a slot is held or asked for")
        if view.n_arrived < view.n_expected:
            return HoldPlan(action="wait", reason=f"{view.n_arrived} of {view.n_expected} collectors have sent")
        return HoldPlan(action="request", reason="all experience of the round is here")


class Yield:
    """Ask when there is something to compute; give the slot away when there is nothing and somebody waits (ours).

    While a switch costs more than a fifth of a batch, it does as :class:`Round`: what it would give to others it would
    lose by switching.
    """

    name = "yield"
    yields = True

    def plan(self, view: HoldView) -> HoldPlan:
        """Request at work; return without work, on demand."""
        if view.requested:
            return HoldPlan(action="keep", reason="a slot is asked for")
        dear = _too_dear(view) if view.divisible else ""
        complete = view.n_arrived >= view.n_expected
        if view.held:
            wasted = view.divisible and view.n_unkept > 0
            if complete or view.n_queued or not view.demand or dear or wasted:
                return HoldPlan(action="keep", reason=dear or "there is work, or nobody waits")
            return HoldPlan(action="return", reason="nothing to compute, and somebody waits")
        if complete:
            return HoldPlan(action="request", reason="all experience of the round is here")
        if not view.n_queued:
            return HoldPlan(action="wait", reason="nothing to compute")
        if not view.divisible and view.crowded:
            reason = f"{view.n_arrived} of {view.n_expected} collectors have sent, and slots are wanted"
            return HoldPlan(action="wait", reason=reason)
        return HoldPlan(action="request", reason=dear or "experience is here")


def _too_dear(view: HoldView) -> str:
    """Return why a switch does not pay, in words; empty if it does."""
    switch_s, compute_s = view.switch_p50_s, view.compute_p50_s
    if switch_s is None or compute_s is None or switch_s <= view.switch_limit_frac * compute_s:
        return ""
    return f"switch too dear: {switch_s:.3g} s for batches of {compute_s:.3g} s"


_PLANNERS: dict[str, type[HoldPlanner]] = {"round": Round, "yield": Yield, "last": Last}


def hold_planner(name: str) -> HoldPlanner:
    """Return a hold planner by name.

    Raises
    ------
    ValueError
        If no planner has this name.
    """
    if name not in _PLANNERS:
        raise ValueError(f"hold planner must be one of {', '.join(_PLANNERS)}, got {name!r}")
    return _PLANNERS[name]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One collector's fragment in this round."""

    collector: int
    key: str
    n_samples: int


@dataclass(slots=True, kw_only=True)
class HoldMachine:
    """Lease and batches of one task's current round; it changes by method calls of the round machine alone."""

    #: Name of the planner.
    planner: str
    #: Gradients are computed at arrival, and can be kept at the master.
    streams: bool = False
    #: Open request, if a slot has been asked for.
    request_id: str | None = None
    fence: Fence | None = None
    slot: str | None = None
    #: Seconds computed under the present lease.
    computed_s: float = 0.0
    #: Seconds waited for leases in this round.
    waited_s: float = 0.0
    batches: dict[int, Batch] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    staged: set[int] = field(default_factory=set)
    #: Batches whose gradient lies at the master: collector -> its key.
    done: dict[int, str] = field(default_factory=dict)
    #: The new version has been made under the present lease and is on its way to the store.
    committing: bool = False
    #: All batches are in and the executor makes the new version.
    finishing: bool = False
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
    def rule(self) -> HoldPlanner:
        """The planner of that name."""
        return hold_planner(self.planner)

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
            n_unkept=len(self.staged - self.done.keys()),
            divisible=self.streams,
            demand=self.demand,
            crowded=any(self.crowd),
            switch_p50_s=_median(self.switches),
            compute_p50_s=_median(self.computes),
            switch_limit_frac=self.switch_limit_frac,
        )

    @property
    def keeps(self) -> bool:
        """Whether gradients shall be kept at the master, so that the slot can be given away in the midst of a round."""
        return self.streams and self.rule.yields and any(self.crowd)

    def wanted(self) -> None:
        """Note that somebody waits for the slot that is held."""
        self.demand = self.crowd[0] = True

    def restored(self, t: float) -> None:
        """Note that the gradients that were kept are on the executor again."""
        self.staged |= self.done.keys()
        self.began(t)

    def request(self, prefix: str) -> str:
        """Note that a slot is asked for and return the new request's id; ids never repeat inside an attempt."""
        self.n_requests += 1
        self.request_id = f"{prefix}-{self.n_requests}"
        return self.request_id

    def add(self, batch: Batch) -> None:
        """Queue a batch."""
        self.batches[batch.collector] = batch

    def granted(self, fence: Fence, slot: str, waited_s: float, *, demand: bool = False, t: float = 0.0) -> None:
        """Take over a lease."""
        self.request_id, self.fence, self.slot = None, fence, slot
        self.computed_s = 0.0
        self.committing = self.finishing = False
        self.demand, self.granted_t = demand, t
        self.crowd[0] = self.crowd[0] or demand or waited_s > 0.0
        self.waited_s += waited_s

    def to_send(self) -> tuple[Batch, ...]:
        """Return the batches that the executor has not been given yet, in arrival order, and note them as given."""
        if not self.held:
            return ()
        fresh = tuple(batch for collector, batch in self.batches.items() if collector not in self.sent)
        self.sent.update(batch.collector for batch in fresh)
        return fresh

    def computed(self, collector: int, elapsed_s: float, *, t: float = 0.0, key: str = "") -> None:
        """Note that the executor has taken a batch in; under `key` its gradient lies at the master."""
        self.staged.add(collector)
        if key:
            self.done[collector] = key
        self.computed_s += elapsed_s
        self.began(t - elapsed_s)
        self.computes.append(elapsed_s)

    def began(self, t: float) -> None:
        """Note when the first batch of a lease began: what went before it was the switch."""
        if self.granted_t is not None:
            self.switches.append(max(0.0, t - self.granted_t))
            self.granted_t = None

    def lost(self) -> None:
        """Forget the lease; every batch of the round whose gradient is not kept is queued again."""
        self.fence = self.slot = self.request_id = None
        self._off()

    def returned(self) -> tuple[Fence, float]:
        """Forget the lease and return its fence and the seconds computed under it."""
        assert self.fence is not None
        fence, computed_s = self.fence, self.computed_s
        self.fence = self.slot = None
        self.demand = False
        return fence, computed_s

    def yielded(self) -> tuple[Fence, float]:
        """Give the lease away in the midst of a round; return its fence and the seconds computed under it."""
        fence, computed_s = self.returned()
        self._off()
        return fence, computed_s

    def _off(self) -> None:
        self.sent, self.staged = set(self.done), set()
        self.demand = self.finishing = False
        self.granted_t = None

    def next_round(self) -> tuple[Batch, ...]:
        """Forget the round's batches and return them."""
        used = tuple(self.batches.values())
        self.batches.clear()
        self.done.clear()
        self.sent.clear()
        self.staged.clear()
        self.finishing = False
        self.crowd = [False, self.crowd[0]]
        self.waited_s = 0.0
        return used


def _median(times: deque[float]) -> float | None:
    """Return the median of some times, the upper one of two; None of none."""
    return sorted(times)[len(times) // 2] if times else None
