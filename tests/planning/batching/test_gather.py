"""Who has answered a split, who is late, and what is used: by hand, and whatever happens."""

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drlnb.planning.batching.gather import CUT_WAIT_S, Gather, Gathering, Part, gathering_problem
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
    assert (gather.deadline_t, gather.first) == (None, ["c"])
    assert answer(gather, "a", 104.0)
    assert (gather.first, gather.targets) == (["c", "a"], ("b", "d"))
    assert gather.deadline_t == pytest.approx(104.6)
    assert begun(1.0).deadline_t is None


def test_2_4_targets_have_until_the_deadline():
    """Mechanism 2-4: at it they are in, after it they are not."""
    for t, is_used in ((105.0, True), (105.01, False)):
        gather = begun(2, deadline_s=1.0, late="drop")
        answer(gather, "a", 103.0), answer(gather, "b", 104.0)
        assert answer(gather, "c", t) is is_used
        gather.deadline_passed(1)
        assert (gather.cause, gather.lost) == ("deadline", {"late": 40} if is_used else {"late": 70})


def test_2_5_targets_must_be_young():
    """Mechanism 2-5: strictly younger than the threshold; the first ones may be of any age."""
    for age_s, is_used in ((1.99, True), (2.0, False)):
        gather = begun(2, deadline_s=1.0)
        answer(gather, "a", 103.0, age_s=99.0), answer(gather, "b", 104.0, age_s=99.0)
        assert answer(gather, "c", 104.5, age_s=age_s) is is_used
        assert gather.lost == ({} if is_used else {"too old": 30})


def test_targets_may_be_of_any_age_while_nobody_knows_how_long_a_split_takes():
    """Twice nothing would refuse them all."""
    gather = Gather(gathering=Gathering(quorum=2, deadline_s=1.0))
    gather.begin(FOUR, predicted_s=0.0, t=100.0)
    answer(gather, "a", 103.0), answer(gather, "b", 104.0)
    assert answer(gather, "c", 104.5, age_s=99.0)


def test_2_10_late_members_are_cut_and_what_they_return_is_used_once():
    """Mechanism 2-10: what comes within the wait for cuts counts as far as it goes; the rest is lost by name."""
    gather = begun(2, deadline_s=1.0)
    answer(gather, "a", 103.0), answer(gather, "b", 104.0)
    assert gather.deadline_passed(1, cut=True) == (), "nobody has been cut"
    assert gather.deadline_passed(1) == ("c", "d")
    assert answer(gather, "c", 105.01, n_done=12)
    assert gather.deadline_passed(1) == (), "the deadline that comes twice cuts nobody twice"
    assert not gather.cause
    gather.deadline_passed(1, cut=True)
    assert (gather.cause, gather.n_used, gather.lost) == ("cut", 42, {"cut": 18, "late": 40})
    assert gather.late == {"d": Part("d", 60, 40)}
    assert not gather.answered(1, "c", 30, 12, 0.5, 106.0), "twice"
    with pytest.raises(ValueError, match="d has not answered its last share"):
        gather.begin(FOUR, 1.0, 107.0)
    gather.begin({"a": 50, "b": 50, "c": 5, "d": 0}, 1.0, 107.0)
    assert not gather.answered(1, "d", 60, 40, 9.0, 108.0), "trap 9: it is free, and no more"
    assert (gather.late, gather.n_used) == ({}, 0)


def test_members_that_stop_for_others_are_waited_for():
    """With `steal` nothing is lost: they stop at a chunk, and the wait for cuts ends nothing."""
    gather = begun(steal=True)
    answer(gather, "a", 103.0)
    assert gather.deadline_passed(1) == ("b", "c", "d")
    assert gather.deadline_passed(1, cut=True) == ()
    assert (gather.cause, set(gather.open)) == ("", {"b", "c", "d"})


