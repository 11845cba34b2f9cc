"""When does a task ask for a slot, what does it compute on it, and when does it give it back?

One :class:`HoldMachine` lives inside each task's round machine.  A *batch* is one collector's fragment of this round:
queued until the executor has taken it in (staged).  Batches whose lease was lost before the commit are queued again,
because what the executor had made of them is void (leasing O7).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from drlnb.records.ids import Fence

__all__ = ["Batch", "HoldMachine", "HoldPlan", "HoldPlanner", "HoldView", "Last", "Round", "hold_planner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldView:
    """What a hold planner may look at."""

    n_arrived: int
    n_expected: int
    held: bool
    requested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldPlan:
    """``request`` a slot, ``wait`` without one, or ``keep`` things as they are."""

    action: str
    reason: str


class HoldPlanner(Protocol):
    """Observation in, plan out."""

    name: str

    def plan(self, view: HoldView) -> HoldPlan:
        """Say what to do now that the view has changed."""


class Round:
    """Seed 000, paragraph 8: take a slot at the first arrival, use it for the whole round, return it at the commit."""

    name = "round"

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

    def plan(self, view: HoldView) -> HoldPlan:
        """Request when nothing more is expected."""
        if view.held or view.requested:
            return HoldPlan(action="keep", reason="a slot is held or asked for")
        if view.n_arrived < view.n_expected:
            return HoldPlan(action="wait", reason=f"{view.n_arrived} of {view.n_expected} collectors have sent")
        return HoldPlan(action="request", reason="all experience of the round is here")


_PLANNERS: dict[str, type[HoldPlanner]] = {"round": Round, "last": Last}


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


class HoldMachine:
    """Lease and batches of one task's current round; it changes by method calls of the round machine alone."""

    def __init__(self, planner: HoldPlanner) -> None:
        self.planner = planner
        #: Open request, if a slot has been asked for.
        self.request_id: str | None = None
        self.fence: Fence | None = None
        self.slot: str | None = None
        #: Seconds computed under the present lease.
        self.computed_s = 0.0
        #: Seconds waited for leases in this round.
        self.waited_s = 0.0
        self.batches: dict[int, Batch] = {}
        self.sent: set[int] = set()
        self.staged: set[int] = set()
        #: The new version has been made under the present lease and is on its way to the store.
        self.committing = False
        self._n_requests = 0

    @property
    def held(self) -> bool:
        """Whether a lease is held."""
        return self.fence is not None

    def view(self, n_expected: int) -> HoldView:
        """Return what the planner may look at."""
        return HoldView(
            n_arrived=len(self.batches), n_expected=n_expected, held=self.held, requested=self.request_id is not None
        )

    def request(self, prefix: str) -> str:
        """Note that a slot is asked for and return the new request's id; ids never repeat inside an attempt."""
        self._n_requests += 1
        self.request_id = f"{prefix}-{self._n_requests}"
        return self.request_id

    def add(self, batch: Batch) -> None:
        """Queue a batch."""
        self.batches[batch.collector] = batch

    def granted(self, fence: Fence, slot: str, waited_s: float) -> None:
        """Take over a lease."""
        self.request_id, self.fence, self.slot = None, fence, slot
        self.computed_s = 0.0
        self.committing = False
        self.waited_s += waited_s

    def to_send(self) -> tuple[Batch, ...]:
        """Return the batches that the executor has not been given yet, in arrival order, and note them as given."""
        if not self.held:
            return ()
        fresh = tuple(batch for collector, batch in self.batches.items() if collector not in self.sent)
        self.sent.update(batch.collector for batch in fresh)
        return fresh

    def computed(self, collector: int, elapsed_s: float) -> None:
        """Note that the executor has taken a batch in."""
        self.staged.add(collector)
        self.computed_s += elapsed_s

    def lost(self) -> None:
        """Forget the lease; every batch of the round is queued again."""
        self.fence = self.slot = self.request_id = None
        self.sent.clear()
        self.staged.clear()

    def returned(self) -> tuple[Fence, float]:
        """Forget the lease and return its fence and the seconds computed under it."""
        assert self.fence is not None
        fence, computed_s = self.fence, self.computed_s
        self.fence = self.slot = None
        return fence, computed_s

    def next_round(self) -> tuple[Batch, ...]:
        """Forget the round's batches and return them."""
        used = tuple(self.batches.values())
        self.batches.clear()
        self.sent.clear()
        self.staged.clear()
        self.waited_s = 0.0
        return used

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "planner": self.planner.name,
            "request_id": self.request_id,
            "fence": None if self.fence is None else [self.fence.epoch, self.fence.token],
            "slot": self.slot,
            "computed_s": self.computed_s,
            "waited_s": self.waited_s,
            "batches": [[b.collector, b.key, b.n_samples] for b in self.batches.values()],
            "sent": sorted(self.sent),
            "staged": sorted(self.staged),
            "committing": self.committing,
            "n_requests": self._n_requests,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of :meth:`snapshot`."""
        self.planner = hold_planner(state["planner"])
        self.request_id, self.slot = state["request_id"], state["slot"]
        self.fence = None if state["fence"] is None else Fence(epoch=state["fence"][0], token=state["fence"][1])
        self.computed_s, self.waited_s = state["computed_s"], state["waited_s"]
        self.batches = {c: Batch(collector=c, key=key, n_samples=n) for c, key, n in state["batches"]}
        self.sent, self.staged = set(state["sent"]), set(state["staged"])
        self.committing = state["committing"]
        self._n_requests = state["n_requests"]
