"""Ask for slots, hand batches to them, and give them away in the midst of a round, as the hold planner says."""

from drlnb.planning.leasing.planners import HOLD
from drlnb.planning.machine import Out
from drlnb.planning.round.moves import enter
from drlnb.planning.round.state import RING, RoundState
from drlnb.planning.swapping.state import NONE
from drlnb.records import round as words
from drlnb.records.base import Row
from drlnb.records.columns import leasing, swapping
from drlnb.records.ids import Fence

__all__ = ["ask_for_slot", "consider", "learners_left", "plan_hold", "say_swap", "send_batches", "work", "yield_asked"]


def plan_hold(state: RoundState, out: Out) -> None:
    """Do what the hold planner says: ask for a slot, use it, give it away, or wait."""
    plan = HOLD.ask(state.planner(HOLD), state.hold.view(state.n_batches))
    if plan.action == "keep":
        send_batches(state, out)
    elif plan.action == "request":
        ask_for_slot(state, plan.reason, out)
    elif plan.action == "return":
        _give_way(state, plan.reason, out)
    else:
        _hold_planned(state, plan.action, plan.reason, out)


def yield_asked(state: RoundState, event: leasing.YieldAsked, out: Out) -> None:
    """Weigh whether to give the slot away: somebody waits for it."""
    if event.fence == state.hold.fence:  # else it has been returned meanwhile
        state.hold.wanted()
        consider(state, out)


def consider(state: RoundState, out: Out) -> None:
    """Ask the hold planner whether the slot is still worth holding, where it may give way at all."""
    if state.hold.held and state.n_bytes and state.yields and not state.hold.finishing:
        plan_hold(state, out)


def _give_way(state: RoundState, reason: str, out: Out) -> None:
    """Return the slot in the midst of the round, once its gradients lie at the master; what else is staged is void."""
    hold = state.hold
    _hold_planned(state, "return", reason, out)
    for collector in hold.to_keep():
        assert hold.fence is not None
        out.append(leasing.KeepGradient(fence=hold.fence, slot=hold.lead, round=state.round, collector=collector))
    if hold.keeping:
        return
    fence, computed_s = hold.yielded()
    state.progress.ended(state.t)
    out.append(words.ReturnLease(fence=fence, clean=True, computed_s=computed_s, yielded=True))


def _hold_planned(state: RoundState, action: str, reason: str, out: Out) -> None:
    out.append(leasing.HoldPlanned(round=state.round, action=action, planner=state.planner(HOLD).name, reason=reason))


def ask_for_slot(state: RoundState, reason: str, out: Out) -> None:
    """Ask the pool for a slot for each learner that has work left in this round."""
    _hold_planned(state, "request", reason, out)
    request_id = state.hold.request(f"{state.config['task']}/{state.attempt}/{state.round}")
    yields = state.yields and state.n_bytes > 0
    shares_samples = (state.shares_steps or state.shares_minibatches) and state.n_bytes > 0
    n_slots = state.config["n_learners"] if shares_samples else len(set(learners_left(state).values()))
    out.append(
        words.RequestSlot(
            request_id=request_id,
            round=state.round,
            n_slots=n_slots,
            n_least=1 if n_slots > 1 else 0,  # whoever computes a share, its bits are the same
            yields=yields,
        )
    )
    if state.is_complete or not state.n_bytes:
        enter(state, "waiting", out)


def learners_left(state: RoundState) -> dict[int, int]:
    """Return the learner of each batch whose gradient is not kept yet; of nothing left, the one that finishes.

    Where the plan of collectors does not say it, there are as many as the task may have, and the shares of each are
    planned once the slots of the lease are known.
    """
    left = [i for i in state.crew.members if i not in state.hold.done] if state.n_bytes else []
    n_learners = state.config["n_learners"]
    return {i: state.learners.get(i, k % n_learners) for k, i in enumerate(left)} or {RING: 0}


def work(state: RoundState, fence: Fence, slot: str) -> Row:
    """Return what every command about the round's gradient says."""
    of_round = {"round": state.round, "version": state.version, "after_timesteps": state.after_timesteps}
    return {"fence": fence, "slot": slot, **of_round, "settings": state.in_force, "slowed": state.slowness(slot)}


def send_batches(state: RoundState, out: Out) -> None:
    """Hand the batches that are here to their slots' executors, once per lease."""
    hold = state.hold
    fresh = hold.to_send()
    if not fresh or hold.fence is None:
        return
    if len(hold.sent) == len(fresh):  # the round's first
        say_swap(state, out)
    out.extend(
        words.ComputeGradient(
            **work(state, hold.fence, hold.sent[batch.collector]),
            collector=batch.collector,
            key=batch.key,
            swap=state.swap.state.order,
            # What is computed beside the lead goes there by the master.
            keep=hold.sent[batch.collector] != hold.lead or (hold.streams and state.yields and any(hold.crowd)),
        )
        for batch in fresh
    )
    if state.is_complete:
        enter(state, "computing", out)


def say_swap(state: RoundState, out: Out) -> None:
    """Say how the gradient steps of the round are swapped."""
    swap, order = state.swap.state, state.swap.state.order
    planner, plan_key = (swap.planner, order.plan_key) if order else (NONE, None)
    out.append(swapping.SwapPlanned(round=state.round, planner=planner, plan_key=plan_key))
