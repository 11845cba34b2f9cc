"""Pictures of splits: every figure is that of the journal, worked by hand."""

import pytest

from drlnb.views.batching import compared, measured
from drlnb.views.batching.compared import Came
from drlnb.views.folds.fold import fold_of
from tests.views.batching import steps
from tests.views.batching.steps import FAST, SLOW, STORY

VIEWS = {
    "shares": measured.shares, "splits": lambda of: measured.shares(of, 12), "sizes": measured.sizes,
    "speeds": measured.speeds, "ledger": measured.ledger,
}  # fmt: skip


@pytest.fixture
def fold():
    return fold_of(steps.journal(STORY))


def bars(view, table="bars"):
    columns = view.columns[table]
    lanes = [view.facts["lanes"][int(i)]["label"] for i in columns["lane"]]
    return list(zip(lanes, columns["start"].tolist(), columns["stop"].tolist(), strict=True))


def test_the_newest_split_is_drawn_with_what_was_planned_and_what_came(fold):
    """Computing ends with the answer, the wait with the split; of a late member as far as it was heard of."""
    view = measured.shares(fold)
    assert bars(view) == [(FAST, 0.25, 1.0), (SLOW, 0.5, 4.0)]
    assert bars(view, "waits") == [(FAST, 1.0, 1.5), (SLOW, 4.0, 4.0)]
    assert view.columns["dots"]["start"].tolist() == [0.75, 1.0]
    assert [(mark["label"], mark["t"]) for mark in view.facts["marks"]] == [("quorum", 1.0), ("deadline", 1.5)]
    assert [row[-1] for row in view.rows()] == ["used", "late"]
    assert view.sentence == (
        "a: split 3 among learners by jump-reset: A 60, B 40 samples, 1.5 s (1.0 s planned), 60 not used so far"
    )


def test_a_member_that_is_slowed_down_is_said_with_every_number_of_its():
    """In the sentence, in its row, between two splits where it was asked for; and the picture is called emulated."""
    slow = [steps.slowed(0.0, SLOW, 4.0, 2), steps.planned(1, 50, 50), steps.ordered(1, SLOW, 4.0)]
    done = [steps.share(1.0, 1, FAST, 50), steps.share(2.0, 1, SLOW, 50), steps.closed(1, 100, 2.0)]
    view = measured.shares(fold_of(steps.journal([*slow, *done])))
    assert view.sentence.endswith("A 50, B 50 samples, 2.0 s, all used, emulated slow: B x4")
    assert [(row[1], row[-2]) for row in view.rows()] == [(FAST, 1.0), (SLOW, 4.0)]
    assert view.origin == "emulated"
    (mark,) = measured.speeds(fold_of(steps.journal([*slow, *done]))).facts["marks"]
    assert (mark["t"], mark["label"]) == (0.5, f"{SLOW} x4 for 2 rounds, emulated")


@pytest.mark.parametrize(("streams", "unit"), [(True, "shares"), (False, "samples")])
def test_what_learners_of_a_round_share_is_said(streams, unit):
    """Whole shares of collectors where gradients are computed at arrival; samples where minibatches are shared."""
    done = [steps.gradient(1.0, i, slot, round=1) for i, slot in enumerate((FAST, SLOW))]
    parts = [steps.finish(FAST, SLOW), steps.made(1.0, 0.5, 1.0), steps.joined(1.0, SLOW, 0.5, 1.0)]
    journal = steps.journal([steps.planned(0, 1, 1), *(done if streams else parts)], streams=streams)
    assert measured.shares(fold_of(journal)).sentence.endswith(f": A 1, B 1 {unit}, 1.0 s, all used")


def test_splits_stand_one_after_the_other(fold):
    """Each where it began: at 0, 2 and 3.5 s; cut and late shares are hatched."""
    view = measured.shares(fold, 12)
    assert bars(view) == [
        (FAST, 0.0, 1.0), (SLOW, 0.5, 2.0), (FAST, 2.25, 3.0), (SLOW, 2.25, 3.5), (FAST, 3.75, 4.5), (SLOW, 4.0, 7.5)
    ]  # fmt: skip
    hatched = [view.facts["series"][int(i)]["hatch"] for i in view.columns["bars"]["series"]]
    assert hatched == ["", "", "", "x", "", "x"]


def test_another_attempt_is_not_drawn_on_the_clock_of_this_one():
    """Its seconds begin anew; its sizes and its samples count."""
    again = [steps.planned(1, 100, members=(FAST,)), steps.share(9.0, 1, FAST, 100), steps.closed(1, 100, 9.0)]
    fold = fold_of(steps.journal((*STORY, steps.COMMITTED), again))
    assert bars(measured.shares(fold, 12)) == [(FAST, 8.0, 9.0)]
    assert measured.ledger(fold).rows()[0] == ["used", 340, 85.0, 4]
    assert len(measured.sizes(fold).columns["points"]["x"]) == 8


