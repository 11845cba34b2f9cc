"""Rewards of splits that planner `patent` has made, by hand, and what its training draws."""

import math

import numpy as np
import pytest

from benchmarks.batching import episodes, weights
from benchmarks.batching.episodes import REWARDS, Gathered
from drlnb.sim.batching.play import Gang
from drlnb.sim.batching.traces import Contention, Slowed

#: Four members of 100 samples per second, a hundred samples each: 1.01 s, and messages of .02 s.
STILL = {"speeds": (100.0,) * 4, "noise": 0.0, "n_splits": 10}
EVEN = np.ones(4)


def episode(reward, *, planted=(), **gang):
    return Gathered(Contention(**STILL, planted=planted), Gang(n_units=400, **gang), REWARDS[reward])


def test_2_16_objectives_are_time_unused_samples_and_age():
    """As planned: as long as jump-reset, all used, and as old as half the threshold, which is twice the plan's 1.01 s.

    At p of 1, 1, 1 and .25 the shares are 123, 123, 123 and 31: 1.24 + .02 s beside 1.03.  The plan is 1.25 s, since it
    expects 25 samples per second of the last one; the ages are three times 1.24 s and .32 s.
    """
    assert episode("objectives").split(EVEN) == pytest.approx([-0.1 * 0.5] * 4)
    reward = episode("objectives").split(np.array([1.0, 1.0, 1.0, 0.25]))
    age = (3 * 1.24 + 0.32) / 4 / (2 * 1.25)
    assert reward == pytest.approx([-(math.log(1.26 / 1.03) + 0.1 * age)] * 4)


def test_2_16_samples_that_are_not_used_have_a_price():
    """The fourth takes four times as long: three are waited for, and 15 % more; a quarter of the samples is lost.

    The same becomes of jump-reset's split, so its time is no price.
    """
    slow = (Slowed(3, 4.0, 0, 10),)
    reward = episode("objectives", planted=slow, quorum=0.75, late="drop").split(EVEN)
    assert reward == pytest.approx([-(0.25 + 0.1 * 0.5)] * 4)


def test_who_sits_out_has_no_reward():
    """The fourth is done after 4.01 s: for three more splits of jump-reset's length its factor is not asked for."""
    slow = (Slowed(3, 4.0, 0, 10),)
    made = episode("objectives", planted=slow, quorum=0.75, late="drop")
    rewards = [made.split(EVEN) for _ in range(4)]
    assert [bool(np.isnan(row[3])) for row in rewards] == [False, True, True, True]
    assert not np.isnan([row[:3] for row in rewards]).any()


def test_goodput_is_how_much_more_a_split_was_worth():
    """All used in 1.26 s, beside 1.03 s: worth less by the logarithm, whatever the noise."""
    reward = episode("goodput", noise_scale=100.0).split(np.array([1.0, 1.0, 1.0, 0.25]))
    assert reward == pytest.approx([math.log(1.03 / 1.26)] * 4)


def test_goodput_weighs_samples_by_the_noise():
    """The fourth is slow, which is foreseen: 400 samples in 1.27 s, where jump-reset uses 300 in 1.1815 s.

    A noise scale of 100 samples: four fifths of what there is to gain, and three quarters.
    """
    slow = (Slowed(3, 4.0, 0, 10),)
    made = episode("goodput", planted=slow, quorum=0.75, late="drop", noise_scale=100.0)
    reward = made.split(np.array([1.0, 1.0, 1.0, 0.25]))
    assert reward == pytest.approx([math.log(0.8 / 1.27 / (0.75 / 1.1815))] * 4)


def test_each_member_has_its_own_reward_where_speeds_are_foreseen():
    """At p = .25 the fourth was expected ln 4 too low, at .6 each."""
    reward = episode("per member").split(np.array([1.0, 1.0, 1.0, 0.25]))
    assert reward == pytest.approx([0.0, 0.0, 0.0, -0.6 * math.log(4)], abs=1e-3)


def test_training_is_on_quorum_and_drop():
    """Three quarters, the rest dropped; both kinds of episodes draw the same contention."""
    made, plain = (next(weights.episodes(3, reward)) for reward in ("objectives", None))
    assert isinstance(made, Gathered)
    assert (made._gang.quorum, made._gang.late) == (0.75, "drop")
    assert 64 <= made._gang.noise_scale <= 16_384
    assert len(made.seen()) == len(plain.seen())
    assert made.seen().shape[1] == plain.seen().shape[1] + 4
    assert episodes.WEIGHTS == (1.0, 1.0, 0.1)
