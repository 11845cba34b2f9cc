"""Decide what happens next in one task's round: the machine at the task's master routes between the six systems.

One round: wake collectors -> experience arrives -> lease -> batches to the executor -> new parameters -> commit under
the lease -> return the lease and publish (neither waits for the other) -> hosts hold the version -> wake.

Round 0 makes version 1 (initial parameters) under a lease of its own; round k acts with version k and makes k + 1.
A boundary is the moment after a commit: pauses, stops and checkpoints act there.  Settings are read once per round, as
its first collectors are woken: what is changed while a task rests counts as soon as it goes on.

State is one plain dataclass; the table :data:`RULES` names the rule for each event, in a file per phase; these files
have no other list of their names.
"""

from collections.abc import Iterator

from drlnb.planning.machine import Machine, Out, Rule, Rules, ignore
from drlnb.planning.registry import FailedBefore, PlannerFailed, Planners
from drlnb.planning.round import boundary, collect, compute, holding, off_policy, splits, stopping
from drlnb.planning.round.moves import end, enter, swap, warm
from drlnb.planning.round.state import ROUND_DEFAULTS, RoundState, fresh_state
from drlnb.planning.swapping.machine import RULES as SWAPPED
from drlnb.records import replay
from drlnb.records import round as words
from drlnb.records.base import Event, Facts, Record, Row
from drlnb.records.columns import batching, distribution, leasing, placement, swapping, warmup
from drlnb.records.common import ClockRelated, DeadlinePassed, SettingChanged

__all__ = ["ROUND_DEFAULTS", "RULES", "RoundMachine"]

#: Events that warm-up gets once they have been judged here; experience and starts it gets where they are accepted.
_WARMUP = frozenset({
    words.LeaseReceived,
    words.LeaseLost,
    words.ExecutorDied,
    words.GradientComputed,
    words.ParametersReady,
    words.ResumeAsked,
    words.TaskFailed,
    distribution.HostCompleted,
    SettingChanged,
})
#: Events that it gets before: it takes starts back that are in the way of what is started anew then.
_WARMUP_FIRST = frozenset({words.PlacementReceived, warmup.CollectorLost})


class RoundMachine(Machine[RoundState]):
    """One task's rounds as a pure machine: event in, records out.

    Parameters
    ----------
    config
        Plain data: ``task``, ``n_envs``, ``n_collectors``, ``n_steps`` (per environment and round; without
        collectors: of the optimiser), ``total_timesteps``, and any key of :data:`ROUND_DEFAULTS`.
    planners
        What makes planners of their names; None: those of the registry.

    Raises
    ------
    ValueError
        If there is no planner of a name.
    """

    def __init__(self, config: Facts, planners: Planners | None = None) -> None:
        state = fresh_state(config, planners or Planners())
        super().__init__(f"round of {state.config['task']}", state, RULES)
        #: The constructor's argument, with every default.
        self.config = state.config

    @property
    def phase(self) -> str:
        """What a message says of the state."""
        return self.state.phase

    def handle(self, event: Event) -> tuple[Record, ...]:
        """Process one event; return what was decided and what must be done.

        Raises
        ------
        InvalidTransition
            If time runs backwards, the event is not ours, or the phase forbids it: a defect of the caller.
        """
        if isinstance(event, words.TaskOpened) != (self.phase == "new"):
            raise self.forbidden(event, self.phase)
        return super().handle(event)

    def _apply(self, rule: Rule[RoundState], event: Event, out: Out) -> None:
        state = self.state
        if state.phase == "ended":
            if isinstance(event, words.LeaseReceived):
                compute.refuse_lease(event, out)
            return
        try:
            _apply(state, rule, event, out)
        except FailedBefore as error:
            end(state, "failed", str(error), out)
        except PlannerFailed as error:
            end(state, "failed", f"round {state.round}: {error}", out)

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        hold, crew, version = self.state.hold, self.state.crew, self.state.version
        yield hold.fence is None or hold.request_id is None, "a lease is held or asked for"
        yield hold.staged <= hold.sent.keys() <= hold.batches.keys(), "a batch is staged after it was sent"
        yield hold.done.keys() <= set(hold.batches), "a gradient is kept of a batch of this round"
        yield hold.keeping <= hold.staged - hold.done.keys(), "a gradient is fetched that only the executor has"
        yield not hold.finishing or hold.held, "a round is finished under a lease"
        yield (hold.fence is None) == (not hold.slots), "fence and slots come and go together"
        yield hold.gathered <= hold.staged, "the lead has what is staged"
        yield not hold.finishing or hold.gathered == set(hold.batches), "a round is finished of all of its batches"
        idle = {*hold.shares.values()} & {*hold.slots[1:]} - {*hold.sent.values()}
        yield not hold.finishing or not idle, "every slot of a lease was given its share"
        yield all(held <= version for held in crew.hosts.values()), "no host is ahead of the task"
        acting = [member.node or "" for member in crew.members.values() if member.status == "acting"]
        yield all(crew.hosts.get(node) == version for node in acting), "a collector acts on the round's version"
        yield from self.state.splits.gather.laws()
        yield from self.state.swap.laws()

    def snapshot(self) -> Row:
        """Return the whole state as plain data."""
        parts = {"warmup": self.state.warmup.snapshot(), "swapping": self.state.swap.snapshot()}
        return {**super().snapshot(), **parts}

    def restore(self, snapshot: Facts) -> None:
        """Return to the state of :meth:`snapshot`; the same events then give the same records."""
        self.state.warmup.restore(snapshot["warmup"])
        self.state.swap.restore(snapshot["swapping"])
        super().restore({key: value for key, value in snapshot.items() if key not in {"warmup", "swapping"}})


