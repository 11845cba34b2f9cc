"""Share the steps of supervised work among the slots of a lease: the batch of each step is split anew.

One step: shares to the members, their gradients to the lead's node, the step there, its parameters to the members.
Of a lease that is lost the steps stay that were made, as long as the slot that made them has them still: the next
lease goes on after them if that slot is its lead.  Else the round begins again with the version that was committed.
"""

import math
from collections.abc import Mapping

from drlnb.planning.batching import BATCHING, BatchPlan, BatchReport, BatchView
from drlnb.planning.batching.gather import CUT_WAIT_S, Part, chunk_s
from drlnb.planning.batching.goodput import goodput_hz, noise_after, noise_scale
from drlnb.planning.machine import Out
from drlnb.planning.round.holding import say_swap, work
from drlnb.planning.round.learners import PACES, learn, paced_members
from drlnb.planning.round.moves import enter
from drlnb.planning.round.state import RING, RoundState
from drlnb.records.base import Row
from drlnb.records.columns import batching
from drlnb.records.common import DeadlinePassed, SetDeadline

__all__ = ["begin_splits", "forget_steps", "scalars", "share_computed", "shares_late", "step_made", "void_splits"]

#: Names of a split's deadlines: of those that are late, and of what they return that were cut.
_LATE, _CUT = "split", "cut"
#: Chunks of a share whose member has not been measured.
_CHUNKS = 16


def begin_splits(state: RoundState, out: Out) -> None:
    """Begin the round's first step, from the parameters of the version; or ask the lead for the steps it has made."""
    hold, splits = state.hold, state.splits
    hold.to_send()
    say_swap(state, out)
    enter(state, "computing", out)
    splits.gather.late.clear()  # who was late under a former lease has ended, or its slot would not be lent
    if splits.n_made:
        _apply(state, out, split=0, step=_step(state) - 1, parameters=splits.parameters)
        return
    splits.sums = {}
    _next_step(state, out)


def void_splits(state: RoundState) -> None:
    """Give up the step that is being made: the next lease begins with it, or with the version again."""
    state.splits.gather.void()
    state.splits.answers.clear()
    if not state.splits.n_made:
        state.splits.parameters = ""


def forget_steps(state: RoundState) -> None:
    """Begin the round's steps with the version again: nobody has those that were made."""
    if state.splits.n_made:
        state.splits.n_made, state.splits.parameters, state.splits.sums = 0, "", {}
        state.progress.update_s = 0.0


# ---------------------------------------------------------------------- one step
def _step(state: RoundState) -> int:
    """Return the number of the step that is being made, from the task's first."""
    return state.progress.n_timesteps + state.splits.n_made


def _next_step(state: RoundState, out: Out) -> None:
    """Begin a step: its batch is shared at once."""
    splits = state.splits
    splits.left, splits.used = [Part("", 0, _n_samples(state, _step(state)))], []
    splits.step_s = splits.wait_s = 0.0
    _next_split(state, out)


