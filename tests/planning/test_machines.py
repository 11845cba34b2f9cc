"""Every machine of planning shows the same face: one table of rules, time that never runs back, laws, snapshots."""

import json
import math
from dataclasses import dataclass, field, fields

import pytest
from lease_indices import LeaseTable
from pool_words import asked, node_added, requested, slot_added
from round_words import Master

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.distribution.machine import RULES as DISTRIBUTION
from drlnb.planning.leasing import LeasingSettings
from drlnb.planning.leasing.machine import RULES as LEASING
from drlnb.planning.machine import Machine, ignore
from drlnb.planning.placement.jobs.machine import RULES as PLACEMENT
from drlnb.planning.placement.jobs.machine import PlacementMachine
from drlnb.planning.pool import PoolMachine
from drlnb.planning.round.machine import RULES as ROUND
from drlnb.planning.swapping.machine import RULES as SWAPPING
from drlnb.planning.swapping.machine import SwapMachine
from drlnb.planning.warmup.machine import RULES as WARMUP
from drlnb.records import round as words
from drlnb.records.base import Event, from_plain, record_types
from drlnb.records.columns import placement
from drlnb.records.columns.leasing import SlotAdded, SlotFailed
from drlnb.records.common import ClockRelated, DeadlinePassed, LoopLagged
from drlnb.records.errors import InvalidTransition
from tests.planning.swapping.swap_task import Task
from tests.planning.warmup.warmup_words import Starts


@dataclass(slots=True)
class Counting:
    """State of a machine that counts."""

    step: int = field(metadata=TRANSIENT)
    t: float = 0.0
    n: int = 0
    seen: set[str] = field(default_factory=set)
    cached: int = field(default=0, metadata=TRANSIENT)


def count(state, event, out):
    state.n += state.step
    state.cached = state.n
    state.seen.add(event.name)
    out.append(DeadlinePassed(t=event.t, name=f"{state.n}"))


class Counter(Machine[Counting]):
    """A machine with one rule, and a law that a large count breaks."""

    def __init__(self, step=1, other=None):
        super().__init__("counter", Counting(step), {DeadlinePassed: count}, other)

    def laws(self):
        yield self.state.n < 3, "few were counted"
        yield len(self.state.seen) <= self.state.n, "each was counted"


def passed(t, name="x"):
    return DeadlinePassed(t=t, name=name)


def test_a_rule_is_applied_and_its_answer_returned():
    """The state is the rule's, the time the event's."""
    machine = Counter(step=2)
    assert machine.handle(passed(1.5)) == (passed(1.5, "2"),)
    assert (machine.state.n, machine.state.t) == (2, 1.5)


@pytest.mark.parametrize("t", [0.5, -1.0, math.nan, -math.inf])
def test_an_older_event_changes_nothing(t):
    """It is refused with the machine's name and time, and with what came before it."""
    machine = Counter()
    machine.handle(passed(1.0, "first"))
    before = machine.snapshot()
    with pytest.raises(InvalidTransition, match=r"counter in state at t=1 s cannot take DeadlinePassed") as caught:
        machine.handle(passed(t))
    assert machine.snapshot() == before
    assert caught.value.story == (passed(1.0, "first"), passed(1.0, "1"))


def test_an_event_at_the_same_time_is_no_older():
    """Several things may happen at once."""
    machine = Counter()
    machine.handle(passed(1.0))
    machine.handle(passed(1.0))
    assert machine.state.n == 2


def test_an_event_without_a_rule_is_a_defect_unless_it_may_be_ignored():
    """Both are decided when the machine is made; time moves on with what is ignored, too."""
    with pytest.raises(InvalidTransition, match="counter in state without a rule for it cannot take LoopLagged"):
        Counter().handle(LoopLagged(t=1.0, lag_s=1.0))
    tolerant = Counter(other=ignore)
    assert tolerant.handle(LoopLagged(t=1.0, lag_s=1.0)) == ()
    assert (tolerant.state.n, tolerant.state.t) == (0, 1.0)
    with pytest.raises(InvalidTransition):
        tolerant.handle(LoopLagged(t=0.5, lag_s=1.0))


def test_the_story_of_an_error_is_the_latest_ten_records():
    """Events and answers alternate; the message holds one line of each."""
    machine = Counter()
    for i in range(9):
        machine.handle(passed(float(i)))
    with pytest.raises(InvalidTransition) as caught:
        machine.handle(passed(0.0))
    assert len(caught.value.story) == 10
    assert caught.value.story[-1] == passed(8.0, "9")
    assert str(caught.value).count("\n") == 10


def test_every_broken_law_is_named():
    """The others are not."""
    machine = Counter(step=3)
    machine.check()
    machine.handle(passed(0.0))
    with pytest.raises(AssertionError, match=r"^counter: not true: few were counted$"):
        machine.check()
    machine.state.seen |= {"y", "z", "w"}
    with pytest.raises(AssertionError, match=r"^counter: not true: few were counted; each was counted$"):
        machine.check()


def test_what_is_given_at_the_start_outlives_a_restore_and_what_is_derived_does_not():
    """A transient field without a default is the machine's own; one with a default is a cache."""
    machine, other = Counter(step=1), Counter(step=5)
    machine.handle(passed(2.0, "a"))
    other.restore(json.loads(json.dumps(machine.snapshot())))
    assert (other.state.step, other.state.n, other.state.seen, other.state.t) == (5, 1, {"a"}, 2.0)
    assert (machine.state.cached, other.state.cached) == (1, 0)


