"""CPU slots of a node are lent in order: hand-made queues, and laws under any order of events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drlnb.planning.warmup.cpu_slots import CPU_SLOTS, CPU_SLOTS_KEY, CpuSlots, cpu_share


def who(i, task="a"):
    return ("r", task, i)


def claim(slots, i, *, round=1, attempt=1, acts=True, task="a"):
    place = slots.claim(who(i, task), attempt=attempt, round=round, acts=acts)
    slots.check()
    return place


def states(*places):
    return [place.state for place in places]


# ------------------------------------------------------------------ by hand
def test_who_asks_first_is_served_first():
    """One slot, three collectors: in the order of asking, each when the one before it has sent."""
    slots = CpuSlots(1)
    a, b, c = (claim(slots, i) for i in range(3))
    assert (states(a, b, c), slots.n_waiting) == (["acts", "waits", "waits"], 2)
    slots.sent(a)
    assert states(b, c) == ["acts", "waits"]
    slots.sent(b)
    assert c.acts
    assert [place.who for place in slots.take_lent()] == [who(0), who(1), who(2)]
    assert slots.take_lent() == ()


def test_the_same_claim_twice_is_one_place():
    """Named by task, round and collector: a repeat neither doubles a place nor loses it."""
    slots = CpuSlots(1)
    claim(slots, 0)
    place = claim(slots, 1)
    assert claim(slots, 1) is place
    assert slots.n_waiting == 1


def test_a_later_attempt_replaces_what_a_former_one_had():
    """Its slot is free for the next in the queue; what the former attempt still asks is refused."""
    slots = CpuSlots(1)
    former, other = claim(slots, 0), claim(slots, 1)
    present = claim(slots, 0, attempt=2)
    assert states(other, present) == ["acts", "waits"]
    assert claim(slots, 0, attempt=1) is None
    assert not slots.sent(former)
    assert other.acts


def test_an_ended_process_gives_its_slot_back():
    """Lost while it acts, or while it waits."""
    slots = CpuSlots(1)
    a, b, c = (claim(slots, i) for i in range(3))
    slots.leave(who(1))
    slots.leave(who(0))
    assert (c.state, a.holds, b.holds, slots.n_waiting) == ("acts", False, False, 0)
    slots.leave(who(0))


def test_a_task_that_ends_gives_all_of_its_slots_back():
    """Waiting and acting ones; other tasks' stay."""
    slots = CpuSlots(2)
    claim(slots, 0), claim(slots, 1)
    last = claim(slots, 0, task="b")
    assert set(slots.leave_all(lambda who, attempt: who[1] == "a" and attempt < 2)) == {who(0), who(1)}
    assert last.acts
    assert slots.leave_all(lambda who, attempt: attempt < 1) == ()


def test_a_free_slot_is_lent_ahead_of_the_parameters():
    """It is held without acting, until the wake."""
    slots = CpuSlots(1)
    place = claim(slots, 0, acts=False)
    assert place.state == "ahead"
    assert claim(slots, 0).acts


def test_who_can_act_takes_a_slot_that_is_held_ahead():
    """Else it would wait for one that waits for parameters which it must act for itself first: for ever."""
    slots = CpuSlots(2)
    early, later, acting = claim(slots, 0, round=2, acts=False), claim(slots, 1, round=2, acts=False), claim(slots, 2)
    assert states(early, later, acting) == ["ahead", "waits", "acts"]
    another = claim(slots, 3)
    assert states(early, later, another) == ["waits", "waits", "acts"]
    assert claim(slots, 0, round=2).state == "waits"
    assert claim(slots, 4).state == "waits"
    slots.sent(acting)
    assert early.acts, "it is in its old place in the queue, before collector 4"


def test_a_process_that_is_started_holds_its_slot_ahead():
    """Mode respawn: the start uses the slot; from ready to the wake it may be taken."""
    slots = CpuSlots(1)
    started, other = claim(slots, 0, round=2), claim(slots, 1)
    slots.rest(started)
    assert states(started, other) == ["waits", "acts"]
    slots.rest(started)  # it has none any more: nothing
    assert claim(slots, 0, round=2).state == "waits"
    slots.sent(other)
    assert started.acts


def test_a_start_that_is_taken_back_leaves_the_queue():
    """Waiting or ahead; one that acts already goes on."""
    slots = CpuSlots(1)
    acting, waits = claim(slots, 0), claim(slots, 1, acts=False)
    slots.leave_idle(who(0)), slots.leave_idle(who(1)), slots.leave_idle(who(7))
    assert (acting.state, slots.n_waiting) == ("acts", 0)
    assert not waits.holds
    ready = claim(slots, 2)
    slots.leave_idle(who(2))
    assert ready.who in slots.places, "it waits and can act: somebody waits for its experience"
    slots.sent(acting)
    slots.sent(ready)
    assert claim(slots, 3, acts=False).state == "ahead"
    slots.leave_idle(who(3))
    assert slots.n_held == 0


