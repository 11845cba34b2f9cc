"""Compute on a slot: the lease, gradients and new parameters, the commit under the lease, the return."""

from drlnb.planning.machine import Out
from drlnb.planning.round.boundary import boundary, emulated_scalars
from drlnb.planning.round.holding import ask_for_slot, consider, send_batches, work
from drlnb.planning.round.learners import computed, deal, joined, observe, planned
from drlnb.planning.round.moves import drop, end, enter
from drlnb.planning.round.splits import begin_splits, forget_steps, scalars, step_made, void_splits
from drlnb.planning.round.state import RING, RoundState
from drlnb.records import round as words
from drlnb.records.columns import batching, leasing
from drlnb.records.ids import Fence


# ---------------------------------------------------------------------- the lease
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
    if hold.lead != state.splits.gather.lead:
        forget_steps(state)
    if state.n_bytes and state.shares_steps and (len(hold.slots) > 1 or state.splits.n_made):
        begin_splits(state, out)
    elif state.n_bytes:
        state.splits.parameters, state.splits.sums = "", {}  # one slot makes its steps alone
        deal(state, out)
        _restore_gradients(state, event.fence, tuple(hold.done), out)
        send_batches(state, out)
    else:
        enter(state, "computing", out)
        out.append(words.InitialiseParameters(fence=event.fence, slot=hold.lead, swap=state.swap.state.order))


def refuse_lease(event: words.LeaseReceived, out: Out) -> None:
    """Return a lease unused."""
    out.append(words.ReturnLease(fence=event.fence, clean=True, computed_s=(0.0,) * len(event.slots)))


# ---------------------------------------------------------------------- compute
def _restore_gradients(state: RoundState, fence: Fence, collectors: tuple[int, ...], out: Out) -> None:
    """Give the lead gradients of this round that were computed elsewhere, or under former leases."""
    hold = state.hold
    hold.restoring = collectors
    if collectors:
        keys = tuple(hold.done[i] for i in collectors)
        out.append(leasing.RestoreGradients(**work(state, fence, hold.lead), collectors=collectors, keys=keys))


def gradients_restored(state: RoundState, event: leasing.GradientsRestored, out: Out) -> None:
    """Go on where the former lease of this round ended, or finish the round of several slots."""
    if event.fence == state.hold.fence and not state.hold.finishing:
        state.hold.restored(event.t)
        state.progress.moved_bytes += event.moved_bytes
        _finish_if_all_in(state, event.fence, out)
        consider(state, out)


def gradient_kept(state: RoundState, event: leasing.GradientKept, out: Out) -> None:
    """Count a gradient that was fetched as kept, and give the slot away if it is still not needed."""
    if event.fence == state.hold.fence and event.collector in state.hold.keeping:
        state.hold.kept(event.collector, event.key)
        consider(state, out)


def gradient_computed(state: RoundState, event: words.GradientComputed, out: Out) -> None:
    """Count a batch as computed; after the last one the executor makes the new parameters."""
    hold = state.hold
    if event.fence != hold.fence or event.collector in hold.staged or not hold.sent.get(event.collector):
        return  # made under a lease that was lost: void; or reported twice
    computed(state, event)
    before_s = hold.busy_s
    hold.computed(event.collector, event.elapsed_s, t=event.t, key=event.key)
    state.progress.update_s += hold.busy_s - before_s  # slots compute side by side
    state.progress.moved_bytes += event.moved_bytes
    _finish_if_all_in(state, event.fence, out)
    consider(state, out)


def gradients_applied(state: RoundState, event: batching.GradientsApplied, out: Out) -> None:
    """Go on after a step that several slots have shared."""
    step_made(state, event, out)
    if state.hold.held and not state.hold.finishing:
        _finish_if_all_in(state, event.fence, out)


def _finish_if_all_in(state: RoundState, fence: Fence, out: Out) -> None:
    hold = state.hold
    if len(hold.staged) < state.n_batches or hold.restoring:
        return
    if hold.apart:
        _restore_gradients(state, fence, hold.apart, out)
        return
    hold.finishing = True
    members, sizes = _join(state, fence, out) if state.shares_minibatches and len(hold.slots) > 1 else ((), ())
    out.append(
        words.FinishRound(
            round=state.round,
            fence=fence,
            slot=hold.lead,
            collectors=tuple(sorted(hold.gathered)),
            swap=state.swap.state.order,
            members=members,
            sizes=sizes,
            slowed=state.slowness(hold.lead),
        )
    )