def test_a_machine_without_laws_is_none():
    """Whoever adds a machine states them."""
    with pytest.raises(NotImplementedError):
        Machine("bare", Counting(1), {}).check()


# ------------------------------------------------------------------ the machines
def a_table():
    table = LeaseTable(LeasingSettings(), epoch=3)
    table.handle(slot_added("n0/a"))
    table.handle(requested("a", t=1.0))
    table.handle(requested("b", t=2.0))
    return table, lambda: LeaseTable(LeasingSettings(), epoch=3)


def a_pool():
    pool = PoolMachine(LeasingSettings(), 3)
    for event in (node_added("n0"), slot_added("n0/a"), asked("a", t=1.0), requested("a", t=2.0)):
        pool.handle(event)
    return pool, lambda: PoolMachine(LeasingSettings(), 3)


def a_round():
    master = Master()
    master.at_version_1()
    return master.machine, lambda: Master().machine


def a_warmup():
    starts = Starts()
    starts.placed(at=1.0)
    starts.send(2.0)
    return starts.machine, lambda: Starts().machine


def a_swapper():
    task = Task()
    task.profiled()
    task.found()
    return task.machine, lambda: SwapMachine(task.config)


def a_placement():
    config = {"planner": "ect", "order": "fifo", "backfill": "reserve", "hold_s": 30.0, "rate_hz": [1e-6, 2e-6]}
    machine = PlacementMachine(config)
    for slot in "xy":
        machine.handle(SlotAdded(t=0.0, slot=slot, node="n", device="cpu", executor_epoch=0))
    machine.handle(placement.JobSubmitted(t=0.0, job="a", n_slots=2, work_s=9.0))
    machine.handle(DeadlinePassed(t=0.0, name="instant"))
    machine.handle(placement.JobStarted(t=1.0, job="a", gang_version=1, slots=("x",)))
    machine.handle(SlotFailed(t=2.0, slot="x", reason="gone"))
    return machine, lambda: PlacementMachine(config)


MACHINES = {
    "placement": a_placement,
    "swapper": a_swapper,
    "lease table": a_table,
    "pool": a_pool,
    "round": a_round,
    "warm-up": a_warmup,
}


@pytest.fixture(params=MACHINES)
def pair(request):
    """Return a machine that has worked, and what makes a fresh one like it."""
    return MACHINES[request.param]()


def test_a_snapshot_is_plain_data_and_gives_the_same_state(pair):
    """Through JSON, and through a journal's header, which makes tuples of lists."""
    machine, fresh = pair
    plain = machine.snapshot()
    text = json.dumps(plain, allow_nan=False)
    for form in (json.loads(text), from_plain(json.loads(text))):
        copy = fresh()
        copy.restore(form)
        assert copy.snapshot() == plain
        copy.check()


def test_a_snapshot_shares_nothing_with_the_state(pair):
    """What happens later does not change what was written."""
    machine, _ = pair
    plain = machine.snapshot()
    text = json.dumps(plain)
    machine.restore(json.loads(text))
    machine.state.t += 1.0
    assert json.dumps(plain) == text


@pytest.mark.parametrize("t", [-1.0, math.nan])
def test_no_machine_goes_back_in_time(pair, t):
    """Not a number is no time either; nothing is changed by what is refused."""
    machine, _ = pair
    kinds = [kind for kind in machine._rules if kind not in {words.TaskOpened}]
    before = machine.snapshot()
    for kind in kinds:
        event = blank(kind, t)
        with pytest.raises(InvalidTransition):
            machine.handle(event)
    assert machine.snapshot() == before
    machine.check()


def blank(kind, t):
    """Return an event of a class with values that nobody reads."""
    return kind(**dict.fromkeys(each.name for each in fields(kind)) | {"t": t})


def test_what_no_table_knows_is_a_defect_but_for_warm_up(pair):
    """Warm-up is given whatever its round was given."""
    machine, _ = pair

    class Unheard(Event):
        """Nobody has a rule for it."""

    event = Unheard(t=machine.state.t + 1.0)
    record_types().pop("Unheard")
    if machine.name.startswith("warm-up"):
        assert machine.handle(event) == ()
    else:
        with pytest.raises(InvalidTransition, match="Unheard"):
            machine.handle(event)


@pytest.mark.parametrize("rules", [LEASING, PLACEMENT, ROUND, SWAPPING, WARMUP])
def test_a_table_holds_a_rule_for_each_of_its_events(rules):
    """Keys are classes of events; each rule says what it does."""
    for kind, rule in rules.items():
        assert issubclass(kind, Event)
        assert rule.__doc__, f"{rule.__name__} does not say what it does"


def test_every_event_has_a_machine():
    """An event that no machine knows could be journalled and never replayed."""
    pool = PoolMachine(LeasingSettings(), 1)._rules
    known = {*LEASING, *PLACEMENT, *ROUND, *WARMUP, *DISTRIBUTION, *SWAPPING, *pool}
    events = {
        kind
        for kind in record_types().values()
        if issubclass(kind, Event) and kind is not Event and kind.__module__.startswith("drlnb.records")
    }
    assert events - known == set()
    assert ClockRelated in ROUND