def test_a_claim_ahead_that_comes_too_late_is_none():
    """A message that was overtaken by its round: the slot would be held for nothing."""
    slots = CpuSlots(1)
    slots.sent(claim(slots, 0, round=5))
    assert claim(slots, 0, round=5, acts=False) is None
    assert claim(slots, 0, round=6, acts=False).state == "ahead"
    slots.leave(who(0))
    assert claim(slots, 0, round=5), "a new process may act in the same round again"


# ------------------------------------------------------------------ keep
def test_a_keeper_holds_its_slot_between_rounds():
    """And has it at its next wake without asking anybody; the others share what is left."""
    slots = CpuSlots(2)
    keeper = claim(slots, 0)
    assert slots.sent(keeper, keeps=True)
    a, b = claim(slots, 1), claim(slots, 2)
    assert states(keeper, a, b) == ["kept", "acts", "waits"]
    assert claim(slots, 0, round=2) is keeper
    assert (keeper.acts, keeper.round, b.state) == (True, 2, "waits")
    assert slots.sent(keeper, keeps=True)


def test_the_last_slot_is_not_kept_while_somebody_waits():
    """With one slot every keeper is served as if it were parked."""
    slots = CpuSlots(1)
    first, second = claim(slots, 0), claim(slots, 1)
    assert not slots.sent(first, keeps=True)
    assert slots.sent(second, keeps=True), "nobody waits"
    third = claim(slots, 0, round=2)
    assert (third.acts, second.holds) == (True, False), "all slots were kept: the latest keeper gave way"


def test_the_latest_keeper_gives_way():
    """Two slots, two keepers: the one that came last."""
    slots = CpuSlots(2)
    keepers = [claim(slots, i) for i in range(2)]
    assert all(slots.sent(place, keeps=True) for place in keepers)
    assert claim(slots, 2).acts
    assert states(*keepers) == ["kept", "waits"]
    assert who(1) not in slots.places


def test_a_keeper_that_is_parked_gives_its_slot_back():
    """As one whose start is taken back."""
    slots = CpuSlots(2)
    slots.sent(claim(slots, 0), keeps=True)
    assert claim(slots, 0, acts=False).state == "kept", "it holds one already"
    slots.leave_idle(who(0))
    assert slots.n_held == 0


# ------------------------------------------------------------------ another number of slots
def test_more_slots_are_lent_at_once():
    """The queue moves up."""
    slots = CpuSlots(1)
    _, b, c = (claim(slots, i) for i in range(3))
    slots.resize(2)
    assert states(b, c) == ["acts", "waits"]


def test_fewer_slots_wait_for_who_acts():
    """Idle ones are taken back now, those in use when they have been used."""
    slots = CpuSlots(4)
    acting = [claim(slots, i) for i in range(2)]
    slots.sent(claim(slots, 2), keeps=True)
    claim(slots, 3, round=2, acts=False)
    slots.resize(1)
    slots.check()
    assert (slots.n_slots, slots.n_held) == (1, 2)
    late = claim(slots, 4)
    assert not slots.sent(acting[0], keeps=True)
    assert not late.holds
    slots.sent(acting[1])
    assert late.acts


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "auto", None, 5000])
def test_a_wrong_number_of_slots(n):
    """Whole numbers from 1; the value is told."""
    with pytest.raises(ValueError, match=rf"n_slots must be a whole number in 1\.\.1024, got {n!r}"):
        CpuSlots(n)
    with pytest.raises(ValueError, match="n_slots must be"):
        CpuSlots(1).resize(n)


@pytest.mark.parametrize("value", [0, -3, 2.0, "two", None, False])
def test_a_wrong_setting_is_told(value):
    """In one line with the limit and the value."""
    assert CPU_SLOTS.problem(CPU_SLOTS_KEY, value) == (
        f"agent.collector_slots must be 'auto' or a whole number in 1..1024, got {value!r}"
    )


def test_the_share_of_an_agent():
    """By hand; never below one."""
    assert [cpu_share(*pair) for pair in ((2, 1), (2, 2), (2, 5), (64, 3), (1, 0))] == [2, 1, 1, 21, 1]


def test_a_broken_invariant_is_told():
    """Whatever was put in by hand."""
    slots = CpuSlots(1)
    claim(slots, 0)
    waits = claim(slots, 1)
    slots.places[who(0)].state = "ahead"
    with pytest.raises(AssertionError, match="waits beside a slot that it may have"):
        slots.check()
    waits.state = "acts"
    with pytest.raises(AssertionError, match="2 of 1 slots are held"):
        slots.check()