def _apply(state: RoundState, rule: Rule[RoundState], event: Event, out: Out) -> None:
    """Apply the rule of an event, beside what warm-up makes of it."""
    if type(event) in _WARMUP_FIRST:
        warm(state, event, out)
    warms = type(event) in _WARMUP and _is_ours(state, event)
    rule(state, event, out)
    if warms and state.phase != "ended":
        warm(state, event, out)
    _rest_warmup(state, event.t, out)


def _is_ours(state: RoundState, event: Event) -> bool:
    """Return whether an event about a lease is about the one that is held, or asked for."""
    if isinstance(event, words.LeaseReceived):
        return event.request_id == state.hold.request_id
    fence = getattr(event, "fence", None)
    return fence is None or fence == state.hold.fence


def _rest_warmup(state: RoundState, t: float, out: Out) -> None:
    """Start nobody for the next round once the user has asked for a pause or a stop.

    Not while somebody is to be started for the present round: it must be finished first.
    """
    if state.phase == "ended" or state.closing or not {"pause", "stop"} & state.asked.keys():
        return
    if "stop" in state.asked:
        state.warmup.last(state.round)
    if any(i not in state.arrived and member.is_awaited for i, member in state.crew.members.items()):
        return
    if "stop" in state.asked and not state.warmup.state.ended:
        warm(state, words.StopAsked(t=t, reason=state.asked["stop"]), out)
    elif not state.warmup.state.resting and not state.warmup.state.ended:
        warm(state, words.PauseAsked(t=t), out)


def _task_opened(state: RoundState, event: words.TaskOpened, out: Out) -> None:
    """Begin an attempt, from nothing or from a checkpoint."""
    state.attempt, state.n_bytes = event.attempt, event.n_bytes
    state.checkpoint_t, state.eval_best = event.t, event.eval_best
    state.settings, state.memories = dict(event.settings), dict(event.memories)
    state.saved = 0 if state.settings else event.version  # they may have been changed since the checkpoint
    state.progress.opened(event, state.config["stats_window_size"])
    _go_on_swapping(state, event, out)
    boundary.plan_evaluation(state)
    enter(state, "starting", out)
    if state.config["replay"]:
        out.append(replay.StartReplay())
    if event.version == 0:
        holding.ask_for_slot(state, "initial parameters", out)
    elif event.n_timesteps >= state.config["total_timesteps"]:
        boundary.close(state, ["evaluation"], out)


def _go_on_swapping(state: RoundState, event: words.TaskOpened, out: Out) -> None:
    """Begin without a plan, or from what a checkpoint knows, with the budget, planner and pins of now."""
    machine, now = state.swap, state.swap.state
    if now.never and now.memory_budget_bytes is not None:
        out.append(swapping.SwapUnavailable(reason=now.never))
    elif event.swapping is not None and now.active:
        out.extend(machine.resume({**event.swapping, "t": event.t}))


def _deadline_passed(state: RoundState, event: DeadlinePassed, out: Out) -> None:
    """Try to write a checkpoint again, leave a round unfinished, mend a version or cut shares that are late."""
    stopping.finish_round_until(state, event, out)
    boundary.try_again(state, event, out)
    collect.version_late(state, event, out)
    splits.shares_late(state, event, out)


#: Event -> its rule; every event that the machine knows, those that only close a command in the journal, too.
RULES: Rules[RoundState] = {
    words.PlacementReceived: collect.placement_received,
    warmup.CollectorReady: collect.collector_ready,
    warmup.CollectorLost: collect.collector_lost,
    warmup.CollectorUnanswered: collect.collector_unanswered,
    words.ExperienceArrived: collect.experience_arrived,
    distribution.HostCompleted: collect.host_completed,
    distribution.HostUnreachable: collect.host_unreachable,
    distribution.RangesMissing: collect.ranges_missing,
    distribution.MessageLost: collect.message_lost,
    distribution.BaseMissing: collect.base_missing,
    distribution.LinkMeasured: collect.link_measured,
    placement.NodeLost: collect.node_lost,
    words.LeaseReceived: compute.lease_received,
    words.LeaseLost: compute.lease_lost,
    words.ExecutorDied: compute.executor_died,
    leasing.YieldAsked: holding.yield_asked,
    words.GradientComputed: compute.gradient_computed,
    batching.MemberSlowed: boundary.member_slowed,
    batching.ShareComputed: splits.share_computed,
    batching.GradientsApplied: compute.gradients_applied,
    batching.RoundJoined: compute.round_joined,
    leasing.GradientKept: compute.gradient_kept,
    leasing.GradientsRestored: compute.gradients_restored,
    words.ParametersReady: compute.parameters_ready,
    words.ParametersCommitted: compute.parameters_committed,
    replay.ReplayReady: off_policy.replay_ready,
    replay.ReplayLost: off_policy.replay_lost,
    replay.MinibatchesDrawn: off_policy.minibatches_drawn,
    replay.ParametersCarried: off_policy.parameters_carried,
    words.CheckpointGathered: boundary.checkpoint_gathered,
    words.CheckpointWritten: boundary.checkpoint_written,
    words.EvaluationFinished: boundary.evaluation_finished,
    words.PauseAsked: boundary.asked,
    words.ResumeAsked: boundary.resume_asked,
    words.StopAsked: stopping.stop_asked,
    words.CheckpointAsked: boundary.asked,
    words.TaskFailed: boundary.task_failed,
    SettingChanged: boundary.setting_changed,
    **{kind: swap for kind in SWAPPED if kind is not SettingChanged},
    words.TaskOpened: _task_opened,
    words.LeaseClosed: ignore,
    DeadlinePassed: _deadline_passed,
    ClockRelated: ignore,
}
