"""Compute on a slot: requests, batches to the executor, the commit under the lease, the return."""

from drlnb.planning.leasing.planners import HOLD
from drlnb.planning.machine import Out
from drlnb.planning.round.boundary import boundary
from drlnb.planning.round.moves import drop, end, enter
from drlnb.planning.round.state import RoundState
from drlnb.planning.swapping.state import NONE
from drlnb.records import round as words
from drlnb.records.base import Row
from drlnb.records.columns import leasing, swapping
from drlnb.records.ids import Fence


# ---------------------------------------------------------------------- request
def plan_hold(state: RoundState, out: Out) -> None:
    """Do what the hold planner says: ask for a slot, use it, give it away, or wait."""
    plan = HOLD.ask(state.planner(HOLD), state.hold.view(state.n_batches))
    if plan.action == "keep":
        _send_batches(state, out)
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
        _consider(state, out)


def _consider(state: RoundState, out: Out) -> None:
    """Ask the hold planner whether the slot is still worth holding, where it may give way at all."""
    if state.hold.held and state.n_bytes and state.yields and not state.hold.finishing:
        plan_hold(state, out)


def _give_way(state: RoundState, reason: str, out: Out) -> None:
    """Return the slot in the midst of the round; gradients that were kept stay, what else was staged is void."""
    _hold_planned(state, "return", reason, out)
    fence, computed_s = state.hold.yielded()
    state.progress.ended(state.t)
    out.append(words.ReturnLease(fence=fence, clean=True, computed_s=computed_s, yielded=True))


def _hold_planned(state: RoundState, action: str, reason: str, out: Out) -> None:
    out.append(leasing.HoldPlanned(round=state.round, action=action, planner=state.planner(HOLD).name, reason=reason))


def ask_for_slot(state: RoundState, reason: str, out: Out) -> None:
    """Ask the pool for a slot."""
    _hold_planned(state, "request", reason, out)
    request_id = state.hold.request(f"{state.config['task']}/{state.attempt}/{state.round}")
    yields = state.yields and state.n_bytes > 0
    out.append(words.RequestSlot(request_id=request_id, round=state.round, n_slots=1, yields=yields))
    if state.is_complete or not state.n_bytes:
        enter(state, "waiting", out)


def lease_received(state: RoundState, event: words.LeaseReceived, out: Out) -> None:
    """Begin to compute on the slot, or return one that nobody waits for any more."""
    if event.fence == state.hold.fence:
        return  # the answer came twice: refusing it would return the lease that we hold
    if event.request_id != state.hold.request_id:
        refuse_lease(event, out)
        return
    slot = event.slots[0]
    state.hold.granted(event.fence, slot, event.waited_s, demand=event.demand, t=event.t)
    state.progress.granted(event.t, waited_s=event.waited_s, resident=event.resident)
    if state.n_bytes:
        _restore_gradients(state, event.fence, slot, out)
        _send_batches(state, out)
    else:
        enter(state, "computing", out)
        out.append(words.InitialiseParameters(fence=event.fence, slot=slot))


def refuse_lease(event: words.LeaseReceived, out: Out) -> None:
    """Return a lease unused."""
    out.append(words.ReturnLease(fence=event.fence, clean=True, computed_s=0.0))


# ---------------------------------------------------------------------- compute
def _work(state: RoundState, fence: Fence, slot: str) -> Row:
    """Return what every command about the round's gradient says."""
    of_round = {"round": state.round, "version": state.version, "after_timesteps": state.after_timesteps}
    return {"fence": fence, "slot": slot, **of_round, "settings": state.in_force}


def _restore_gradients(state: RoundState, fence: Fence, slot: str, out: Out) -> None:
    """Give the executor what was computed in this round under former leases."""
    if state.hold.done:
        out.append(
            leasing.RestoreGradients(
                **_work(state, fence, slot),
                collectors=tuple(state.hold.done),
                keys=tuple(state.hold.done.values()),
            )
        )


def gradients_restored(state: RoundState, event: leasing.GradientsRestored, out: Out) -> None:
    """Go on where the former lease of this round ended."""
    if event.fence == state.hold.fence and not state.hold.finishing:
        state.hold.restored(event.t)
        state.progress.moved_bytes += event.moved_bytes
        _finish_if_all_in(state, event.fence, out)
        _consider(state, out)


def _send_batches(state: RoundState, out: Out) -> None:
    """Hand the batches that are here to the executor, once per lease."""
    hold = state.hold
    fresh = hold.to_send()
    if not fresh or hold.fence is None or hold.slot is None:
        return
    swap = state.swap.state
    if len(hold.sent) == len(fresh):  # the round's first
        planner = swap.planner if swap.active else NONE
        out.append(swapping.SwapPlanned(round=state.round, planner=planner, plan_key=swap.plan_key))
    out.extend(
        words.ComputeGradient(
            **_work(state, hold.fence, hold.slot),
            collector=batch.collector,
            key=batch.key,
            **_swapped(state),
            keep=hold.streams and state.yields and any(hold.crowd),
        )
        for batch in fresh
    )
    if state.is_complete:
        enter(state, "computing", out)


