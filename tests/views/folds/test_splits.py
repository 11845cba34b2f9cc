"""Splits are folded from the records of a task: counted by hand."""

import math
from dataclasses import replace

import pytest

from drlnb.records.ids import Fence
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold, fold_of
from tests.views.batching import steps
from tests.views.batching.steps import FAST, SLOW, STORY

REQUEST = steps.rounds.RequestSlot(request_id="a", round=1, n_slots=2, n_least=1, yields=False)


def splits(*attempts, role="update"):
    return fold_of(steps.journal(*attempts)).batchings["a"].roles[role]


def known(split):
    return [(each.member, each.n_planned, each.n_done, each.fate, each.finish_s) for each in split.shares.values()]


def test_a_step_has_its_shares_with_what_was_planned_and_what_came():
    """Times count from the split's plan; the last member's share of the third step came after it was closed."""
    first, cut, late = splits(STORY).kept
    assert known(first) == [(FAST, 80, 80, "used", 1.0), (SLOW, 20, 20, "used", 2.0)]
    assert known(cut) == [(FAST, 60, 60, "used", 1.0), (SLOW, 40, 20, "cut", 1.5)]
    assert known(late) == [(FAST, 60, 60, "used", 1.0), (SLOW, 40, 40, "late", 4.0)]
    assert [each.planned_s for each in late.shares.values()] == [0.75, 1.0]
    assert [round(each.shares[SLOW].hz, 6) for each in (first, cut, late)] == [13.333333, 16.0, 11.428571]
    assert [(each.duration_s, each.wait_s, each.cause, each.predicted_s) for each in (first, cut, late)] == [
        (2.0, 0.5, "all", 1.5), (1.5, 0.25, "cut", 1.0), (1.5, 0.5, "deadline", 1.0)
    ]  # fmt: skip
    assert math.isnan(first.quorum_s)
    assert [(each.quorum_s, each.grace_s) for each in (cut, late)] == [(1.0, 0.5), (1.0, 0.5)]


def test_every_sample_is_used_or_counted_by_its_reason():
    """Of 300 samples 240 were used, 20 cut off and 40 late."""
    of = splits(STORY)
    assert (of.n_used, of.lost, of.n_losing) == (240, {"cut": 20, "late": 40}, {"cut": 1, "late": 1})
    assert of.lost_frac == pytest.approx(0.2)
    assert of.n_used + sum(of.lost.values()) == sum(split.n_planned for split in of.kept)


def test_a_gradient_that_came_in_time_and_was_not_applied_is_said():
    """Too old: it lies at the lead under its key, and the step is made without it."""
    of = splits([
        steps.planned(1, 50, 50),
        steps.share(1.0, 1, FAST, 50),
        steps.share(2.0, 1, SLOW, 50),
        steps.closed(1, 50, 2.0, "deadline", **{"too old": 50}),
        *steps.applied(2.0, 1, f"1-{FAST}"),
    ])  # fmt: skip
    assert [each[3] for each in known(of.kept[0])] == ["used", "not used"]
    assert of.lost == {"too old": 50}


@pytest.mark.parametrize(("number", "n_used"), [(1, 0), (0, 1)])
def test_a_lease_that_ends_leaves_its_split_unfinished(number, n_used):
    """A step is computed anew as a whole; of a round's gradient the parts that are there are kept. Nothing is lost."""
    part = steps.share(1.0, 1, FAST, 1) if number else steps.gradient(1.0, 0, FAST, round=1)
    of = splits([steps.planned(number, 1, 1), part, steps.planned(number and 2, 1, 0)])
    assert [(each.cause, each.n_used) for each in of.kept] == [("lease ended", n_used), ("", 0)]
    assert math.isnan(of.kept[0].duration_s)
    assert of.lost == {}