def _next_split(state: RoundState, out: Out) -> None:
    """Order shares of what is left of the batch from the members that have answered."""
    hold, splits, gather = state.hold, state.splits, state.splits.gather
    assert hold.fence is not None
    whole = splits.left.pop(0)
    splits.base = whole.first
    members = paced_members(state, [slot for slot in hold.slots if slot not in gather.late])
    view = BatchView(
        round=state.round,
        role="update",
        n_units=whole.n,
        members=members,
        memory=state.memories.get(state.memory_of(BATCHING)),
        n_learners=len(hold.slots),
    )
    planner = state.planner(BATCHING)
    plan: BatchPlan = BATCHING.ask(planner, view)
    names, sizes = tuple([each.id for each in members]), tuple(plan.sizes)
    is_known = bool(plan.speeds_hz) and all(state.slot_paces.get(name) for name in names)
    speeds_hz = tuple(plan.speeds_hz) if is_known else ()
    predicted_s = max([n / hz for n, hz in zip(sizes, speeds_hz, strict=False)], default=0.0)
    gather.gathering = splits.gathering
    parts = gather.begin(dict(zip(names, sizes, strict=True)), predicted_s, state.t, hold.lead)
    splits.answers.clear()
    out.append(
        batching.SplitPlanned(
            round=state.round,
            planner=planner.name,
            members=names,
            sizes=sizes,
            speeds_hz=speeds_hz,
            split=gather.split,
            predicted_s=predicted_s,
        )
    )
    hz_of = dict(zip(names, speeds_hz, strict=False))
    for part in parts:
        hz = hz_of.get(part.member)
        chunk = -(-part.n // _CHUNKS) if hz is None else max(1, int(hz * chunk_s(predicted_s)))
        out.append(
            batching.ComputeShare(
                **work(state, hold.fence, part.member),
                split=gather.split,
                step=_step(state),
                first=splits.base + part.first,
                n=part.n,
                chunk=0 if gather.needed == len(parts) else chunk,  # nobody can be cut
                lead=hold.lead,
                parameters=splits.parameters,
                swap=state.swap.state.order,
            )
        )


def _n_samples(state: RoundState, step: int) -> int:
    """Return the samples of a step: the last batch of an epoch has what is left."""
    n, size = state.config["n_samples"], state.config["batch_size"]
    at = step % -(-n // size) * size
    return int(min(size, n - at))


def share_computed(state: RoundState, event: batching.ShareComputed, out: Out) -> None:
    """Take a gradient in; the step is made once nobody is waited for any more."""
    hold, gather, splits = state.hold, state.splits.gather, state.splits
    if event.fence != hold.fence:
        return  # made under a lease that was lost: void
    hold.computed_s[hold.slots.index(event.slot)] += event.compute_s
    hold.began(event.t - event.elapsed_s)
    state.progress.moved_bytes += event.moved_bytes
    was_open, had_deadline, was_late = not gather.cause, gather.deadline_t is not None, event.slot in gather.late
    gather.answered(event.split, event.slot, event.first - splits.base, event.n_done, event.age_s, event.t)
    if event.slot in gather.answers or (was_late and event.slot not in gather.late):
        splits.answers.setdefault(event.slot, event)
    if gather.deadline_t is not None and not had_deadline:
        grace_s = gather.deadline_t - event.t
        first, targets = tuple(gather.first), gather.targets
        out.append(batching.QuorumReached(split=gather.split, first=first, targets=targets, grace_s=grace_s))
        out.append(SetDeadline(name=f"{_LATE}/{gather.split}", after_s=grace_s))
    if was_open and gather.cause:
        _close(state, out)


def shares_late(state: RoundState, event: DeadlinePassed, out: Out) -> None:
    """Cut or drop those that have not answered in time."""
    kind, _, number = event.name.partition("/")
    gather = state.splits.gather
    if kind not in {_LATE, _CUT} or state.hold.fence is None:
        return
    was_open = not gather.cause
    late = gather.deadline_passed(int(number), cut=kind == _CUT)
    out.extend(batching.CutShare(fence=state.hold.fence, slot=slot, split=gather.split) for slot in late)
    if late and not gather.gathering.steal:
        out.append(SetDeadline(name=f"{_CUT}/{gather.split}", after_s=CUT_WAIT_S))
    if was_open and gather.cause:
        _close(state, out)


def _close(state: RoundState, out: Out) -> None:
    """Report a split that is over; share what it has left, or have the step made."""
    hold, splits, gather = state.hold, state.splits, state.splits.gather
    assert hold.fence is not None
    duration_s = splits.duration_s = state.t - gather.began_t
    waits_s = [state.t - splits.answers[slot].t for slot in gather.answers]
    wait_s = sum(waits_s) / len(waits_s)
    out.append(
        batching.SplitClosed(
            round=state.round,
            split=gather.split,
            n_used=gather.n_used,
            lost=dict(gather.lost),
            duration_s=duration_s,
            wait_s=wait_s,
            cause=gather.cause,
            n_moved=sum(part.n for part in gather.left),
        )
    )
    state.progress.update_s += duration_s
    splits.step_s += duration_s
    splits.wait_s += wait_s
    splits.used += [splits.answers[slot] for slot in _used(state)]
    splits.left += [Part("", splits.base + part.first, part.n) for part in gather.left]
    if splits.left:
        _observe(state, {})
        _next_split(state, out)
        return
    splits.used.sort(key=lambda event: event.first)
    _apply(state, out, split=gather.split, step=_step(state))


def _apply(state: RoundState, out: Out, *, split: int, step: int, parameters: str = "") -> None:
    """Have the lead make a step of the gradients that are used, or go on from parameters that it has made."""
    hold, used = state.hold, state.splits.used if split else []
    assert hold.fence is not None
    out.append(
        batching.ApplyGradients(
            fence=hold.fence,
            slot=hold.lead,
            round=state.round,
            split=split,
            step=step,
            keys=tuple([event.key for event in used]),
            denominators=tuple([event.denominator for event in used]),
            others=tuple([slot for slot in hold.slots if slot != hold.lead]),
            parameters=parameters,
        )
    )


def _used(state: RoundState) -> list[str]:
    """Return whose gradients the step is made of, in the order of the batch."""
    return [part.member for part in sorted(state.splits.gather.parts, key=lambda part: part.first)]


def _observe(state: RoundState, cosine_of: Mapping[str, float]) -> None:
    """Report a split to the planner, once its step is made: only then the cosines of its gradients are known, by key.

    Of a split of which something was left nothing is said of gradients: its step is not made yet.

    Of slots whose first share it was nothing is said: that had the start of libraries in it.  A share that came too
    late for its split is in the report of the first step that is made after it.
    """
    gather, answers = state.splits.gather, state.splits.answers
    sizes = {part.member: part.n for part in gather.late.values()} | {
        slot: event.n_planned for slot, event in answers.items()
    }
    if not state.splits.base:  # who had nothing of the whole batch; what is left of one is often too little for all
        sizes = dict.fromkeys(state.hold.slots, 0) | sizes
    warm = [slot for slot in state.hold.slots if slot in sizes and slot in state.slot_paces]
    state.slot_paces |= {slot: [] for slot, event in answers.items() if slot not in state.slot_paces and event.n_done}
    for slot in warm:
        if (event := answers.get(slot)) and event.n_done:
            state.slot_paces[slot] = [*state.slot_paces[slot], event.compute_s / event.n_done][-PACES:]
    if not warm:
        return
    done = [answers.get(slot) for slot in warm]
    gradients = {slot: answers[slot] for slot in _used(state)} if cosine_of else {}
    report = BatchReport(
        round=state.version,
        members=tuple(warm),
        sizes=tuple([sizes[slot] for slot in warm]),
        n_done=tuple([event.n_done if event else 0 for event in done]),
        compute_s=tuple([event.compute_s if event else None for event in done]),
        elapsed_s=tuple([event.elapsed_s if event else None for event in done]),
        duration_s=state.splits.duration_s,
        norms=tuple([math.sqrt(gradients[slot].norm_sq) if slot in gradients else None for slot in warm]),
        cosines=tuple([cosine_of.get(gradients[slot].key) if slot in gradients else None for slot in warm]),
        ages_s=tuple([gradients[slot].age_s if slot in gradients else None for slot in warm]),
    )
    learn(state, BATCHING, report)


def _add(sums: dict[str, float], **values: float) -> None:
    for name, value in values.items():
        sums[name] = sums.get(name, 0.0) + value


def _weigh(state: RoundState, cosines: tuple[float, ...]) -> None:
    """Learn how noisy the gradients are, and weigh the split by it."""
    splits, used = state.splits, state.splits.used
    norms, weight = [math.sqrt(event.norm_sq) for event in used], sum(event.denominator for event in used)
    if len(cosines) == len(used) and weight > 0:
        # The norm of the step's gradient, since each part's projection on it is known.
        along = zip(used, norms, cosines, strict=True)
        norm = sum(event.denominator * norm * cosine for event, norm, cosine in along) / weight
        sizes = [event.n_done for event in used]
        splits.noise = noise_after(splits.noise, sizes, [event.norm_sq for event in used], norm * norm)
    n_used, n_units = sum(event.n_done for event in used), _n_samples(state, _step(state))
    _add(splits.sums, wait_s=splits.wait_s, n_used=n_used, n_lost=n_units - n_used)
    if splits.step_s > 0:
        hz = goodput_hz(n_used, n_units, splits.step_s, noise_scale(splits.noise))
        _add(splits.sums, goodput=hz * splits.step_s)
    _add(splits.sums, split_s=splits.step_s, n_steps=1)


def scalars(state: RoundState) -> Row:
    """Return what the splits of the round came to; nothing where one slot made its steps."""
    sums, phi = state.splits.sums, noise_scale(state.splits.noise)
    if not sums.get("n_steps"):
        return {}
    row: Row = {f"batching/{name}": round(sums[name] / sums["n_steps"], 6) for name in ("split_s", "wait_s")}
    row |= {f"batching/{name}": int(sums[name]) for name in ("n_used", "n_lost")}
    if sums["split_s"] > 0:
        row["batching/goodput_hz"] = round(sums.get("goodput", 0.0) / sums["split_s"], 3)
    if 0 < phi < math.inf:
        row["batching/noise_scale"] = round(phi, 1)
    return row


def step_made(state: RoundState, event: batching.GradientsApplied, out: Out) -> None:
    """Go on with the next step; after the round's last one its batch counts as computed."""
    hold, splits = state.hold, state.splits
    was_asked = splits.gather.cause == "void"
    expected = 0 if was_asked else splits.gather.split
    if event.fence != hold.fence or event.split != expected or RING in hold.staged:
        return
    hold.computed_s[0] += event.elapsed_s
    state.progress.update_s += event.elapsed_s
    if not was_asked:
        _weigh(state, event.cosines)
        _observe(state, dict(zip([each.key for each in splits.used], event.cosines, strict=False)))
        splits.n_made += 1
    elif not event.key:
        forget_steps(state)
    splits.parameters = event.key
    if splits.n_made < state.n_steps[RING]:
        _next_step(state, out)
        return
    splits.n_made = 0  # from here on they are the new version, or nothing
    hold.staged.add(RING)
    hold.gathered.add(RING)