# ------------------------------------------------------------------ laws
class World(RuleBasedStateMachine):
    """Two tasks of four collectors on one node, in any mode; the queue is kept a second time, as a plain list."""

    @initialize(n=st.integers(1, 5))
    def begin(self, n):
        self.slots = CpuSlots(n)
        self.round = dict.fromkeys([who(i, task) for task in "ab" for i in range(4)], 1)
        #: Who can act and has no slot, in the order of asking; who acts.
        self.queue, self.acting = [], set()
        #: Number of the order of asking: of who asked ahead of its parameters, that of then.
        self.asked = {}
        self.n = 0
        self.cut = False

    def ask(self, one):
        if one not in self.asked:
            self.asked[one] = self.n = self.n + 1

    def hear(self):
        """Take note of who was lent a slot to act."""
        for place in self.slots.take_lent():
            if place.acts and place.who not in self.acting:
                assert place.who == min(self.queue, key=self.asked.__getitem__), "not the first in the queue"
                self.queue.remove(place.who)
                self.acting.add(place.who)

    @rule(data=st.data())
    def ask_ahead(self, data):
        one = data.draw(st.sampled_from(sorted(self.round)))
        if one in self.acting or one in self.queue:
            return
        place = self.slots.claim(one, attempt=1, round=self.round[one], acts=False)
        assert place is not None
        if place.state != "kept":
            self.ask(one)
        self.hear()

    @rule(data=st.data())
    def wake(self, data):
        one = data.draw(st.sampled_from(sorted(self.round)))
        if one in self.acting or one in self.queue:
            return
        self.ask(one)
        self.queue.append(one)
        place = self.slots.claim(one, attempt=1, round=self.round[one])
        if place.acts and one in self.queue:  # it had a slot already, ahead or kept
            self.queue.remove(one)
            self.acting.add(one)
        self.hear()

    @precondition(lambda self: self.acting)
    @rule(data=st.data(), keeps=st.booleans())
    def send(self, data, keeps):
        one = data.draw(st.sampled_from(sorted(self.acting)))
        self.acting.remove(one)
        self.round[one] += 1
        del self.asked[one]
        if self.slots.sent(self.slots.places[one], keeps=keeps):
            assert keeps
        self.hear()

    @precondition(lambda self: self.acting)
    @rule(data=st.data())
    def be_started_early(self, data):
        """Its process is up, and waits for parameters."""
        one = data.draw(st.sampled_from(sorted(self.acting)))
        self.acting.remove(one)
        self.slots.rest(self.slots.places[one])
        self.hear()

    @rule(data=st.data())
    def be_lost(self, data):
        one = data.draw(st.sampled_from(sorted(self.round)))
        self.slots.leave(one)
        self.acting.discard(one)
        self.asked.pop(one, None)
        if one in self.queue:
            self.queue.remove(one)
        self.hear()

    @rule(n=st.integers(1, 5))
    def resize(self, n):
        self.slots.resize(n)
        self.hear()

    @rule()
    def everybody_is_served(self):
        """None is lost and nothing hangs: if those who act send, the queue is empty after as many turns."""
        for _ in range(len(self.queue) + len(self.acting)):
            if self.acting:
                self.send_first()
        assert not self.queue

    def send_first(self):
        one = min(self.acting)
        self.acting.remove(one)
        self.round[one] += 1
        del self.asked[one]
        self.slots.sent(self.slots.places[one], keeps=True)
        self.hear()

    @invariant()
    def slots_are_slots(self):
        if hasattr(self, "slots"):
            self.slots.check()
            acting = {place.who for place in self.slots.places.values() if place.acts}
            assert acting == self.acting
            assert self.slots.n_held <= max(self.slots.n_slots, len(acting)), "never more holders than slots"
            waiting = {place.who for place in self.slots.places.values() if place.can_act and not place.holds}
            assert waiting == set(self.queue), "none is lost"


World.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestWorld = World.TestCase


@given(n_slots=st.integers(1, 3), n=st.integers(1, 8), keeps=st.lists(st.booleans(), min_size=8, max_size=8))
@settings(max_examples=30, deadline=None)
def test_rounds_go_on_however_many_keep(n_slots, n, keeps):
    """A learner that waits for all of its collectors, more of them keepers than slots: each round ends."""
    slots = CpuSlots(n_slots)
    for round_ in range(1, 6):
        places = [claim(slots, i, round=round_) for i in range(n)]
        sent = set()
        while len(sent) < n:
            acting = [place for place in places if place.acts and place.who not in sent]
            assert acting, f"round {round_} hangs with {len(sent)} of {n}"
            for place in acting:
                slots.sent(place, keeps=keeps[place.who[2]])
                slots.check()
                sent.add(place.who)