@pytest.mark.parametrize("number", [0, 1])
def test_a_member_that_is_given_nothing_has_no_share_that_is_open(number):
    """An open one is of a lease that ended."""
    part = [steps.share(1.0, 1, FAST, 3), steps.closed(1, 3, 1.0)] if number else []
    of = splits([steps.planned(number, 3, 0), *part, *[steps.gradient(1.0, i, FAST, round=1) for i in range(3)]])
    assert [(each[1], each[3]) for each in known(of.kept[0])] == [(3, "used"), (0, "none")]
    assert (of.kept[0].cause, of.n_used) == ("all", 3)


def test_steps_of_a_round_that_is_lost_are_not_used():
    """Of two rounds of 100 + 100 + 100 samples the first is committed; the other is lost in its third step."""
    end = steps.rounds.EndTask(state="failed", reason="no")
    for last, attempts in (([REQUEST, steps.finish()], []), ([end], []), ([], [[]])):
        of = splits([*STORY, steps.COMMITTED, *STORY, *last], *attempts)
        assert (of.n_used, of.lost, of.n_losing) == (240, {"cut": 20, "late": 40}, {"cut": 1, "late": 1})
        assert [(each.cause, each.n_used, each.n_lost) for each in of.kept] == [
            ("all", 100, 0), ("cut", 80, 20), ("deadline", 60, 40), *[("lease ended", 0, 0)] * 3
        ]  # fmt: skip
        assert [known(each)[0][3] for each in of.kept] == ["used"] * 3 + ["not used"] * 3
    of = splits([*STORY, steps.COMMITTED, REQUEST])
    assert (of.n_used, of.n_closed) == (240, 3)
    for answer in ([], steps.went_on(6.0, "")):
        of = splits([*STORY, REQUEST, *answer, steps.planned(4, 50, 50)])
        assert (of.n_used, of.lost) == (0, {}), "from the version again"


def test_steps_that_the_lead_goes_on_from_stay_used():
    """Three are made; the fourth split was closed, its step not made: it is computed anew, and counts once."""
    fourth = [steps.planned(4, 50, 50), steps.share(6.0, 4, FAST, 50), steps.share(6.0, 4, SLOW, 50)]
    story = [*STORY, *fourth, steps.closed(4, 100, 1.0), REQUEST, *steps.went_on(8.0, "k"), steps.planned(5, 50, 50)]
    of = splits(story)
    assert (of.n_used, of.lost) == (240, {"cut": 20, "late": 40})
    assert [each.cause for each in of.kept] == ["all", "cut", "deadline", "lease ended", ""]
    again = [steps.share(9.0, 5, FAST, 50), steps.closed(5, 100, 1.0), *steps.applied(9.5, 5), REQUEST]
    assert splits([*story, *again, *steps.went_on(10.0, "k"), steps.planned(6, 50, 50)]).n_used == 340
    assert splits([*story, *again, steps.planned(6, 50, 50)]).n_used == 0


def test_a_rounds_gradient_is_whole_when_its_last_share_is_there():
    """Three collectors' shares, two of them on the fast slot; others' gradients and a second copy change nothing."""
    of = splits([
        steps.planned(0, 2, 1, speeds=(2.0, 1.0)),
        steps.gradient(0.5, 0, FAST, 0.5, round=1),
        steps.gradient(0.6, 0, "n9/cpu0", 0.5, round=1),
        steps.gradient(0.7, 0, FAST, 0.5, round=7),
        steps.gradient(1.0, 1, FAST, 0.25, round=1),
        steps.gradient(3.0, 2, SLOW, 2.0, round=1),
        steps.gradient(4.0, 2, SLOW, 2.0, round=1),
    ])  # fmt: skip
    (split,) = of.kept
    assert known(split) == [(FAST, 2, 2, "used", 1.0), (SLOW, 1, 1, "used", 3.0)]
    assert (split.cause, split.duration_s, split.n_used, split.wait_s) == ("all", 3.0, 3, 1.0)
    assert split.shares[FAST].compute_s == 0.75


