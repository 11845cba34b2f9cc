"""Who has answered a split, who is late, and what is used: by hand, and whatever happens."""

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drlnb.planning.batching.gather import CUT_WAIT_S, Gather, Gathering, Part
from drlnb.planning.codec import from_plain, to_plain

FOUR = {"a": 10, "b": 20, "c": 30, "d": 40}


def begun(quorum=1.0, sizes=FOUR, **more):
    gather = Gather(gathering=Gathering(quorum=quorum, **more))
    gather.begin(sizes, predicted_s=1.0, t=100.0)
    return gather


def answer(gather, member, t, *, n_done=None, age_s=0.5):
    part = gather.open[member]
    return gather.answered(gather.split, member, part.first, part.n if n_done is None else n_done, age_s, t)


def test_2_1_shares_are_runs_that_make_the_batch():
    """Mechanism 2-1: each index in one share; who has none gets no order."""
    shares = Gather(gathering=Gathering()).begin({"a": 3, "b": 0, "c": 2}, 1.0, 0.0)
    assert shares == (Part("a", 0, 3), Part("c", 3, 2))


def test_2_3_the_targets_are_those_not_among_the_first():
    """Mechanism 2-3: 2 of 4; the deadline is set with the second answer, not before; never where all are awaited."""
    gather = begun(2)
    assert answer(gather, "c", 102.0)
    assert (gather.deadline_t, gather.targets) == (None, {"a", "b", "d"})
    assert answer(gather, "a", 104.0)
    assert (gather.first, gather.targets) == (["c", "a"], {"b", "d"})
    assert gather.deadline_t == pytest.approx(104.6)
    assert begun(1.0).deadline_t is None


def test_2_4_targets_have_until_the_deadline():
    """Mechanism 2-4: at it they are in, after it they are not."""
    for t, is_used in ((105.0, True), (105.01, False)):
        gather = begun(2, deadline_s=1.0, late="drop")
        answer(gather, "a", 103.0), answer(gather, "b", 104.0)
        assert gather.deadline_passed(1, 104.9) == ()
        assert not gather.cause
        assert answer(gather, "c", t) is is_used
        gather.deadline_passed(1, 105.02)
        assert (gather.cause, gather.lost) == ("deadline", {"late": 40} if is_used else {"late": 70})


def test_2_5_targets_must_be_young():
    """Mechanism 2-5: strictly younger than the threshold; the first ones may be of any age."""
    for age_s, is_used in ((1.99, True), (2.0, False)):
        gather = begun(2, deadline_s=1.0)
        answer(gather, "a", 103.0, age_s=99.0), answer(gather, "b", 104.0, age_s=99.0)
        assert answer(gather, "c", 104.5, age_s=age_s) is is_used
        assert gather.lost == ({} if is_used else {"too old": 30})


def test_2_10_late_members_are_cut_and_what_they_return_is_used_once():
    """Mechanism 2-10: what comes within the wait for cuts counts as far as it goes; the rest is lost by name."""
    gather = begun(2, deadline_s=1.0)
    answer(gather, "a", 103.0), answer(gather, "b", 104.0)
    assert gather.deadline_passed(1, 105.0) == ("c", "d")
    assert answer(gather, "c", 105.01, n_done=12)
    assert gather.deadline_passed(1, 105.01) == (), "the deadline that comes twice cuts nobody twice"
    assert not gather.cause
    gather.deadline_passed(1, 105.0 + CUT_WAIT_S)
    assert (gather.cause, gather.n_used, gather.lost) == ("cut", 42, {"cut": 18, "late": 40})
    assert gather.late == {"d": Part("d", 60, 40)}
    assert not gather.answered(1, "c", 30, 12, 0.5, 106.0), "twice"
    with pytest.raises(ValueError, match="d has not answered its last share"):
        gather.begin(FOUR, 1.0, 107.0)
    gather.begin({"a": 50, "b": 50, "c": 5, "d": 0}, 1.0, 107.0)
    assert not gather.answered(1, "d", 60, 40, 9.0, 108.0), "trap 9: it is free, and no more"
    assert (gather.late, gather.n_used) == ({}, 0)


def test_2_11_a_lost_members_units_are_computed_by_others():
    """Mechanism 2-11: each index is used exactly once; what others have answered is kept, the lost are not awaited."""
    gather = begun(1.0)
    answer(gather, "b", 101.0)
    gather.member_lost("c", 101.5)
    gather.member_lost("b", 101.6)
    assert (gather.left, gather.n_used) == ([Part("c", 30, 30)], 20)
    assert gather.hand_on("a") is None, "it is busy"
    answer(gather, "a", 102.0)
    assert gather.hand_on("a") == Part("a", 30, 30)
    answer(gather, "d", 103.0)
    assert not gather.cause
    answer(gather, "a", 104.0, n_done=10)
    assert gather.hand_on("e") == Part("e", 40, 20), "what was not done is left, too; who joined may take it"
    answer(gather, "e", 105.0)
    assert (gather.cause, gather.n_used, gather.lost) == ("all", 100, {})


