"""Planner `patent`: what its network is fed, and how shares follow from what it says; figures by hand."""

import json
import math

import numpy as np
import pytest

from drlnb.learned.batching import Patent
from drlnb.learned.batching.features import N_FEATURES, features
from drlnb.learned.batching.patent import seen
from drlnb.learned.batching.planner import histories
from drlnb.planning.batching import BATCHING, COLLECT, BatchReport, BatchView, Member

NAMES = ("a", "b")


def report(*speeds_hz, n=100, duration_s=1.0, **gradients):
    shares = (n,) * len(speeds_hz)
    worked = tuple(n / hz if hz else None for hz in speeds_hz)
    return BatchReport(
        round=0,
        members=NAMES,
        sizes=tuple(n if hz else 0 for hz in speeds_hz),
        n_done=shares,
        compute_s=worked,
        elapsed_s=worked,
        duration_s=duration_s,
        **gradients,
    )


def view(memory, n_units=300, speeds_hz=(1.0, 1.0), role="update"):
    members = tuple(Member(id=name, speed_hz=hz) for name, hz in zip(NAMES, speeds_hz, strict=True))
    return BatchView(round=0, role=role, n_units=n_units, members=members, memory=memory)


class Says:
    """A network that says what it was told, and keeps what it was fed."""

    def __init__(self, *performance):
        self.performance_, self.fed = performance, []

    def performance(self, rows):
        self.fed.append(rows)
        return np.array(self.performance_)


def remembered(planner, *reports):
    memory = None
    for each in reports:
        memory = BATCHING.observe(planner, memory, each)
    return memory


def test_2_9_the_first_plan_has_p_1_and_asks_no_network():
    """Speeds of the view are in proportion to shares; alike: equal ones."""
    planner = Patent(Says())
    assert BATCHING.ask(planner, view(None)).sizes == (150, 150)
    plan = BATCHING.ask(planner, view(None, speeds_hz=(200.0, 100.0)))
    assert (plan.sizes, plan.speeds_hz) == ((200, 100), (200.0, 100.0))


def test_2_7_sizes_are_c_p_by_largest_remainder_and_nothing_else():
    """Long-run speeds of 100 and 50, p of 1 and .7: 100 units as 100 to 35 are 74.07 and 25.93.

    Overheads, gradients and times change nothing.
    """
    planner = Patent(Says(1.0, 0.7))
    for duration_s, norms in ((1.0, ()), (7.0, (9.0, 1.0))):
        told = report(100.0, 50.0, duration_s=duration_s, norms=norms, cosines=(0.9, 0.1), ages_s=(1.0, 2.0))
        plan = BATCHING.ask(planner, view(remembered(planner, told), 100))
        assert plan.speeds_hz == pytest.approx((100.0, 35.0))
        assert plan.sizes == (74, 26)


def test_2_6_the_network_is_fed_gradients_time_and_performance():
    """Norms 3 and 4: their root mean square is 3.5355; ages over the split's 2 s; the split is twice the mean before.

    The newest performance parameter of each member is the first of its row: .5 and 1.
    """
    planner = Patent(network := Says(1.0, 1.0))
    gradients = {"norms": (3.0, 4.0), "cosines": (0.8, 0.6), "ages_s": (1.0, 1.5)}
    memory = remembered(planner, report(100.0, 50.0), report(50.0, 50.0, duration_s=2.0, **gradients))
    BATCHING.ask(planner, view(memory))
    ((a, b),) = network.fed
    assert a[N_FEATURES:] == pytest.approx([math.log(3 / 12.5**0.5), 0.8, 0.5, math.log(2)], abs=1e-4)
    assert b[N_FEATURES:] == pytest.approx([math.log(4 / 12.5**0.5), 0.6, 0.75, math.log(2)], abs=1e-4)
    assert (a[0], b[0]) == pytest.approx((math.log(0.5), 0.0), abs=0.03)
    np.testing.assert_array_equal(network.fed[0][:, :N_FEATURES], features(histories(memory, NAMES)))