def test_collectors_share_the_steps_of_a_round():
    """Each is done when its experience is there; speeds are steps per second of acting."""
    of = splits(
        [
            steps.steps_planned(30, 10),
            steps.arrived(3.0, 0, 2.5),
            steps.arrived(4.0, 1, 4.0),
            steps.words.RoundClosed(round=0, n_samples=80),
        ],
        role="collect",
    )
    (split,) = of.kept
    assert known(split) == [("0", 30, 30, "used", 3.0), ("1", 10, 10, "used", 4.0)]
    assert [each.hz for each in split.shares.values()] == [12.0, 2.5]
    assert (split.cause, split.n_used, split.duration_s, split.wait_s) == ("all", 40, 4.0, 0.5)


def test_settings_are_those_that_it_began_with_and_then_those_that_were_set():
    """A mark stands behind the splits that had begun."""
    journal = steps.journal([*STORY, steps.changed(8.0, "quorum", 0.5)], batching={"late": "drop"})
    of = fold_of(journal).batchings["a"]
    assert of.settings == {
        "batching.planner": "jump-reset", "batching.collect": "equal", "batching.late": "drop", "batching.quorum": 0.5,
    }  # fmt: skip
    assert of.marks["update"] == [(3, "quorum: 0.5")]


def test_it_is_the_same_in_pieces_and_at_once():
    """Whatever the cutting."""
    entries = list(entries_of(steps.journal(STORY)))
    pieces = Fold()
    for entry in entries:
        pieces.feed([entry])
    assert list(pieces.batchings["a"].roles["update"].kept) == list(splits(STORY).kept)


def test_of_a_long_run_the_newest_splits_are_kept_and_all_are_counted():
    """Two thousand steps of one sample each, each of them lost or used."""
    records = []
    for n in range(1, 2001):
        records += [
            steps.planned(n, 1, 1),
            steps.share(float(n), n, FAST, 1),
            steps.closed(n, 1, 1.0, "deadline", late=1),
        ]
    of = splits(records)
    assert len(of.kept) == 1024
    assert next(iter(of.numbered()))[0] == 977
    assert (of.n_used, of.lost, of.n_begun, of.n_closed) == (2000, {"late": 2000}, 2000, 2000)


@pytest.mark.parametrize("lead_first", [True, False])
def test_minibatches_that_slots_share_are_used_once_all_have_made_the_round(lead_first):
    """The lead has measured 1.5 s of computing, the other one 2 s; a slot without a part is not waited for."""
    parts = [steps.made(3.0, 1.5, 2.75), steps.joined(4.0, SLOW, 2.0, 3.5)]
    of = splits([
        steps.planned(0, 192, 64, 0, members=(FAST, SLOW, "n2/cpu0")),
        steps.finish(FAST, SLOW),
        steps.joined(0.5, SLOW, 2.0, 3.5, round=7),
        *(parts if lead_first else [replace(part, t=7.0 - part.t) for part in parts[::-1]]),
    ])  # fmt: skip
    (split,) = of.kept
    at = {FAST: 3.0, SLOW: 4.0} if lead_first else {FAST: 4.0, SLOW: 3.0}
    assert known(split)[:2] == [(FAST, 192, 192, "used", at[FAST]), (SLOW, 64, 64, "used", at[SLOW])]
    assert [share.hz for share in split.shares.values()][:2] == [128.0, 32.0]
    assert (split.cause, split.duration_s, split.n_used, split.wait_s, of.n_used) == ("all", 4.0, 256, 0.5, 256)