def test_a_loss_lowers_the_number_that_is_needed():
    """Trap 11: 2 of 4, then 1 of 2: the one that has answered is enough, and its loss takes nothing back."""
    gather = begun(0.5)
    answer(gather, "a", 101.0)
    gather.member_lost("b", 101.5)
    assert gather.deadline_t is None
    gather.member_lost("c", 102.0)
    assert (gather.first, gather.deadline_t) == (["a"], pytest.approx(102.3))
    gather.member_lost("a", 102.1)
    assert (gather.first, gather.n_used, gather.cause) == (["a"], 10, "")
    answer(gather, "d", 102.2)
    assert (gather.first, gather.n_used, gather.cause) == (["a"], 50, "all")


def test_who_is_late_is_free_once_it_has_answered_that_share_or_is_lost():
    """Trap 9: an answer of a share before that comes twice frees nobody."""
    gather = begun(2, deadline_s=0.0, late="drop")
    for split in (1, 2):
        answer(gather, "a", 103.0), answer(gather, "b", 104.0)
        gather.deadline_passed(split, 104.0)
        assert set(gather.late) == {"c", "d"}
        if split == 1:
            gather.answered(1, "c", 30, 30, 9.0, 105.0)
            gather.answered(1, "d", 60, 40, 9.0, 105.0)
            gather.begin({"a": 1, "b": 1, "c": 1, "d": 1}, 1.0, 106.0)
    gather.answered(1, "d", 60, 40, 9.0, 107.0)
    assert set(gather.late) == {"c", "d"}
    gather.member_lost("c", 108.0)
    gather.answered(2, "d", 3, 1, 9.0, 109.0)
    assert gather.late == {}


def test_who_is_late_for_several_splits_stays_so():
    """Those of both are busy."""
    gather = begun(2, deadline_s=0.0, late="drop")
    answer(gather, "a", 103.0), answer(gather, "b", 104.0)
    gather.deadline_passed(1, 104.0)
    gather.gathering = Gathering(quorum=0.5, deadline_s=0.0, late="drop")
    gather.begin({"a": 1, "b": 1}, 1.0, 105.0)
    answer(gather, "a", 106.0)
    gather.deadline_passed(2, 106.0)
    assert set(gather.late) == {"b", "c", "d"}


def test_units_are_not_handed_to_who_still_computes_for_another_split():
    """It would have two shares at once."""
    gather = begun(1.0)
    gather.nobody_left(101.0)
    assert set(gather.late) == set("abcd")
    gather.begin({"e": 5, "f": 5}, 1.0, 102.0)
    gather.member_lost("e", 103.0)
    assert gather.hand_on("d") is None
    assert answer(gather, "f", 104.0)
    assert gather.hand_on("f") == Part("f", 0, 5)
    assert (gather.first, gather.targets) == ([], {"f"}), "it is waited for once more"


def test_a_loss_may_make_up_the_number():
    """3 of 4 are needed, then 3 of 3 (75 % of 3 is rounded up), then 2 of 2: trap 11, nothing hangs."""
    gather = begun(0.75)
    answer(gather, "a", 101.0)
    gather.member_lost("b", 101.1)
    answer(gather, "c", 102.0)
    assert not gather.cause
    gather.member_lost("d", 103.0)
    assert (gather.cause, gather.n_used, gather.lost) == ("all", 40, {"member lost": 60})


def test_the_last_one_is_lost():
    """The split is given up, whatever had been answered: it is planned anew."""
    gather = begun(1.0)
    answer(gather, "a", 101.0)
    for member in "bcd":
        gather.member_lost(member, 102.0)
    gather.nobody_left(103.0)
    assert (gather.cause, gather.n_used, gather.lost) == ("nobody", 0, {"nobody left": 100})
    gather.nobody_left(104.0)
    gather.member_lost("a", 104.0)
    assert gather.hand_on("a") is None
    assert gather.begin(FOUR, 1.0, 105.0)


def test_what_cannot_begin():
    """A defect of the caller."""
    with pytest.raises(ValueError, match="split 1 is open"):
        begun().begin(FOUR, 1.0, 101.0)
    with pytest.raises(ValueError, match="nobody has a share"):
        Gather(gathering=Gathering()).begin({"a": 0}, 1.0, 0.0)


