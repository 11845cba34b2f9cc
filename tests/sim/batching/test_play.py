"""A gang's splits in lock step with a trace: figures by hand."""

from itertools import pairwise

import pytest

from drlnb.planning.batching import BatchPlan
from drlnb.records.errors import ConfigError
from drlnb.sim.batching.play import CLAIRVOYANT, Gang, play_splits, simulate_batching
from drlnb.sim.batching.traces import MIXED, Contention

STILL = {"noise": 0.0, "n_splits": 10}


def test_a_split_takes_overhead_samples_and_messages():
    """Fifty samples each at 100 a second: .01 + .5 + .02 s."""
    outcome = simulate_batching(Contention(speeds=(100.0, 100.0), **STILL), "equal", Gang(n_units=100))
    assert outcome.split_s == pytest.approx(0.53)
    assert outcome.samples_hz == pytest.approx(100 / 0.53)
    assert outcome.lost_frac == 0.0


def test_who_is_dropped_sits_out_until_it_is_done():
    """34, 33 and 33 samples at 100, 100 and 10 a second, waiting for two.

    The second answer comes at .35 s, the time of the third is over at .4025 s: the split takes .4225 s.  The third is
    done at 3.31 s, and the others need .53 s a split: it is back in the eighth split, and out again to the end.
    """
    trace, gang = Contention(speeds=(100.0, 100.0, 10.0), **STILL), Gang(n_units=100, quorum=2, late="drop")
    outcome = simulate_batching(trace, "equal", gang)
    assert outcome.split_s == pytest.approx((2 * 0.4225 + 8 * 0.53) / 10)
    assert outcome.lost_frac == pytest.approx(2 * 33 / 1000)


def test_who_is_cut_returns_what_it_has_done():
    """The same three: a sixteenth of 3.31 s is two samples of the third member, which has done four at .41 s."""
    trace, gang = Contention(speeds=(100.0, 100.0, 10.0), **STILL), Gang(n_units=100, quorum=2)
    outcome = simulate_batching(trace, "equal", gang)
    assert outcome.split_s == pytest.approx(0.43)
    assert outcome.lost_frac == pytest.approx(0.29)


def test_without_noise_whoever_knows_the_members_is_clairvoyant():
    """A probe tells the speeds, nothing changes: all but `equal` plan the best shares from the first split on."""
    trace = Contention(speeds=MIXED, **STILL)
    best = simulate_batching(trace, CLAIRVOYANT).split_s
    # all done at one instant: .01 + 512 / 1100, with the slowest one's last sample at most
    assert 0.03 + 512 / 1100 <= best <= 0.03 + 512 / 1100 + 1 / 50
    for planner in ("static", "ewma", "jump-reset", "seasonal"):
        assert simulate_batching(trace, planner).split_s == best
    assert simulate_batching(trace, "equal").split_s == pytest.approx(0.03 + 64 / 50)


class Watching:
    """Splits evenly, and looks at what it is shown and told."""

    name = "watching"

    def __init__(self):
        self.rounds, self.speeds = [], []

    def plan(self, view):
        assert view.memory == len(self.rounds)
        self.rounds.append(view.round)
        return BatchPlan(sizes=(view.n_units // 2, view.n_units - view.n_units // 2))

    def observe(self, memory, report):
        self.speeds.append([n / s for n, s in zip(report.n_done, report.compute_s, strict=True)])
        return 0 if memory is None else memory + 1


def test_a_planner_is_told_the_speeds_of_the_trace():
    """First those of the probe, then every split's; an object of one's own is asked like any other."""
    trace = Contention(family="periodic", speeds=(100.0, 50.0), n_splits=20, seed=2)
    planner = Watching()
    assert simulate_batching(trace, planner).planner == "watching"
    assert planner.rounds == list(range(20))
    assert planner.speeds[0] == [100.0, 50.0]
    for told, drawn in zip(planner.speeds[1:], trace.speeds_hz, strict=True):
        assert told == pytest.approx(drawn.tolist())
    assert any(a != b for a, b in pairwise(planner.speeds))


def test_a_quorum_that_cannot_be_is_refused():
    """In one line, before the first split."""
    with pytest.raises(ConfigError, match="a count from 2 to 8, got 9"):
        simulate_batching(Contention(n_splits=10), "equal", Gang(quorum=9))


def test_what_is_left_of_a_slow_share_is_shared_anew():
    """34, 33 and 33 samples at 100, 100 and 10 a second: 29, 7 and 1 are left of the third's, and nothing is lost.

    The first is done at .34 s; at .391 s the third is cut, in its second chunk of two: .41 s.  Of 29 it has done 2 of 9
    at .21 s, of 7 one of 2 at .11 s, and the last one takes .02 s; messages come once: .77 s.
    """
    trace = Contention(speeds=(100.0, 100.0, 10.0), **STILL)
    outcome = simulate_batching(trace, "equal", Gang(n_units=100, steal=True))
    assert (outcome.split_s, outcome.median_s) == pytest.approx((0.77, 0.77))
    assert outcome.lost_frac == 0.0
    assert outcome.samples_hz == pytest.approx(100 / 0.77)
    splits = list(play_splits(trace, "equal", Gang(n_units=100, steal=True)))
    assert [each.goes_on for each in splits] == [False, True, True, True] * 10
    assert [each.step.n_lost for each in splits[:4]] == [29, 7, 1, 0]


@pytest.mark.parametrize("family", ["static", "memoryless", "periodic", "correlated"])
def test_shares_that_are_shared_anew_are_near_the_optimum(family):
    """Bar M7, in small: 1.3 of the optimum under any contention, where jump-reset alone takes up to 2.4."""
    trace = Contention(family=family, n_splits=60, dwell=2.0)
    best = simulate_batching(trace, CLAIRVOYANT).split_s
    outcome = simulate_batching(trace, "jump-reset", Gang(steal=True))
    assert outcome.split_s < 1.3 * best
    assert outcome.lost_frac == 0.0