def _swapped(state: RoundState) -> Row:
    """Return what a command says of the plan that its gradient steps follow."""
    swap = state.swap.state
    budget_bytes = int(swap.budget_bytes) if swap.active and swap.budget_bytes else None
    rate = swap.bandwidth_bytes_per_s if swap.active else None
    said = {"swap_plan_key": swap.plan_key, "swap_budget_bytes": budget_bytes, "swap_report": swap.report}
    return said | {"swap_bytes_per_s": rate}


def gradient_computed(state: RoundState, event: words.GradientComputed, out: Out) -> None:
    """Count a batch as computed; after the last one the executor makes the new parameters."""
    hold = state.hold
    if event.fence != hold.fence or hold.slot is None or event.collector in hold.staged:
        return  # made under a lease that was lost: void; or reported twice
    hold.computed(event.collector, event.elapsed_s, t=event.t, key=event.key)
    state.progress.update_s += event.elapsed_s
    state.progress.moved_bytes += event.moved_bytes
    _finish_if_all_in(state, event.fence, out)
    _consider(state, out)


def _finish_if_all_in(state: RoundState, fence: Fence, out: Out) -> None:
    hold = state.hold
    if len(hold.staged) < state.n_batches or hold.slot is None:
        return
    hold.finishing = True
    out.append(words.FinishRound(round=state.round, fence=fence, slot=hold.slot, **_swapped(state)))


# ---------------------------------------------------------------------- faults
def lease_lost(state: RoundState, event: words.LeaseLost, out: Out) -> None:
    """Ask for another slot: what was computed on the lost one is void."""
    if event.fence == state.hold.fence:
        _void(state, f"lease {event.fence} lost: {event.reason}", out)


def executor_died(state: RoundState, event: words.ExecutorDied, out: Out) -> None:
    """Try again under another lease, unless the batch itself seems to kill executors."""
    if event.fence != state.hold.fence:
        return
    state.n_executor_deaths += 1
    if state.n_executor_deaths >= state.config["max_executor_deaths"]:
        end(state, "failed", f"the executor died {state.n_executor_deaths} times in one round: {event.reason}", out)
        return
    fence, computed_s = state.hold.returned()
    out.append(words.ReturnLease(fence=fence, clean=False, computed_s=computed_s))
    _void(state, f"executor of {event.slot} died: {event.reason}", out)


def _void(state: RoundState, reason: str, out: Out) -> None:
    state.hold.lost()
    state.progress.ended(state.t)
    if not state.hold.done:
        state.progress.update_s = 0.0
    ask_for_slot(state, reason, out)


# ---------------------------------------------------------------------- commit
def parameters_ready(state: RoundState, event: words.ParametersReady, out: Out) -> None:
    """Commit the new parameters under the lease."""
    if event.fence != state.hold.fence or state.hold.committing:
        return
    state.hold.committing = True
    state.hold.computed_s += event.elapsed_s
    state.progress.update_s += event.elapsed_s
    state.n_bytes_next = event.n_bytes
    state.metrics = dict(event.metrics)
    out.append(words.CommitParameters(version=event.round + 1, round=event.round, fence=event.fence, key=event.key))


def parameters_committed(state: RoundState, event: words.ParametersCommitted, out: Out) -> None:
    """Return the lease and begin the next round."""
    # Not compared by fence: the lease may have been lost while the store, which checks fences, admitted it.
    if event.version != state.round + 1 or state.unfinished:
        return
    state.progress.ended(event.t)
    if state.hold.held:
        clean = event.fence == state.hold.fence  # else the round is being computed once more: work in flight
        fence, computed_s = state.hold.returned()
        out.append(words.ReturnLease(fence=fence, clean=clean, computed_s=computed_s))
    state.hold.request_id = None  # its grant, if it comes, is returned
    state.n_executor_deaths = 0
    made_round, state.n_bytes = state.n_bytes > 0, state.n_bytes_next
    state.base, state.changed = event.base, event.changed
    next_round(state, event.t, out, made_round=made_round)


def next_round(state: RoundState, t: float, out: Out, *, made_round: bool = True) -> None:
    """Close the round, if parameters were made of experience, and do what waits for the boundary."""
    round_, progress = state.version, state.progress
    n_samples = sum(batch.n_samples for batch in state.arrived.values())
    used = state.hold.next_round()
    state.fragments.clear()
    if made_round:
        progress.finished(n_samples)
        metrics = progress.metrics(t) | state.metrics
        out.append(words.MetricsRecorded(round=round_, n_timesteps=progress.n_timesteps, metrics=metrics))
        for batch in used:
            drop(batch, round_, "used", out)
    progress.began(t)
    state.crew.next_round()
    boundary(state, t, out)
