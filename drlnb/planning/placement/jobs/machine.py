"""Place jobs, gangs of functions, on slots that fail: the machine behind placement without a training around it.

What happens is noted at once; gangs are broken and planned when the instant is over, whose end is a deadline of 0 s: a
job that ends as its slot fails has ended, and a slot that fails and is back at once does not move its gang for nothing.
"""

from collections.abc import Iterator

from drlnb.planning.machine import Impossible, Machine, Out, Rules
from drlnb.planning.placement.cluster import Terms
from drlnb.planning.placement.gangs import GANGS
from drlnb.planning.placement.health import DAY_S, hold_s, n_since
from drlnb.planning.placement.jobs.plans import START_S, plan
from drlnb.planning.placement.jobs.state import BLAME, HOLD, INSTANT, START, STOP, Job, Placing, Slot
from drlnb.planning.placement.order import BACKFILLS, order_of
from drlnb.planning.registry import Planners
from drlnb.records.base import Facts
from drlnb.records.columns.leasing import SlotAdded, SlotFailed
from drlnb.records.columns.placement import (
    CheckpointSaved,
    GangBroken,
    GangMemberLost,
    GangSilent,
    GangStopped,
    JobFinished,
    JobStarted,
    JobStopped,
    JobSubmitted,
    SlotMasked,
    SlotTaken,
    StopGang,
)
from drlnb.records.common import DeadlinePassed, SetDeadline, SettingChanged
from drlnb.records.errors import ConfigError

__all__ = ["RULES", "PlacementMachine"]

#: Seconds that members have to stop once they are told to.
_STOP_S = 30.0
#: Seconds in which a slot may still turn out to be lost, of which a member has heard first: it raised.
_BLAME_S = 2.0
#: Failures in a day after which a slot is kept out of use.
_MOST_FAILURES = 3
#: Gangs of a job in a row that may be lost with nothing kept: then it may be the job that ends its workers.
_MOST_IN_VAIN = 5
#: Seconds of work that a job has at least while it is not over.
_LEAST_S = 1.0


class PlacementMachine(Machine[Placing]):
    """Starts jobs on slots, all members of a gang or none, and again when one is lost.

    Parameters
    ----------
    config
        ``planner``: name of a planner of :data:`~drlnb.planning.placement.gangs.GANGS`; ``order``, ``backfill``: of
        the queue; ``terms``: fields of :class:`~drlnb.planning.placement.cluster.Terms`; ``hold_s``: seconds that a
        slot stays out of use when it has failed once, 0: until it is added again, however often it fails;
        ``downtime_s``: seconds after which one that failed is expected back, if not those; ``rate_hz``: failures per
        second of each slot, if they are known.
    planners
        What makes planners of their names.

    Raises
    ------
    ConfigError, ValueError
        If there is no planner, order or backfill of the name.
    """

    def __init__(self, config: Facts, planners: Planners | None = None) -> None:
        if config["backfill"] not in BACKFILLS:
            raise ConfigError(f"backfill must be one of {', '.join(BACKFILLS)}, got {config['backfill']!r}")
        order_of(config["order"])
        rate_hz = config.get("rate_hz")
        state = Placing(
            planners=planners or Planners(),
            planner=config["planner"],
            order=config["order"],
            backfill=config["backfill"],
            terms=Terms(**config.get("terms", {})),
            hold_s=config["hold_s"],
            downtime_s=config.get("downtime_s", config["hold_s"]),
            rate_hz=None if rate_hz is None else list(rate_hz),
        )
        state.planners.make(GANGS, state.planner)  # a wrong name is refused now
        super().__init__("PlacementMachine", state, RULES)
        self.config = config

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        state, slots = self.state, list(self.state.slots.values())
        held = [(name, i) for name, job in state.jobs.items() for i in job.slots]
        yield len({i for _, i in held}) == len(held), "a slot is in one gang at most"
        yield sorted(held) == sorted((slot.job, i) for i, slot in enumerate(slots) if slot.job), "both sides say so"
        for name, job in state.jobs.items():
            yield len(job.slots) == (0 if job.phase == "waiting" else job.n_slots), f"{name} has all its slots or none"
            yield job.started <= set(job.slots), f"{name} runs on slots of its own"
            yield 0.0 < job.left_s <= max(job.work_s, _LEAST_S), f"work of {name} is left, and no more than it has"
            yield job.version > 0 or job.phase == "waiting", f"{name} has no gang before its first plan"
            fine = state.waking if job.broken else all(slots[i].up and not slots[i].held for i in job.slots)
            yield job.phase != "running" or fine, f"slots of {name} are alive, or it is about to stop"


