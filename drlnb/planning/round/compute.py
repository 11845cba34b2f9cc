"""Compute on a slot: requests, batches to the executor, the commit under the lease, the return."""

from drlnb.planning.batching import BATCHING, BatchReport
from drlnb.planning.leasing.planners import HOLD
from drlnb.planning.machine import Out
from drlnb.planning.round.boundary import boundary
from drlnb.planning.round.moves import drop, end, enter
from drlnb.planning.round.state import RING, RoundState
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
    """Ask the pool for a slot for each learner that has work left in this round."""
    _hold_planned(state, "request", reason, out)
    request_id = state.hold.request(f"{state.config['task']}/{state.attempt}/{state.round}")
    yields = state.yields and state.n_bytes > 0
    n_slots = len(set(_learners(state).values()))
    out.append(words.RequestSlot(request_id=request_id, round=state.round, n_slots=n_slots, yields=yields))
    if state.is_complete or not state.n_bytes:
        enter(state, "waiting", out)


def _learners(state: RoundState) -> dict[int, int]:
    """Return the learner of each batch whose gradient is not kept yet; of nothing left, the one that finishes."""
    left = [i for i in state.crew.members if i not in state.hold.done] if state.n_bytes else []
    return {i: state.learners.get(i, 0) for i in left} or {RING: 0}


def lease_received(state: RoundState, event: words.LeaseReceived, out: Out) -> None:
    """Begin to compute on the slots, or return those that nobody waits for any more."""
    if event.fence == state.hold.fence:
        return  # the answer came twice: refusing it would return the lease that we hold
    if event.request_id != state.hold.request_id:
        refuse_lease(event, out)
        return
    hold = state.hold
    hold.granted(event.fence, event.slots, event.waited_s, demand=event.demand, t=event.t)
    state.progress.granted(event.t, waited_s=event.waited_s, resident=event.resident)
    if state.n_bytes:
        _deal(state)
        _restore_gradients(state, event.fence, tuple(hold.done), out)
        _send_batches(state, out)
    else:
        enter(state, "computing", out)
        out.append(words.InitialiseParameters(fence=event.fence, slot=hold.lead, swap=state.swap.state.order))


def _deal(state: RoundState) -> None:
    """Deal the slots of the lease to the learners that have work left, in their order."""
    learners, slots = _learners(state), state.hold.slots
    rank = {learner: k for k, learner in enumerate(sorted(set(learners.values())))}
    state.hold.shares = {i: slots[rank[learner] % len(slots)] for i, learner in learners.items()}


def refuse_lease(event: words.LeaseReceived, out: Out) -> None:
    """Return a lease unused."""
    out.append(words.ReturnLease(fence=event.fence, clean=True, computed_s=(0.0,) * len(event.slots)))


# ---------------------------------------------------------------------- compute
def _work(state: RoundState, fence: Fence, slot: str) -> Row:
    """Return what every command about the round's gradient says."""
    of_round = {"round": state.round, "version": state.version, "after_timesteps": state.after_timesteps}
    return {"fence": fence, "slot": slot, **of_round, "settings": state.in_force}


def _restore_gradients(state: RoundState, fence: Fence, collectors: tuple[int, ...], out: Out) -> None:
    """Give the lead gradients of this round that were computed elsewhere, or under former leases."""
    hold = state.hold
    hold.restoring = collectors
    if collectors:
        keys = tuple(hold.done[i] for i in collectors)
        out.append(leasing.RestoreGradients(**_work(state, fence, hold.lead), collectors=collectors, keys=keys))


def gradients_restored(state: RoundState, event: leasing.GradientsRestored, out: Out) -> None:
    """Go on where the former lease of this round ended, or finish the round of several slots."""
    if event.fence == state.hold.fence and not state.hold.finishing:
        state.hold.restored(event.t)
        state.progress.moved_bytes += event.moved_bytes
        _finish_if_all_in(state, event.fence, out)
        _consider(state, out)


def _send_batches(state: RoundState, out: Out) -> None:
    """Hand the batches that are here to their slots' executors, once per lease."""
    hold = state.hold
    fresh = hold.to_send()
    if not fresh or hold.fence is None:
        return
    swap, order = state.swap.state, state.swap.state.order
    if len(hold.sent) == len(fresh):  # the round's first
        planner, plan_key = (swap.planner, order.plan_key) if order else (NONE, None)
        out.append(swapping.SwapPlanned(round=state.round, planner=planner, plan_key=plan_key))
    out.extend(
        words.ComputeGradient(
            **_work(state, hold.fence, hold.sent[batch.collector]),
            collector=batch.collector,
            key=batch.key,
            swap=order,
            # What is computed beside the lead goes there by the master.
            keep=hold.sent[batch.collector] != hold.lead or (hold.streams and state.yields and any(hold.crowd)),
        )
        for batch in fresh
    )
    if state.is_complete:
        enter(state, "computing", out)


def gradient_computed(state: RoundState, event: words.GradientComputed, out: Out) -> None:
    """Count a batch as computed; after the last one the executor makes the new parameters."""
    hold = state.hold
    if event.fence != hold.fence or event.collector in hold.staged or not hold.sent.get(event.collector):
        return  # made under a lease that was lost: void; or reported twice
    state.compute_s[event.collector] = event.elapsed_s
    before_s = hold.busy_s
    hold.computed(event.collector, event.elapsed_s, t=event.t, key=event.key)
    state.progress.update_s += hold.busy_s - before_s  # slots compute side by side
    state.progress.moved_bytes += event.moved_bytes
    _finish_if_all_in(state, event.fence, out)
    _consider(state, out)


def _finish_if_all_in(state: RoundState, fence: Fence, out: Out) -> None:
    hold = state.hold
    if len(hold.staged) < state.n_batches or hold.restoring:
        return
    if hold.apart:
        _restore_gradients(state, fence, hold.apart, out)
        return
    hold.finishing = True
    collectors, order = tuple(sorted(hold.gathered)), state.swap.state.order
    out.append(words.FinishRound(round=state.round, fence=fence, slot=hold.lead, collectors=collectors, swap=order))


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
    state.hold.computed_s[0] += event.elapsed_s
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


def _observe(state: RoundState) -> None:
    """Report the round to the planner of batching, and keep what it remembers of it."""
    planner, collectors = state.planner(BATCHING), tuple(state.n_steps)
    report = BatchReport(
        round=state.version,
        collectors=collectors,
        n_steps=tuple(state.n_steps.values()),
        collect_s=tuple(state.collect_s.get(i) for i in collectors),
        compute_s=tuple(state.compute_s.get(i) for i in collectors),
    )
    name = state.names["batching"]
    memory = BATCHING.observe(planner, state.memories.get(name), report)
    state.memories = {} if memory is None else {name: memory}
    state.collect_s, state.compute_s = {}, {}


def next_round(state: RoundState, t: float, out: Out, *, made_round: bool = True) -> None:
    """Close the round, if parameters were made of experience, and do what waits for the boundary."""
    round_, progress = state.version, state.progress
    if made_round:
        _observe(state)
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
