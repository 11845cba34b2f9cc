"""Laws of jobs on slots that fail, whatever the planner; and the closed form."""

import math
import statistics
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.placement import GANGS, Cluster, Pick
from drlnb.planning.placement.closed_form import expected_completion_s
from drlnb.sim.placement import Conditions, FaultModel, TraceJob, play, simulate

CLUSTER = Cluster.uniform(n_nodes=2, slots_per_node=4)
#: Times that meet often: whole seconds.
SECONDS = st.integers(1, 60).map(float)
#: Planners that serve any cluster.
NAMES = [name for name in GANGS.names if name != "patent"]


@st.composite
def batches(draw):
    """Draw jobs, some of which are submitted later."""
    rows = draw(
        st.lists(st.tuples(st.integers(1, 8), SECONDS, st.sampled_from([0.0, 0.0, 7.0, 30.0])), min_size=1, max_size=8)
    )
    return [TraceJob(f"j{i}", submitted, n, work) for i, (n, work, submitted) in enumerate(rows)]


CONDITIONS = st.fixed_dictionaries({
    "order": st.sampled_from(["fifo", "largest"]),
    "backfill": st.sampled_from(["greedy", "reserve"]),
    "checkpoint_s": st.sampled_from([None, 5.0, 20.0, "young"]),
    "checkpoint_cost_s": st.sampled_from([0.0, 1.0]),
    "restart_s": st.sampled_from([0.0, 3.0]),
    "locality_frac": st.sampled_from([0.0, 0.15]),
    "interference_frac": st.sampled_from([0.0, 0.5]),
}).filter(lambda how: how["checkpoint_s"] != "young" or how["checkpoint_cost_s"])


class Chancy:
    """A planner that may take any job of the window, any free slots, or wait, as numbers tell it."""

    name, window, history = "chancy", True, True

    def __init__(self, rng):
        self.rng = rng

    def plan(self, view):
        if "busy" in view.state and self.rng.random() < 0.1:
            return None
        job = self.rng.choice(view.window)
        return Pick(job.job, tuple(self.rng.sample(view.free(), job.n_slots)))


@given(batches(), CONDITIONS, st.sampled_from([*NAMES, "chancy"]), st.randoms(use_true_random=False), st.data())
def test_laws(jobs, conditions, name, rng, data):
    """Slots serve one job at a time and none while they are away; all work is done once; accounts close."""
    planner = Chancy(rng) if name == "chancy" else GANGS.build(name)
    model = FaultModel(
        mtbf_days=data.draw(st.sampled_from([0.001, 0.01, 10.0])),
        mttr_s=20.0,
        weibull_shape=data.draw(st.sampled_from([1.0, 0.7])),
        node_mtbf_days=data.draw(st.sampled_from([None, 0.01])),
    )
    path = model.path(model.rates(CLUSTER, seed=1), seed=data.draw(st.integers(0, 99)), cluster=CLUSTER)
    outcome = simulate(CLUSTER, jobs, planner, path, **conditions)
    by_job = {job.job: [each for each in outcome.attempts if each.job == job.job] for job in jobs}
    for job in jobs:
        mine = by_job[job.job]
        assert [each.finished for each in mine] == [False] * (len(mine) - 1) + [True]
        assert all(len(set(each.slots)) == job.n_slots for each in mine)
        assert all(a.ended_s <= b.started_s for a, b in pairwise(mine))
        assert job.submitted_s <= mine[0].started_s
        assert job.work_s - 1e-6 <= sum(each.kept_s for each in mine) <= job.work_s + len(mine)
        assert all(each.kept_s <= each.ended_s - each.started_s + 1e-9 for each in mine)
    for slot in range(CLUSTER.n_slots):
        held = sorted((each.started_s, each.ended_s) for each in outcome.attempts if slot in each.slots)
        assert all(a[1] <= b[0] for a, b in pairwise(held))
        k = 0
        while (outage := path.outage(slot, k))[0] < outcome.makespan_s:
            assert not any(start < outage[1] and outage[0] < end for start, end in held)
            k += 1
    held_s = sum(len(each.slots) * (each.ended_s - each.started_s) for each in outcome.attempts)
    finished_s = sum(len(each.slots) * (each.ended_s - each.started_s) for each in outcome.attempts if each.finished)
    kept_s = sum(len(each.slots) * each.kept_s for each in outcome.attempts if not each.finished)
    assert outcome.lost_gpu_s == pytest.approx(held_s - finished_s - kept_s, abs=1e-6)
    assert outcome.makespan_s >= outcome.bound_s - 1e-9
    assert 0 < outcome.utilisation <= 1 + 1e-9
    assert 0 < outcome.ettr <= 1 + 1e-9