# ---------------------------------------------------------------------- slots
def _slot_added(state: Placing, event: SlotAdded, out: Out) -> None:
    """Take in a slot that is new, or back; it may be another process than before."""
    slot = state.slots.get(event.slot)
    if slot is None:
        if event.node not in state.nodes:
            state.nodes.append(event.node)
        state.slots[event.slot] = Slot(node=state.nodes.index(event.node), added_t=state.t)
    else:
        if slot.up:
            _fail(state, event.slot, "it began anew", out)
        slot.up, slot.added_t = True, state.t
    state.wake(out)


def _slot_failed(state: Placing, event: SlotFailed, out: Out) -> None:
    """Note that a slot is gone; its gang is broken when the instant is over."""
    slot = _slot(state, event.slot)
    if slot.up:
        _fail(state, event.slot, event.reason, out)
        _gone(state, slot, out)


def _slot_taken(state: Placing, event: SlotTaken, out: Out) -> None:
    """Note that a slot is another placement's: that is no failure."""
    slot = _slot(state, event.slot)
    if slot.up:
        _break(state, slot, f"{event.by} has taken slot {event.slot}")
        _gone(state, slot, out)


def _gone(state: Placing, slot: Slot, out: Out) -> None:
    slot.up = False
    slot.up_s += state.t - slot.added_t
    state.wake(out)


def _break(state: Placing, slot: Slot, reason: str) -> Job | None:
    """Note that the gang of a slot, if it has one, has lost it; return its job."""
    job = state.jobs.get(slot.job)
    if job is not None:
        job.broken, job.lost = job.broken or reason, True
    return job


def _fail(state: Placing, name: str, reason: str, out: Out) -> None:
    """Count a failure of a slot, unless its process was ended on purpose."""
    slot = state.slots[name]
    job = _break(state, slot, f"slot {name} failed: {reason}")
    if job is not None and job.killed:
        return
    slot.failed_t = [*slot.failed_t, state.t]
    if state.hold_s:
        slot.held = True
        n = n_since(slot.failed_t, state.t - DAY_S)
        out.append(SetDeadline(name=f"{HOLD}:{name}", after_s=hold_s(state.hold_s, n)))
        if n >= _MOST_FAILURES:
            _mask(state, name, f"it failed {n} times in 24 h, the last time: {reason}", out)


def _mask(state: Placing, name: str, reason: str, out: Out) -> None:
    if not state.slots[name].mask:
        state.slots[name].mask = reason
        out.append(SlotMasked(slot=name, reason=reason))


def _setting_changed(state: Placing, event: SettingChanged, out: Out) -> None:
    """Take a slot out of use once its gang is over, or give it back."""
    slot = _slot(state, str(event.value))
    if event.key == "slot.drain":
        _mask(state, str(event.value), "drained by hand", out)
    else:
        slot.mask, slot.failed_t, slot.held = "", [], False
    state.wake(out)


def _slot(state: Placing, name: str) -> Slot:
    if name not in state.slots:
        raise Impossible(f"without a slot {name}")
    return state.slots[name]


# ---------------------------------------------------------------------- jobs
def _submitted(state: Placing, event: JobSubmitted, out: Out) -> None:
    """Queue a job."""
    if event.job in state.jobs:
        raise Impossible(f"with a job {event.job} already")
    state.jobs[event.job] = Job(n_slots=event.n_slots, work_s=event.work_s, left_s=event.work_s)
    state.wake(out)


def _stopped_by_user(state: Placing, event: JobStopped, out: Out) -> None:
    """End a job, once its gang has stopped."""
    if (job := state.jobs.get(event.job)) is not None:
        job.failed = job.failed or event.reason
        job.broken = job.broken or event.reason
        if job.phase == "waiting":
            state.over(event.job, out)
        state.wake(out)


def _of_gang(state: Placing, name: str, version: int) -> Job | None:
    """Return the job of a gang; None if the gang is an old one: what comes of it changes nothing."""
    job = state.jobs.get(name)
    return job if job is not None and job.version == version and job.phase != "waiting" else None


def _started(state: Placing, event: JobStarted, out: Out) -> None:
    """Note members that run."""
    if job := _of_gang(state, event.job, event.gang_version):
        names = list(state.slots)
        job.started |= {names.index(slot) for slot in event.slots} & set(job.slots)


def _saved(state: Placing, event: CheckpointSaved, out: Out) -> None:
    """Count work that is kept, whatever comes."""
    if job := _of_gang(state, event.job, event.gang_version):
        job.kept_s = max(job.kept_s, event.kept_s)


def _member_lost(state: Placing, event: GangMemberLost, out: Out) -> None:
    """Break a gang of which a member raised; the job has failed, unless the loss of another member made it do so."""
    job = _of_gang(state, event.job, event.gang_version)
    if job is not None and not job.broken:
        job.raised = job.broken = event.reason
        out.append(SetDeadline(name=f"{BLAME}:{event.job}", after_s=_BLAME_S))
        state.wake(out)