def _join(state: RoundState, fence: Fence, out: Out) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Have the other slots of the lease compute their parts of the round's minibatches; return all that do."""
    hold = state.hold
    batches = [hold.batches[i] for i in sorted(hold.batches)]
    sizes = planned(state, sum(batch.n_samples for batch in batches), out)
    shares = {slot: n for slot, n in zip(hold.slots, sizes, strict=True) if n or slot == hold.lead}
    if len(shares) == 1:
        return (), ()
    members, parts = tuple(shares), tuple(shares.values())
    hold.joining = {*members[1:]}
    out.extend(
        batching.JoinRound(
            **work(state, fence, slot),
            keys=tuple([batch.key for batch in batches]),
            collectors=tuple([batch.collector for batch in batches]),
            members=members,
            sizes=parts,
            swap=state.swap.state.order,
        )
        for slot in members
        if slot != hold.lead
    )
    return members, parts


def round_joined(state: RoundState, event: batching.RoundJoined, out: Out) -> None:
    """Count what a slot has computed of the round's minibatches beside the lead."""
    if event.fence == state.hold.fence:
        state.hold.computed_s[state.hold.slots.index(event.slot)] += event.elapsed_s
        state.progress.moved_bytes += event.moved_bytes
        joined(state, event.slot, event.compute_s)
        state.hold.joining.discard(event.slot)
        _commit_if_all_done(state, out)


# ---------------------------------------------------------------------- faults
def lease_lost(state: RoundState, event: words.LeaseLost, out: Out) -> None:
    """Ask for another slot: what was computed on the lost one is void."""
    if event.fence == state.hold.fence:
        _void(state, f"lease {event.fence} lost: {event.reason}", out)


def executor_died(state: RoundState, event: words.ExecutorDied, out: Out) -> None:
    """Try again under another lease, unless the batch itself seems to kill executors."""
    if event.fence != state.hold.fence:
        return
    state.slot_paces.pop(event.slot, None)  # another process is cold again
    state.n_executor_deaths += 1
    if state.n_executor_deaths >= state.config["max_executor_deaths"]:
        end(state, "failed", f"the executor died {state.n_executor_deaths} times in one round: {event.reason}", out)
        return
    if event.slot == state.hold.lead:
        forget_steps(state)
    fence, computed_s = state.hold.returned()
    out.append(words.ReturnLease(fence=fence, clean=False, computed_s=computed_s))
    _void(state, f"executor of {event.slot} died: {event.reason}", out)


def _void(state: RoundState, reason: str, out: Out) -> None:
    state.hold.lost()
    void_splits(state)
    state.worked.clear()  # who was lost was not slow
    state.progress.ended(state.t)
    if not (state.hold.done or state.splits.n_made):
        state.progress.update_s = 0.0
    ask_for_slot(state, reason, out)


# ---------------------------------------------------------------------- commit
def parameters_ready(state: RoundState, event: words.ParametersReady, out: Out) -> None:
    """Commit the new parameters under the lease, once all that computed them have said that they are done."""
    if event.fence == state.hold.fence and not state.hold.committing:
        state.hold.ready = event
        _commit_if_all_done(state, out)


def _commit_if_all_done(state: RoundState, out: Out) -> None:
    event = state.hold.ready
    if event is None or state.hold.joining:
        return
    state.hold.ready, state.hold.committing = None, True
    state.hold.computed_s[0] += event.elapsed_s
    state.progress.update_s += event.elapsed_s
    if event.compute_s:
        joined(state, state.hold.lead, event.compute_s)
    if RING in state.n_steps:
        state.timed(RING, state.progress.update_s, state.n_steps[RING])
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
    emulated = emulated_scalars(state)
    if made_round and state.crew.members:
        observe(state)
    n_samples = sum(batch.n_samples for batch in state.arrived.values())
    used = state.hold.next_round()
    state.fragments.clear()
    if made_round:
        progress.finished(n_samples, state.config["stats_window_size"])
        metrics = progress.metrics(t) | scalars(state) | emulated | state.metrics
        out.append(words.MetricsRecorded(round=round_, n_timesteps=progress.n_timesteps, metrics=metrics))
        for batch in used:
            drop(batch, round_, "used", out)
    progress.began(t)
    state.crew.next_round()
    boundary(state, t, out)