def test_the_lead_is_cut_where_others_are_dropped():
    """Nobody else makes the step: it is waited for, as long as for those that are cut."""
    gather = Gather(gathering=Gathering(quorum=2, deadline_s=1.0, late="drop"))
    gather.begin(FOUR, 1.0, 100.0, lead="d")
    answer(gather, "a", 103.0), answer(gather, "b", 104.0)
    assert gather.deadline_passed(1) == ("d",)
    assert not gather.cause
    assert not answer(gather, "c", 105.01), "the others are dropped"
    assert answer(gather, "d", 105.01, n_done=5)
    assert (gather.cause, gather.n_used, gather.lost) == ("all", 35, {"late": 30, "cut": 35})


def test_who_is_late_is_free_once_it_has_answered_that_share():
    """Trap 9: an answer of a share before that comes twice frees nobody."""
    gather = begun(2, deadline_s=0.0, late="drop")
    for split in (1, 2):
        answer(gather, "a", 103.0), answer(gather, "b", 104.0)
        gather.deadline_passed(split)
        assert set(gather.late) == {"c", "d"}
        if split == 1:
            gather.answered(1, "c", 30, 30, 9.0, 105.0)
            gather.answered(1, "d", 60, 40, 9.0, 105.0)
            gather.begin({"a": 1, "b": 1, "c": 1, "d": 1}, 1.0, 106.0)
    gather.answered(1, "d", 60, 40, 9.0, 107.0)
    assert set(gather.late) == {"c", "d"}


def test_who_is_late_for_several_splits_stays_so():
    """Those of both are busy."""
    gather = begun(2, deadline_s=0.0, late="drop")
    answer(gather, "a", 103.0), answer(gather, "b", 104.0)
    gather.deadline_passed(1)
    gather.gathering = Gathering(quorum=0.5, deadline_s=0.0, late="drop")
    gather.begin({"a": 1, "b": 1}, 1.0, 105.0)
    answer(gather, "a", 106.0)
    gather.deadline_passed(2)
    assert set(gather.late) == {"b", "c", "d"}


def test_what_is_void_binds_nobody():
    """The lease is lost: the next split may begin with whoever is there."""
    gather = begun(2, deadline_s=0.0, late="drop")
    answer(gather, "a", 103.0), answer(gather, "b", 104.0)
    gather.deadline_passed(1)
    gather.begin({"a": 1, "b": 1}, 1.0, 105.0)
    gather.void()
    assert (gather.cause, gather.late, gather.n_used) == ("void", {}, 0)
    assert gather.begin(FOUR, 1.0, 106.0)


def test_what_cannot_begin():
    """A defect of the caller."""
    with pytest.raises(ValueError, match="split 1 is open"):
        begun().begin(FOUR, 1.0, 101.0)
    with pytest.raises(ValueError, match="nobody has a share"):
        Gather(gathering=Gathering()).begin({"a": 0}, 1.0, 0.0)


@pytest.mark.parametrize(
    ("gathering", "n", "problem"),
    [
        (Gathering(), 1, ""),
        (Gathering(quorum=0.5), 1, "nobody is waited for"),
        (Gathering(quorum=2, max_age_s=1.0), 3, ""),
        (Gathering(quorum=4), 3, "a count from 2 to 3, got 4"),
        (Gathering(deadline_s=1.0), 3, "deadline_s has no effect while quorum is 1.0"),
        (Gathering(max_age_s=1.0), 3, "max_age_s has no effect"),
        (Gathering(quorum=0.999999), 3, ""),
        (Gathering(steal=True, deadline_s=0.1), 2, ""),
        (Gathering(steal=True), 1, "nobody is waited for"),
        (Gathering(steal=True, quorum=2), 3, "steal leaves nothing out: quorum must be 1.0 beside it"),
        (Gathering(steal=True, late="drop"), 3, "late must be cut beside it"),
    ],
)
def test_what_has_no_effect_is_refused(gathering, n, problem):
    """A count of all members is no 1.0: who joins later is not waited for, so its own deadline may be said."""
    found = gathering_problem(gathering, n)
    assert problem in found
    assert bool(found) == bool(problem)