def _silent(state: Placing, event: GangSilent, out: Out) -> None:
    """Break a gang of which members hang; the slots of those are at fault whose processes do, too.

    Else it may be the job's own doing: its members wait for each other, or for something that never comes.
    """
    job = _of_gang(state, event.job, event.gang_version)
    if job is not None and not job.broken:
        why = f"gave no sign of life for {event.silent_s:g} s"
        for slot in event.stuck:
            _fail(state, slot, f"its member {why}", out)
        job.broken = job.broken or f"members on {', '.join(event.slots)} {why}"
        state.wake(out)


def _finished(state: Placing, event: JobFinished, out: Out) -> None:
    """End a job whose results are here; a gang that was told to stop had lost a member before."""
    job = _of_gang(state, event.job, event.gang_version)
    if job is not None and job.phase == "running":
        _release(state, event.job, job)
        del state.jobs[event.job]
        state.wake(out)


def _gang_stopped(state: Placing, event: GangStopped, out: Out) -> None:
    """Queue the job of a gang that has stopped, with the work that is left; or end it."""
    job = _of_gang(state, event.job, event.gang_version)
    if job is not None and job.phase == "stopping":
        job.kept_s, job.stopped = max(job.kept_s, event.kept_s), True
        if not job.raised:
            _end_gang(state, event.job, job, out)


def _end_gang(state: Placing, name: str, job: Job, out: Out) -> None:
    """Queue a job anew, or end it."""
    job.left_s = max(_LEAST_S, job.left_s - job.kept_s)
    if job.kept_s:
        job.n_in_vain = 0
    elif state.hold_s and job.n_in_vain >= _MOST_IN_VAIN:
        job.failed = job.failed or (
            f"{job.n_in_vain} gangs in a row were lost and kept no work: does the job end its workers itself? "
            f"({job.broken})"
        )
    _release(state, name, job)
    if job.failed:
        state.over(name, out)
    state.wake(out)


def _release(state: Placing, name: str, job: Job) -> None:
    for slot in state.slots.values():
        if slot.job == name:
            slot.job = ""
    job.phase, job.slots, job.started = "waiting", (), set()
    job.broken, job.killed, job.kept_s = "", False, 0.0
    job.raised, job.lost, job.stopped = "", False, False


# ---------------------------------------------------------------------- deadlines
def _deadline_passed(state: Placing, event: DeadlinePassed, out: Out) -> None:
    """End an instant, a hold, a doubt, or the patience with members that do not start or stop."""
    kind, _, name = event.name.partition(":")
    if event.name == INSTANT:
        state.waking = False
        if not _break_gangs(state, out):
            plan(state, out)
    elif kind == HOLD:
        state.slots[name].held = False
        state.wake(out)
    elif (job := state.jobs.get(name)) is None:
        return
    elif kind == START and job.phase == "running":
        _miss(state, job, out)
    elif kind == BLAME and job.raised:
        job.failed = job.failed or ("" if job.lost else job.raised)
        job.raised = ""
        if job.stopped:
            _end_gang(state, name, job, out)
    elif kind == STOP and job.phase == "stopping" and not job.killed:
        job.killed = True
        out.append(StopGang(job=name, gang_version=job.version, kill=True))


def _miss(state: Placing, job: Job, out: Out) -> None:
    """Blame the slots where members of a gang have not started."""
    names = list(state.slots)
    for i in sorted(set(job.slots) - job.started):
        _fail(state, names[i], f"a member did not start there within {START_S:g} s", out)
        state.wake(out)


def _break_gangs(state: Placing, out: Out) -> bool:
    """Stop gangs that cannot go on; return whether there are any: who stops at once is waited for before any plan."""
    broken = {name: job for name, job in state.jobs.items() if job.broken and job.phase == "running"}
    for name, job in broken.items():
        job.phase = "stopping"
        job.n_in_vain += 1
        out.append(GangBroken(job=name, gang_version=job.version, reason=job.broken))
        out.append(StopGang(job=name, gang_version=job.version))
        out.append(SetDeadline(name=f"{STOP}:{name}", after_s=_STOP_S))
    if broken:
        state.wake(out)
    return bool(broken)


#: Event -> its rule.
RULES: Rules[Placing] = {
    SlotAdded: _slot_added,
    SlotFailed: _slot_failed,
    SlotTaken: _slot_taken,
    SettingChanged: _setting_changed,
    JobSubmitted: _submitted,
    JobStopped: _stopped_by_user,
    JobStarted: _started,
    CheckpointSaved: _saved,
    GangMemberLost: _member_lost,
    GangSilent: _silent,
    GangStopped: _gang_stopped,
    JobFinished: _finished,
    DeadlinePassed: _deadline_passed,
}