@given(batches(), CONDITIONS, st.sampled_from(NAMES), st.integers(0, 99))
def test_the_same_seed_gives_the_same_outcome(jobs, conditions, name, seed):
    """Bit by bit, on a path of its own."""
    model = FaultModel(mtbf_days=0.005, mttr_s=20.0)
    rates = model.rates(CLUSTER, seed=seed)
    first, again = (simulate(CLUSTER, jobs, name, model.path(rates, seed=seed), **conditions) for _ in range(2))
    assert first == again


@given(batches(), CONDITIONS.filter(lambda how: how["backfill"] == "greedy"), st.integers(0, 99))
def test_no_job_that_fits_waits_beside_free_slots(jobs, conditions, seed):
    """Between two plans no time passes while a job that waits would fit: greedy backfill conserves work."""
    model = FaultModel(mtbf_days=0.005, mttr_s=20.0)
    game = play(CLUSTER, jobs, model.path(model.rates(CLUSTER), seed=seed), Conditions(**conditions), window=True)
    view, n_plans = next(game), 0
    with suppress(StopIteration):
        while True:
            job = view.window[0]
            left = len(view.free()) - job.n_slots
            fits = [each for each in view.window[1:] if each.n_slots <= left]
            pick, t, n_plans = Pick(job.job, tuple(view.free()[: job.n_slots])), view.t, n_plans + 1
            view = game.send(pick)
            assert not fits or view.t == t
    assert not fits
    assert n_plans >= len(jobs)


def mean_makespan_s(n, checkpoint_s, work_s, mtbf_days):
    """Return the mean makespan of a gang that fills the cluster, slots being back at once, and its standard error."""
    model = FaultModel(mtbf_days=mtbf_days, spread=0.0, node_spread=0.0, mttr_s=0.0)
    rates, job = model.rates(CLUSTER), [TraceJob("a", 0.0, CLUSTER.n_slots, work_s)]
    runs = [
        simulate(CLUSTER, job, "first", model.path(rates, seed=seed), checkpoint_s=checkpoint_s).makespan_s
        for seed in range(n)
    ]
    return statistics.fmean(runs), statistics.stdev(runs) / math.sqrt(n)


@pytest.mark.parametrize("checkpoint_s", [3600.0, None])
def test_the_mean_is_that_of_the_closed_form(checkpoint_s):
    """400 runs of a day on eight slots that fail once in 20 days each: within four standard errors."""
    mean_s, error_s = mean_makespan_s(400, checkpoint_s, 86_400.0, 20)
    expected_s = expected_completion_s(86_400.0, [1 / (20 * 86_400.0)] * 8, checkpoint_s=checkpoint_s)
    assert abs(mean_s - expected_s) < 4 * error_s
    assert error_s < 0.02 * expected_s


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checkpoint_s", "work_s", "days"), [(3600.0, 86_400.0, 2), (None, 40_000.0, 5), (600.0, 7200.0, 1)]
)
def test_the_mean_is_that_of_the_closed_form_within_two_per_cent(checkpoint_s, work_s, days):
    """5,000 runs; work that is and is not a multiple of the interval, failures by the dozen."""
    mean_s, _ = mean_makespan_s(5000, checkpoint_s, work_s, days)
    expected_s = expected_completion_s(work_s, [1 / (days * 86_400.0)] * 8, checkpoint_s=checkpoint_s)
    assert mean_s == pytest.approx(expected_s, rel=0.02)
