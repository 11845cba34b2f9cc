"""Splits that are played say the same in their journal as in their outcome."""

import math

import numpy as np
import pytest

from drlnb.fleet.whatif import batching as whatif
from drlnb.records.columns import batching as words
from drlnb.records.errors import ConfigError
from drlnb.sim.batching.play import simulate_batching
from drlnb.views.folds.fold import fold_of
from tests.views.batching import steps
from tests.views.batching.steps import FAST, SLOW

GANGS = [whatif.Gang(), whatif.Gang(quorum=0.75), whatif.Gang(quorum=6, late="drop", deadline_s=0.01)]


@pytest.mark.parametrize("family", whatif.FAMILIES)
@pytest.mark.parametrize("gang", GANGS, ids=lambda gang: f"{gang.quorum}-{gang.late}")
def test_sums_over_the_journal_are_the_figures_of_the_outcome(family, gang):
    """Seconds, samples that were used, and the share that was not; in every split all samples are counted."""
    trace = whatif.Contention(family=family, n_splits=60)
    outcome = simulate_batching(trace, "jump-reset", gang)
    journal = whatif.play(trace, gang, "jump-reset")
    closed, planned = journal.of(words.SplitClosed), journal.of(words.SplitPlanned)
    assert len(closed) == len(planned) == 60
    assert np.mean([each.duration_s for each in closed]) + gang.comm_s == pytest.approx(outcome.split_s)
    assert 1 - sum(each.n_used for each in closed) / (60 * 512) == pytest.approx(outcome.lost_frac)
    assert all(each.n_used + sum(each.lost.values()) == 512 for each in closed)
    assert all(sum(each.sizes) == 512 for each in planned)
    of = fold_of(journal).batchings["batching"].roles["update"]
    assert (of.n_closed, of.n_used, sum(of.lost.values())) == (60, *_counts(closed))
    assert [each.duration_s for each in of.kept] == [each.duration_s for each in closed]
    whole = gang.quorum == 1.0
    assert (
        all(share.fate == "used" for each in of.kept for share in each.shares.values() if share.n_planned) or not whole
    )
    assert bool(journal.of(words.QuorumReached)) != whole


def _counts(closed):
    return sum(each.n_used for each in closed), sum(sum(each.lost.values()) for each in closed)


def test_a_member_that_is_slowed_down_takes_so_many_times_as_long_in_those_splits():
    """Member 1 makes half as much in splits 10 to 14, counted from 0; the others and other splits are as before."""
    plain = whatif.Contention(n_splits=30)
    lame = whatif.Contention(n_splits=30, planted=(whatif.Slowed(1, 2.0, 10, 5),))
    ratio = plain.speeds_hz / lame.speeds_hz
    assert (ratio[10:15, 1] == 2.0).all()
    ratio[10:15, 1] = 1.0
    assert (ratio == 1.0).all()


def split(n, t, slow_s, fast=50, slow=50):
    return [
        steps.planned(n, fast, slow), steps.share(t + 0.5, n, FAST, fast, compute_s=0.4, elapsed_s=0.5),
        steps.share(t + slow_s, n, SLOW, slow, compute_s=slow_s, elapsed_s=slow_s + 0.1), steps.closed(n, 100, slow_s),
    ]  # fmt: skip


def test_a_recorded_trace_has_the_speeds_that_were_measured():
    """Without each member's first share; who had none in a split has its median there."""
    records = [record for n in range(1, 7) for record in split(n, 10.0 * n, 9.0 if n == 1 else 2.0)]
    records += [steps.planned(7, 100, 0), steps.share(70.5, 7, FAST, 100, compute_s=0.5), steps.closed(7, 100, 0.5)]
    trace, gang = whatif.recorded(fold_of(steps.journal(records)).batchings["a"].roles["update"])
    assert trace.speeds == (125.0, 25.0)
    assert trace.speeds_hz[:, 0].tolist() == [125.0] * 5 + [200.0]
    assert trace.speeds_hz[:, 1].tolist() == [25.0] * 6
    assert trace.split_s == pytest.approx((5 * 2.0 + 0.5) / 6)
    assert (gang.n_units, round(gang.overhead_s, 6)) == (100, 0.1)


def test_what_cannot_be_is_refused_in_one_line():
    """Too little was recorded; so many cannot be waited for; a way of gathering that there is not."""
    with pytest.raises(ConfigError, match="two members and 4 splits must have been measured, there are 0 and 0"):
        whatif.recorded(fold_of(steps.journal(split(1, 0.0, 2.0))).batchings["a"].roles["update"])
    with pytest.raises(ConfigError, match="quorum must be a fraction"):
        whatif.play(whatif.Contention(n_splits=10), whatif.Gang(quorum=9), "equal")
    with pytest.raises(ConfigError, match="late must be one of"):
        whatif.gathered(whatif.Gang(), late="carry")
    assert math.isclose(whatif.gathered(whatif.Gang(), quorum=0.5).quorum, 0.5)


@pytest.mark.parametrize("family", whatif.FAMILIES)
def test_what_is_shared_anew_belongs_to_the_step_that_it_is_left_of(family):
    """Each sample of a step is used once; a recorded trace has as many steps as were made, with their whole seconds."""
    trace, gang = whatif.Contention(family=family, n_splits=60), whatif.Gang(steal=True)
    outcome, journal = simulate_batching(trace, "equal", gang), whatif.play(trace, gang, "equal")
    closed = journal.of(words.SplitClosed)
    assert len(closed) > 60 == len(journal.of(words.GradientsApplied))
    assert sum(each.n_used for each in closed) == 60 * 512
    assert not any(each.lost for each in closed)
    assert sum(each.duration_s for each in closed) / 60 + gang.comm_s == pytest.approx(outcome.split_s)
    again, _ = whatif.recorded(fold_of(journal).batchings["batching"].roles["update"])
    assert len(again.speeds_hz) == 59, "in the first split all members have their first share"
    first = closed[0].duration_s + sum(each.duration_s for each in closed[1 : _ended(closed)])
    assert again.split_s == pytest.approx((sum(each.duration_s for each in closed) - first) / 59, rel=0.05)


def _ended(closed):
    """Return the number of splits that the first step took."""
    return next(i for i, each in enumerate(closed, start=1) if not each.n_moved)
