"""A pool whose gang of two loses a slot, as its journal says it: small enough to be worked by hand."""

from drlnb.records.columns import leasing
from drlnb.records.columns import placement as words
from drlnb.records.ids import Fence
from tests.views.journals import Run

TASK = "r1/a"


def fence(token):
    """Return a fence of the pool."""
    return Fence(epoch=1, token=token)


def added(t, slot):
    """Return that a slot is there."""
    return leasing.SlotAdded(t=t, slot=slot, node=slot.partition("/")[0], device="cpu", executor_epoch=1)


def planned(version, *slots, task=TASK, expected_s=None, candidates=(), weighed=(), planner="ect"):
    """Return a plan of a task's gang."""
    return words.PlacementPlanned(
        task=task, attempt=1, gang_version=version, planner=planner, slots=slots, allowed=slots, allowed_by="any",
        collector_nodes=(), expected_s=expected_s, candidates=candidates, weighed=weighed,
    )  # fmt: skip


def candidate(rule, expected_s, *slots):
    """Return what was weighed, too."""
    return words.Candidate(rule, slots, expected_s, len({slot.partition("/")[0] for slot in slots}))


def weighed(slot, n_per_100_days, chance=None):
    """Return a slot that a gang has, or could have had."""
    return words.Weighed(slot, n_per_100_days / (100 * 86_400), chance)


def granted(token, *slots, task=TASK):
    """Return a lease that begins."""
    return leasing.LeaseGranted(
        fence=fence(token), request_id=f"{task}-{token}", task=task, attempt=1, round=token, slots=slots, waited_s=0.0
    )


def released(token, held_s, *slots, task=TASK, reason="returned"):
    """Return a lease that ends."""
    return leasing.LeaseReleased(
        fence=fence(token), task=task, slots=slots, held_s=held_s, computed_s=(held_s,) * len(slots), reason=reason
    )


def asked(t, task=TASK):
    """Return that a task's master starts."""
    return words.PlacementAsked(t=t, task=task, attempt=1, node="n0", n_collectors=1, n_learners=2)


def requested(t, token, task=TASK):
    """Return that a task asks for slots."""
    return leasing.SlotRequested(
        t=t, request_id=f"{task}-{token}", task=task, attempt=1, round=token, node="n0", n_slots=2
    )


def returned(t, token, held_s):
    """Return that a holder gives its lease back."""
    return leasing.LeaseReturned(t=t, fence=fence(token), clean=True, computed_s=(held_s, held_s))


def failed(t, slot, reason="executor died"):
    """Return that a slot fails."""
    return leasing.SlotFailed(t=t, slot=slot, reason=reason)


def story(a="n0", b="n1"):
    """Return what is said of four slots of two nodes.

    A gang gets those of `a`, and makes a round of 4 s; 3 s into the next one its second slot fails, and the first one
    of `b` comes instead.
    """
    one, two, other, spare = (f"{node}/cpu{i}" for node in (a, b) for i in (0, 1))
    return (
        *(added(0.0, slot) for slot in (one, two, other, spare)),
        asked(1.0),
        planned(1, one, two, expected_s=1.0, candidates=(candidate("best_fit", 1.0, one, two),)),
        requested(2.0, 1), granted(1, one, two),
        returned(6.0, 1, 4.0), released(1, 4.0, one, two),
        requested(7.0, 2), granted(2, one, two),
        failed(10.0, two),
        released(2, 3.0, one, two, reason="slot failed"),
        planned(
            2, one, other, expected_s=5.0,
            candidates=(candidate("best_fit", 5.0, one, other), candidate("healthiest", 6.0, one, spare)),
            weighed=tuple([weighed(slot, n) for slot, n in ((one, 3), (other, 1), (spare, 2))]),
        ),
        requested(11.0, 3), granted(3, one, other),
    )  # fmt: skip


STORY = story()


def journal(*records, origin="measured"):
    """Return the journal of a pool that says some records."""
    run = Run(origin=origin)
    run.say(run.pool, *records)
    return run.journal()
