"""Planners with weights: what travels with the package, and what they plan by."""

import json
import math
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest

from drlnb.learned.batching import Ddqn
from drlnb.learned.batching.features import N_FEATURES, WINDOW, features
from drlnb.learned.batching.network import ACTIONS, shipped
from drlnb.learned.batching.planner import histories
from drlnb.planning.batching import BATCHING, BatchReport, BatchView, Member
from drlnb.sim.batching.traces import Contention

NAMES = ("a", "b")


def _report(*speeds_hz, n=100):
    shares = (n,) * len(speeds_hz)
    worked = tuple(n / hz if hz else None for hz in speeds_hz)
    return BatchReport(
        round=0, members=NAMES[: len(speeds_hz)], sizes=tuple(n if hz else 0 for hz in speeds_hz), n_done=shares,
        compute_s=worked, elapsed_s=worked, duration_s=1.0,
    )  # fmt: skip


def _view(memory, n_units=300):
    members = tuple(Member(id=name, speed_hz=1.0) for name in NAMES)
    return BatchView(round=0, role="update", n_units=n_units, members=members, memory=memory)


class Knows:
    """A network that foresees half the speed for whoever was slow in the last split."""

    def performance(self, seen):
        return np.where(seen[:, 0] < -0.5, 0.5, 1.0)


def test_shares_follow_the_foreseen_factor_of_the_long_run_speed():
    """Both make 100 a second in the long run; b was slow once: .5 is foreseen, so it gets half of a's share."""
    planner = Ddqn(Knows())
    memory = None
    for speeds in ((100.0, 100.0), (100.0, 30.0)):
        memory = BATCHING.observe(planner, memory, _report(*speeds))
    plan = BATCHING.ask(planner, _view(memory))
    # the long-run speed has followed by a thousandth: 99.93
    assert plan.speeds_hz == pytest.approx((100.0, 0.5 * 99.93))
    assert plan.sizes == (200, 100)


def test_a_history_is_the_logarithm_of_speeds_over_long_run_speeds():
    """Newest last, 64 splits at most, 0 where a member had no share."""
    planner, memory = Ddqn(Knows()), None
    for speeds in ((100.0, 50.0), (30.0, None), (100.0, 50.0)):
        memory = BATCHING.observe(planner, memory, _report(*speeds))
    z = histories(memory, NAMES)
    assert z.shape == (WINDOW, 2)
    assert z[-3:, 0] == pytest.approx([0.0, math.log(0.3), math.log(100 / 99.93)], abs=1e-4)
    assert (z[:, 1] == 0).all()
    for _ in range(100):
        memory = BATCHING.observe(planner, memory, _report(30.0, 50.0))
    assert len(memory["z"]["a"]) == WINDOW
    assert histories(memory, ("b", "stranger", "a")).shape == (WINDOW, 3)
    assert (histories(memory, ("stranger",)) == 0).all()
    assert json.loads(json.dumps(memory)) == memory


def test_nothing_has_been_measured_yet():
    """Members are alike: equal shares."""
    assert BATCHING.ask(Ddqn(), _view(None)).sizes == (150, 150)


def test_a_member_alone_gets_everything():
    """Nothing to split, whatever is foreseen of it."""
    planner = Ddqn()
    memory = BATCHING.observe(planner, None, _report(100.0))
    view = BatchView(round=0, role="update", n_units=7, members=(Member(id="a", speed_hz=1.0),), memory=memory)
    assert BATCHING.ask(planner, view).sizes == (7,)


def test_names_are_those_of_the_decision():
    """They are built by name as all others are, and have no parameters."""
    names = ["ddqn", "auto", "patent"]
    assert [BATCHING.build(name).name for name in names] == names
    assert set(names) <= set(BATCHING.names)


@pytest.mark.parametrize(("name", "n_features"), [("ddqn", N_FEATURES), ("patent", N_FEATURES + 4)])
def test_weights_travel_with_how_they_were_made(name, n_features):
    """30-96-96-5, or 34; no pickle; training had no seed, period or number of members that a benchmark has."""
    folder = resources.files("drlnb.learned.batching").joinpath("weights")
    with folder.joinpath(f"{name}.npz").open("rb") as file:
        shapes = {name: array.shape for name, array in np.load(file, allow_pickle=False).items()}
    assert shapes == {
        "0.weight": (96, n_features), "0.bias": (96,), "2.weight": (96, 96), "2.bias": (96,), "4.weight": (5, 96),
        "4.bias": (len(ACTIONS),),
    }  # fmt: skip
    made = json.loads(folder.joinpath(f"{name}.json").read_text())
    assert made["trace_seeds_from"] > 1000
    assert not {10, 13, 17, 19, 21} & set(made["periods"])
    assert 12 not in made["members"]


@pytest.mark.parametrize(("family", "found"), [("static", None), ("periodic", 0.9), ("correlated", 0.8)])
def test_the_shipped_network_foresees_what_has_a_pattern(family, found):
    """Periods of 10 and 13 splits, which training had not, and bursts that visit one member after the other.

    Of the splits in which a member is slow so many are foreseen (the first member of a burst cannot be), and of the
    others hardly one is expected to be slow.  Where nothing is ever slow, nothing is foreseen.
    """
    trace = Contention(family=family, n_splits=300, seed=500)
    z, network = np.log(trace.speeds_hz / np.array(trace.speeds)), shipped("ddqn")
    foreseen = np.array([network.performance(features(z[t - WINDOW : t])) < 0.6 for t in range(2 * WINDOW, 300)])
    slow = trace.slow[2 * WINDOW :]
    assert foreseen[~slow].mean() < 0.03
    if found:
        assert foreseen[slow].mean() > found


@pytest.mark.thorough
@pytest.mark.parametrize(
    "root",
    [
        "drlnb.fleet.tasks.run_spec",
        "drlnb.runtime.machine_host",
        "drlnb.runtime.scheduler.plugin",
        "drlnb.sim.training.attempt",
        "drlnb.sim.recorded.settings",
        "drlnb.sim.batching.play",
    ],
)
def test_who_makes_planners_knows_their_names(root):
    """Each in an interpreter of its own: door, master, broker and simulators."""
    code = f"import {root}; from drlnb.planning.settings import setting_problem as wrong\n"
    code += "assert not wrong('batching.planner', 'ddqn') and not wrong('batching.collect', 'auto')"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.thorough
def test_inference_loads_no_torch():
    """A master, a simulation or a scheduler plans without it."""
    code = (
        "import sys; from drlnb.learned.batching import Ddqn; from drlnb.planning.batching import *\n"
        "Ddqn().plan(BatchView(round=0, role='update', n_units=4, members=(Member(id='a', speed_hz=1.0),)))\n"
        "assert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