class Splits(RuleBasedStateMachine):
    """Splits under whatever happens; the books are kept by index."""

    @initialize(
        quorum=st.sampled_from([1.0, 0.75, 0.5, 2, "steal"]),
        late=st.sampled_from(["cut", "drop"]),
        grace_s=st.sampled_from([0.0, 1.0]),
    )
    def start(self, quorum, late, grace_s):
        self.steal = quorum == "steal"
        quorum = 1.0 if self.steal else quorum
        self.gather = Gather(gathering=Gathering(quorum=quorum, late=late, deadline_s=grace_s, steal=self.steal))
        self.t, self.orders, self.quorum, self.used, self.first, self.sharers = 0.0, {}, quorum, [], [], set()

    def tick(self):
        self.t += 0.25
        return self.t

    @property
    def is_open(self):
        return not self.gather.cause

    @precondition(lambda self: not self.is_open and len(self.gather.late) < 4)
    @rule(data=st.data())
    def begin(self, data):
        free = [each for each in "abcd" if each not in self.gather.late]
        sizes = {each: data.draw(st.integers(0, 5)) for each in free}
        sizes[free[0]] += 1
        self.used, self.first, self.n = [], [], sum(sizes.values())
        self.sharers = {each for each, n in sizes.items() if n}
        for part in self.gather.begin(sizes, 1.0, self.tick(), lead="a"):
            assert part.member not in self.orders
            self.orders[part.member] = (self.gather.split, part)

    @property
    def is_reached(self):
        """Whether as many have answered as are needed, by hand."""
        n = len(self.sharers)
        if self.steal:
            return bool(self.first)
        return len(self.first) >= {1.0: n, 0.75: -(-3 * n // 4), 0.5: -(-n // 2), 2: min(2, n)}[self.quorum]

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), age_s=st.sampled_from([0.5, 1.99, 2.0, 9.0]))
    def answer(self, data, age_s):
        member = data.draw(st.sampled_from(sorted(self.orders)))
        split, part = self.orders.pop(member)
        deadline_t, is_late_split = self.gather.deadline_t, split != self.gather.split or not self.is_open
        n_done = part.n // 2 if self.gather.is_cut else part.n
        t = self.tick()
        taken = self.gather.answered(split, member, part.first, n_done, age_s, t)
        wait_s = CUT_WAIT_S if self.gather.gathering.late == "cut" or member == "a" else 0.0
        in_time = deadline_t is None or self.steal or (t <= deadline_t + wait_s and age_s < 2.0)
        assert taken is (in_time and not is_late_split and n_done > 0)
        if taken:
            self.used += range(part.first, part.first + n_done)
        if not is_late_split and deadline_t is None:
            self.first.append(member)
        assert not self.gather.answered(split, member, part.first, n_done, age_s, t), "an answer that comes twice"

    @rule(cut=st.booleans(), stale=st.booleans())
    def deadline(self, cut, stale):
        before = (self.gather.deadline_t, self.gather.cause)
        late = self.gather.deadline_passed(self.gather.split - stale, cut=cut)
        if stale or before[0] is None:
            assert (late, self.gather.cause) == ((), before[1])
        assert set(late) <= set(self.orders)

    @rule()
    def void(self):
        self.gather.void()
        self.orders.clear()
        self.used = []

    @rule()
    def restore(self):
        self.gather = from_plain(Gather, json.loads(json.dumps(to_plain(self.gather))))
        assert self.gather.gathering.quorum == self.quorum
        assert type(self.gather.gathering.quorum) is type(self.quorum)

    @invariant()
    def holds(self):
        if hasattr(self, "gather") and self.gather.split:
            assert [law for ok, law in self.gather.laws() if not ok] == []
            assert len(set(self.used)) == len(self.used) == self.gather.n_used
            if self.gather.cause == "all" and self.gather.gathering.is_whole:
                left = [unit for part in self.gather.left for unit in range(part.first, part.first + part.n)]
                assert sorted(self.used + left) == list(range(self.n))
                assert self.steal or not left
            if self.is_open:
                assert set(self.gather.targets) == self.sharers - set(self.gather.first)
                open_now = {each for each, (split, _) in self.orders.items() if split == self.gather.split}
                assert open_now == set(self.gather.open)
                assert self.gather.first == self.first
                assert (self.gather.deadline_t is not None) is (self.is_reached and (self.quorum != 1.0 or self.steal))


TestSplits = Splits.TestCase
TestSplits.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
