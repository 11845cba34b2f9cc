"""Deal a round's gradient to the slots of a lease, and report to the planners of batching what was measured."""

from collections.abc import Sequence

from drlnb.planning.batching import BATCHING, COLLECT, BatchPlan, BatchReport, BatchView, Member
from drlnb.planning.leasing.hold import middle
from drlnb.planning.machine import Out
from drlnb.planning.registry import PlannerKind
from drlnb.planning.round.holding import learners_left
from drlnb.planning.round.state import RoundState, Worked
from drlnb.records import round as words
from drlnb.records.columns.batching import SplitPlanned

__all__ = ["PACES", "computed", "deal", "joined", "learn", "observe", "paced_members", "planned"]

#: Measurements of seconds per unit that are kept of each slot.
PACES = 4


def deal(state: RoundState, out: Out) -> None:
    """Deal the slots of the lease to the batches whose gradient is not kept yet.

    Where several slots may be had, the planner says how many batches each one computes; in the order of the collectors
    the first slot gets its first ones, and so on.  Whoever computes a batch, the sum has the same bits.
    """
    hold, learners = state.hold, learners_left(state)
    if state.shares_minibatches:
        hold.shares = {}  # the lead has all batches, and the others join it once they are in
        return
    if len(hold.slots) > 1 and not state.learners:
        sizes = zip(hold.slots, planned(state, len(learners), out, tuple(learners)), strict=True)
        dealt = [slot for slot, n in sizes for _ in range(n)]
        hold.shares = dict(zip(learners, dealt, strict=True))
        return
    rank = {learner: k for k, learner in enumerate(sorted(set(learners.values())))}
    hold.shares = {i: hold.slots[rank[learner] % len(hold.slots)] for i, learner in learners.items()}


def planned(state: RoundState, n_units: int, out: Out, collectors: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return how many batches, or samples of the round, each slot of the lease computes."""
    slots = state.hold.slots
    view = BatchView(
        round=state.round,
        role="update",
        n_units=n_units,
        members=paced_members(state, slots),
        memory=state.memories.get(state.memory_of(BATCHING)),
        collectors=collectors,
        n_learners=len(slots),
    )
    planner = state.planner(BATCHING)
    plan = BATCHING.ask(planner, view)
    sizes, is_known = tuple(plan.sizes), all(state.slot_paces.get(slot) for slot in slots)
    speeds = tuple(plan.speeds_hz) if is_known else ()
    out.append(SplitPlanned(round=state.round, planner=planner.name, members=slots, sizes=sizes, speeds_hz=speeds))
    for slot, n in zip(slots, sizes, strict=True):
        state.worked.setdefault(slot, Worked()).n_planned += n
    return sizes


def paced_members(state: RoundState, slots: Sequence[str]) -> tuple[Member, ...]:
    """Return slots as members, with the medians of what was measured lately; alike as long as one was not."""
    paces = [middle(state.slot_paces.get(slot, [])) for slot in slots]
    speeds_hz = [1 / pace for pace in paces if pace]
    if len(speeds_hz) < len(slots):
        speeds_hz = [1.0] * len(slots)
    return tuple([Member(id=slot, speed_hz=hz) for slot, hz in zip(slots, speeds_hz, strict=True)])


def joined(state: RoundState, slot: str, compute_s: float) -> None:
    """Count a slot's part of a round's minibatches as computed."""
    worked = state.worked[slot]
    worked.n_samples, worked.compute_s = worked.n_planned, compute_s


def computed(state: RoundState, event: words.GradientComputed) -> None:
    """Count a batch that a slot has computed."""
    if worked := state.worked.get(event.slot):
        worked.n_samples += state.hold.batches[event.collector].n_samples
        worked.compute_s += event.elapsed_s


def observe(state: RoundState) -> None:
    """Report the round to the planners of batching, and keep what they remember of it."""
    collectors = tuple(state.n_steps)
    steps = tuple(state.n_steps.values())
    acted = tuple([state.collect_s.get(i) for i in collectors])
    reports = {COLLECT: _report(state, tuple(map(str, collectors)), steps, steps, acted)}
    # Who has computed nothing of what it was given had its lease end before: it was not slow.  Nor is a process whose
    # first batches took longer than all to come.
    slots = {slot: each for slot, each in state.worked.items() if each.n_samples or not each.n_planned}
    cold = slots.keys() - state.slot_paces.keys()
    state.slot_paces |= {slot: [] for slot in slots if slot in cold}
    slots = {slot: each for slot, each in slots.items() if slot not in cold}
    if slots:
        of_samples = state.shares_minibatches
        unit = 1.0 if of_samples else sum(batch.n_samples for batch in state.arrived.values()) / len(state.arrived)
        sizes = tuple([each.n_planned for each in slots.values()])
        n_done = tuple([each.n_samples / unit for each in slots.values()])
        compute_s = tuple([each.compute_s if each.n_samples else None for each in slots.values()])
        reports[BATCHING] = _report(state, tuple(slots), sizes, n_done, compute_s, unit_samples=unit)
        for slot, n, seconds in zip(slots, n_done, compute_s, strict=True):
            if seconds:
                state.slot_paces[slot] = [*state.slot_paces[slot], seconds / n][-PACES:]
    for kind, report in reports.items():
        learn(state, kind, report)
    state.collect_s = {}
    state.worked.clear()


def _report(
    state: RoundState,
    members: tuple[str, ...],
    sizes: tuple[int, ...],
    n_done: tuple[float, ...],
    compute_s: tuple[float | None, ...],
    unit_samples: float = 1.0,
) -> BatchReport:
    return BatchReport(
        round=state.version,
        members=members,
        sizes=sizes,
        n_done=n_done,
        compute_s=compute_s,
        elapsed_s=(None,) * len(members),
        duration_s=max([each for each in compute_s if each is not None], default=0.0),
        unit_samples=unit_samples,
    )


def learn(state: RoundState, kind: PlannerKind[BatchView, BatchPlan], report: BatchReport) -> None:
    """Report to a decision's planner what became of its plan, and keep what it remembers."""
    key = state.memory_of(kind)
    memory = kind.observe(state.planner(kind), state.memories.get(key), report)
    others = {name: each for name, each in state.memories.items() if name.partition(":")[0] != kind.decision}
    state.memories = others if memory is None else {**others, key: memory}