def test_a_split_is_longer_than_the_moving_mean_of_those_before():
    """1, 1 and e seconds: 1 longer; then the mean of logarithms is .1, and e again is .9 longer."""
    planner = Patent(Says(1.0, 1.0))
    reports = [report(100.0, 50.0, duration_s=s) for s in (1.0, 1.0, math.e, math.e)]
    assert seen(remembered(planner, *reports[:3]), NAMES)[:, -1] == pytest.approx([1.0, 1.0])
    assert seen(remembered(planner, *reports), NAMES)[:, -1] == pytest.approx([0.9, 0.9])


@pytest.mark.parametrize(
    "gradients",
    [
        {},
        {"norms": (None, None), "cosines": (None, None), "ages_s": (None, None)},
        {"norms": (math.nan, math.inf), "cosines": (0.5, 0.5), "ages_s": (1.0, 1.0)},
        {"norms": (0.0, 1.0), "cosines": (math.nan, math.nan), "ages_s": (1.0, 1.0)},
    ],
    ids=["of reinforcement learning", "not used", "not finite", "zero, and a cosine of nothing"],
)
def test_gradients_that_nobody_measured_are_0(gradients):
    """Whatever a report has: the network is fed numbers, and what is remembered is plain."""
    planner = Patent(Says(1.0, 1.0))
    memory = remembered(planner, report(100.0, 50.0, **gradients))
    assert (seen(memory, NAMES)[:, N_FEATURES:] == 0).all()
    assert json.loads(json.dumps(memory, allow_nan=False)) == memory


def test_norms_at_the_end_of_a_floats_range_are_compared():
    """Their squares would be infinite."""
    planner = Patent(Says(1.0, 1.0))
    told = report(100.0, 50.0, norms=(1e200, 1e200), cosines=(1.0, 1.0), ages_s=(0.5, 0.5))
    assert seen(remembered(planner, told), NAMES)[:, N_FEATURES:-1].tolist() == [[0.0, 1.0, 0.5]] * 2


def test_2_12_who_has_no_share_is_probed_and_comes_back():
    """Long-run speeds of 100 and .1: of 100 units b has none; a split later one, and it is as fast as it was then."""
    planner = Patent(Says(1.0, 1.0))
    memory = remembered(planner, report(100.0, 0.1))
    sizes = []
    for _ in range(4):
        sizes.append(BATCHING.ask(planner, view(memory, 100)).sizes)
        speed_hz = 50.0 if sizes[-1][1] else None
        memory = BATCHING.observe(planner, memory, report(100.0, speed_hz))
    assert sizes[:2] == [(100, 0), (99, 1)]
    assert sizes[2][1] > 15, "as fast as it was when it was probed"


def test_a_member_alone_gets_everything():
    """Nothing to split, whatever is foreseen."""
    alone = Patent(Says(0.3))
    told = BatchReport(
        round=0, members=("a",), sizes=(7,), n_done=(7,), compute_s=(1.0,), elapsed_s=(None,), duration_s=1.0
    )
    memory = BATCHING.observe(alone, None, told)
    one = BatchView(round=0, role="update", n_units=7, members=(Member(id="a", speed_hz=1.0),), memory=memory)
    assert BATCHING.ask(alone, one).sizes == (7,)


def test_collectors_have_a_step_each_at_least():
    """The same planner shares steps of collectors: none is left without."""
    planner = Patent(Says(1.0, 0.3))
    memory = COLLECT.observe(planner, None, report(100.0, 0.1))
    assert COLLECT.ask(planner, view(memory, 100, role="collect")).sizes == (99, 1)


def test_it_has_a_name():
    """Built by name as all others are; it has no parameters, and the shipped network."""
    planner = BATCHING.build("patent")
    assert planner.name == "patent"
    memory = remembered(planner, report(100.0, 50.0))
    assert sum(BATCHING.ask(planner, view(memory)).sizes) == 300