class Splits(RuleBasedStateMachine):
    """Splits under whatever happens; the books are kept by index."""

    @initialize(
        quorum=st.sampled_from([1.0, 0.75, 0.5, 2]),
        late=st.sampled_from(["cut", "drop"]),
        grace_s=st.sampled_from([0.0, 1.0]),
    )
    def start(self, quorum, late, grace_s):
        self.gather = Gather(gathering=Gathering(quorum=quorum, late=late, deadline_s=grace_s))
        self.t, self.live, self.n_new, self.orders = 0.0, ["a", "b", "c"], 0, {}
        self.quorum, self.used, self.sharers, self.first, self.is_reached = quorum, [], set(), [], False

    def tick(self):
        self.t += 0.25
        return self.t

    @property
    def is_open(self):
        return not self.gather.cause

    @precondition(lambda self: not self.is_open and any(each not in self.gather.late for each in self.live))
    @rule(data=st.data())
    def begin(self, data):
        free = [each for each in self.live if each not in self.gather.late]
        sizes = {each: data.draw(st.integers(0, 5)) for each in free}
        sizes[free[0]] += 1
        self.used, self.first, self.is_reached, self.n = [], [], False, sum(sizes.values())
        self.sharers = {each for each, n in sizes.items() if n}
        for part in self.gather.begin(sizes, 1.0, self.tick()):
            assert part.member not in self.orders
            self.orders[part.member] = (self.gather.split, part)

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), age_s=st.sampled_from([0.5, 1.99, 2.0, 9.0]), is_cut=st.booleans())
    def answer(self, data, age_s, is_cut):
        member = data.draw(st.sampled_from(sorted(self.orders)))
        split, part = self.orders.pop(member)
        deadline_t, is_late_split = self.gather.deadline_t, split != self.gather.split or not self.is_open
        n_done = part.n // 2 if is_cut else part.n
        t = self.tick()
        taken = self.gather.answered(split, member, part.first, n_done, age_s, t)
        wait_s = CUT_WAIT_S if self.gather.gathering.late == "cut" else 0.0
        in_time = deadline_t is None or (t <= deadline_t + wait_s and age_s < 2.0)
        assert taken is (in_time and not is_late_split)
        if taken:
            self.used += range(part.first, part.first + n_done)
            if not self.is_reached:
                self.first.append(member)
            self.count()
        assert not self.gather.answered(split, member, part.first, n_done, age_s, t), "an answer that comes twice"

    @precondition(lambda self: len(self.live) > 1)
    @rule(data=st.data())
    def lose(self, data):
        member = data.draw(st.sampled_from(self.live))
        self.live.remove(member)
        self.orders.pop(member, None)
        self.gather.member_lost(member, self.tick())
        if member not in self.first:
            self.sharers.discard(member)
        self.count()

    def count(self):
        """Note whether as many have answered as are needed, by hand."""
        n = len(self.sharers)
        needed = {1.0: n, 0.75: -(-3 * n // 4), 0.5: -(-n // 2), 2: min(2, n)}[self.quorum]
        self.is_reached = self.is_reached or 0 < needed <= len(self.first)

    @rule()
    def join(self):
        self.n_new += 1
        self.live.append(f"n{self.n_new}")

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def hand_on(self, data):
        member = data.draw(st.sampled_from(self.live))
        part = self.gather.hand_on(member)
        if part:
            assert member not in self.orders
            self.orders[member] = (self.gather.split, part)

    @rule(late_s=st.sampled_from([-1.0, 0.0, 0.02, 1.0]), stale=st.booleans())
    def deadline(self, late_s, stale):
        deadline_t, before = self.gather.deadline_t, self.gather.cause
        if deadline_t is not None:
            self.t = max(self.t, deadline_t + late_s)
        cut = self.gather.deadline_passed(self.gather.split - stale, self.t)
        if stale or deadline_t is None or self.t < deadline_t:
            assert (cut, self.gather.cause) == ((), before)
        assert set(cut) <= set(self.orders)

    @precondition(lambda self: not self.live or (self.is_open and not self.gather.open))
    @rule()
    def give_up(self):
        self.gather.nobody_left(self.tick())
        self.used = []

    @rule()
    def restore(self):
        plain = json.loads(json.dumps(to_plain(self.gather)))
        again = from_plain(Gather, plain, gathering=self.gather.gathering)
        assert to_plain(again) == to_plain(self.gather)
        self.gather = again

    @invariant()
    def holds(self):
        if hasattr(self, "gather") and self.gather.split:
            assert [law for ok, law in self.gather.laws() if not ok] == []
            assert len(set(self.used)) == len(self.used)
            assert self.gather.cause == "nobody" or self.gather.n_used == len(self.used)
            if self.gather.cause == "all" and self.gather.is_whole:
                assert sorted(self.used) == list(range(self.n))
            if self.is_open:
                assert self.gather.targets == set(self.gather.shared) - set(self.gather.first)
                open_now = {each for each, (split, _) in self.orders.items() if split == self.gather.split}
                assert open_now == set(self.gather.open)
                if self.quorum != 1.0:
                    assert self.gather.first == self.first
                    assert (self.gather.deadline_t is not None) is self.is_reached


TestSplits = Splits.TestCase
TestSplits.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