def test_sizes_are_steps_whose_sum_is_the_batch(fold):
    """A line per member; at each split they add up to 100."""
    points = measured.sizes(fold).columns["points"]
    assert [points["y"][points["x"] == split].sum() for split in (1, 2, 3)] == [100, 100, 100]
    assert points["y"][points["line"] == 1].tolist() == [20, 40, 40]


def test_speeds_stand_beside_each_members_median(fold):
    """The slow one made 13.3, 16 and 11.4 samples a second; its median is 13.3."""
    rows = [row for row in measured.speeds(fold).rows() if row[0] == SLOW]
    assert [(row[1], row[2], round(row[3], 3)) for row in rows] == [
        (1, "as usual", 1.0), (2, "faster", 1.2), (3, "as usual", 0.857)
    ]  # fmt: skip


def test_what_was_not_used_is_counted_by_its_reason_and_red_above_a_hundredth(fold):
    """60 of 300 samples in the ledger, and beside every picture."""
    rows = [[round(v, 3) if isinstance(v, float) else v for v in row] for row in measured.ledger(fold).rows()]
    assert rows == [["used", 240, 80.0, 3], ["cut", 20, 6.667, 1], ["late", 40, 13.333, 1]]
    for draw in VIEWS.values():
        view = draw(fold)
        assert (view.value("lost"), view.value("lost_frac")) == (60, pytest.approx(0.2))
        assert view.header["bad"] == ["lost", "lost_frac"]


@pytest.mark.parametrize(("n_lost", "bad"), [(1, []), (2, ["lost", "lost_frac"])])
def test_one_in_a_hundred_is_not_red_yet(n_lost, bad):
    """It is, above."""
    records = [steps.planned(1, 50, 50), steps.closed(1, 100 - n_lost, 1.0, "cut", cut=n_lost)]
    assert measured.ledger(fold_of(steps.journal(records))).header["bad"] == bad


def test_a_member_has_one_look_in_every_picture(fold):
    """Colour and letter, by the order in which members came."""
    looks = [(each["name"], each["colour"]) for each in measured.sizes(fold).facts["series"]]
    for name in ("shares", "splits"):
        series = VIEWS[name](fold).facts["series"]
        assert [(each["name"], each["colour"]) for each in series[:2]] == looks


@pytest.mark.parametrize("name", VIEWS)
def test_one_member_has_nothing_to_split_and_a_run_that_begins_says_so(name):
    """In words, in each picture."""
    alone = [steps.planned(1, 100, members=(FAST,)), steps.share(1.0, 1, FAST, 100), steps.closed(1, 100, 1.0)]
    assert VIEWS[name](fold_of(steps.journal(alone))).sentence == "a: nothing to split: one member takes all"
    assert VIEWS[name](fold_of(steps.journal([]))).sentence == "a: no split is over yet"
    empty = VIEWS[name](fold_of(steps.journal()))
    assert empty.sentence == "nothing is split yet: no task has begun"
    assert empty.svg()
    assert empty.figure()


@pytest.mark.parametrize("name", VIEWS)
def test_every_picture_has_every_form(fold, name):
    """Payload, plotly figure, SVG and rows."""
    view = VIEWS[name](fold)
    assert view.payload()
    assert view.svg()
    assert view.figure()
    assert view.rows()


def test_collectors_are_shown_where_learners_share_nothing():
    """Their units are steps."""
    records = [
        steps.steps_planned(30, 10), steps.arrived(3.0, 0, 2.5), steps.arrived(4.0, 1, 4.0),
        steps.words.RoundClosed(round=0, n_samples=80),
    ]  # fmt: skip
    view = measured.shares(fold_of(steps.journal(records)))
    assert view.sentence == "a: split 1 among collectors by jump-reset: A 30, B 10 steps, 4.0 s, all used"
    assert bars(view) == [("collector 0", 0.5, 3.0), ("collector 1", 0.0, 4.0)]


def test_planners_stand_beside_the_optimum():
    """The sentence is of the one in force, and names the best that there is."""
    came = [
        Came(planner=name, split_s=s, ratio=s / 0.5, samples_hz=1 / s, lost_frac=lost)
        for name, s, lost in (("equal", 2.0, 0.0), ("jump-reset", 0.6, 0.02), ("clairvoyant", 0.5, 0.0))
    ]
    view = compared.planners(came, "equal")
    assert view.sentence == "equal: 2.0 s a split, 4.00 x the optimum; jump-reset 600 ms, 1.20 x"
    assert view.rows()[1] == ["jump-reset", 0.6, 1.2, 1 / 0.6, 2.0]