def test_a_round_of_minibatches_whose_lease_ends_is_void():
    """What one member had computed by then is computed anew with the others' parts: its samples are used once."""
    of = splits([
        steps.planned(0, 192, 64),
        steps.finish(FAST, SLOW),
        steps.joined(1.0, SLOW, 2.0, 3.5),
        steps.planned(0, 128, 128),
        steps.finish(FAST, SLOW),
        steps.made(3.0, 1.5, 2.75),
        steps.joined(4.0, SLOW, 2.0, 3.5),
    ])  # fmt: skip
    assert [(each.cause, each.n_used) for each in of.kept] == [("lease ended", 0), ("all", 256)]
    assert of.n_used == 256


def test_a_round_of_minibatches_that_the_lead_makes_alone_is_whole_with_its_parameters():
    """The planner gave the other slot nothing, so nothing was measured apart from the round."""
    (split,) = splits([steps.planned(0, 256, 0), steps.finish(), steps.made(3.0, 0.0, 2.5)]).kept
    assert (split.cause, split.n_used, split.shares[FAST].compute_s) == ("all", 256, 2.5)


def test_a_round_that_one_slot_makes_after_a_lease_was_lost_is_no_shared_one():
    """The other member had answered, the lead had died: whoever makes the round then had no share of that split."""
    other = Fence(epoch=1, token=2)
    of = splits([
        steps.planned(0, 192, 64),
        steps.finish(FAST, SLOW),
        steps.joined(1.0, SLOW, 2.0, 3.5),
        steps.finish(fence=other, slot=SLOW),
        steps.made(3.0, 0.0, 2.5, fence=other),
        steps.planned(0, 128, 128),
    ])  # fmt: skip
    assert [(each.cause, each.n_used) for each in of.kept] == [("lease ended", 0), ("", 0)]


def test_shares_of_a_member_that_is_slowed_down_are_marked():
    """By their orders, whatever the event said; orders of a round that was split before mark nothing of it."""
    records = [steps.slowed(0.5, SLOW, 4.0, 2)]
    for split, factor in ((1, 1.0), (2, 4.0)):
        t = 2.0 * split
        records += [
            steps.planned(split, 50, 50), steps.ordered(split, FAST, 1.0), steps.ordered(split, SLOW, factor),
            steps.share(t, split, FAST, 50), steps.share(t, split, SLOW, 50), steps.closed(split, 100, 1.0),
            steps.ordered(split, FAST, 9.0),
        ]  # fmt: skip
    fold = fold_of(steps.journal(records))
    of = fold.batchings["a"]
    assert [[share.slowed for share in split.shares.values()] for split in of.roles["update"].kept] == [
        [1.0, 1.0],
        [1.0, 4.0],
    ]
    assert of.marks == {"update": [(0, f"{SLOW} x4 for 2 rounds, emulated")], "collect": []}
    assert fold.origin == "emulated", "every picture of the run says so"
    assert fold_of(steps.journal(records[1:])).origin == "measured"


@pytest.mark.parametrize("order", [steps.finish, steps.join, steps.stage])
def test_shares_of_rounds_are_marked_by_what_orders_them(order):
    """Minibatches that are led or joined, and gradients at arrival."""
    records = [steps.planned(0, 1, 1), replace(order(slot=SLOW), slowed=3.0)]
    (split,) = splits(records).kept
    assert [share.slowed for share in split.shares.values()] == [1.0, 3.0]
    other = replace(order(slot=SLOW), slowed=3.0, round=2)
    (split,) = splits([steps.planned(0, 1, 1), other]).kept
    assert [share.slowed for share in split.shares.values()] == [1.0, 1.0]


def test_shares_of_a_collector_that_is_slowed_down_are_marked():
    """Those of the round that it is woken for."""
    records = [steps.slowed(0.5, "1"), steps.steps_planned(10, 10), steps.woken(0, 1.0), steps.woken(1, 2.0)]
    (split,) = splits(records, role="collect").kept
    assert [share.slowed for share in split.shares.values()] == [1.0, 2.0]
    assert fold_of(steps.journal(records)).batchings["a"].marks["collect"] == [(0, "1 x2 for 20 rounds, emulated")]
