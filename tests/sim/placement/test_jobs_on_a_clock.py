"""The machine of jobs on a virtual clock does what the fast loop does: the same gangs at the same times."""

import numpy as np
import pytest

from drlnb.planning.placement import Cluster, Pick
from drlnb.planning.registry import Planners
from drlnb.planning.replay import replay
from drlnb.sim.placement import Conditions, FaultModel, TraceJob, simulate
from drlnb.sim.placement.on_clock import play_on_clock

PLANNERS = ("ect", "first", "best_fit", "healthiest", "healthiest_packed", "interference_aware", "random:seed=3")


class Choosy:
    """A planner with a window and a history: the job of the most slots there, on those that were up for longest."""

    name, window, history = "choosy", True, True

    def plan(self, view):
        job = max(view.window, key=lambda each: (each.n_slots, each.job))
        free = sorted(view.free(), key=lambda i: (view.n_failures_30d[i], view.n_failures_24h[i], -view.up_for_s[i], i))
        if sum(view.busy_for_s) > 3e5 and len(free) < 4:
            return None  # much is busy: wait
        return Pick(job.job, tuple(free[: job.n_slots]))


def instance(k):
    """Draw a cluster, jobs, faults and conditions."""
    rng = np.random.default_rng(k)
    cluster = Cluster.uniform(n_nodes=int(rng.integers(1, 5)), slots_per_node=int(rng.integers(1, 5)))
    jobs = [
        TraceJob(
            f"j{i}",
            float(rng.integers(0, 4)) * 3600.0 * (k % 2),
            int(rng.integers(1, cluster.n_slots + 1)),
            float(rng.choice([3600.0, 7200.0, 36_000.0 * rng.random() + 60.0])),
        )
        for i in range(int(rng.integers(1, 25)))
    ]
    model = FaultModel(mtbf_days=float(rng.choice([5.0, 20.0, 60.0])), mttr_s=float(rng.choice([0.0, 600.0, 7200.0])))
    path = model.path(model.rates(cluster, seed=k), seed=k)
    how = {
        "order": str(rng.choice(["fifo", "largest"])),
        "backfill": str(rng.choice(["greedy", "reserve"])),
        "checkpoint_s": [None, 3600.0, 600.0, "young"][int(rng.integers(4))],
        "locality_frac": float(rng.choice([0.0, 0.05, 0.15])),
    }
    return cluster, jobs, path, how


def differences(k, planner):
    """Return how an instance's gangs differ between the machine and the loop; empty if they do not."""
    cluster, jobs, path, how = instance(k)
    own = planner() if isinstance(planner, type) else None
    name, planners = (planner, None) if own is None else (f"own:{own.name}", Planners({"gangs": own}))
    ours, stream = play_on_clock(cluster, jobs, name, path, Conditions.from_mapping(how), own=planners)
    theirs = simulate(cluster, jobs, planner if own is None else planner(), instance(k)[2], **how)
    mine, others = ([(a.job, a.slots, a.finished) for a in sorted(each.attempts)] for each in (ours, theirs))
    if mine != others:
        return f"{k}: {len(mine)} gangs, {len(others)} by the loop"
    for name in ("makespan_s", "jct_s", "lost_gpu_s", "ettr"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-9, abs=1e-9), (k, name)
    return replay(stream).difference or ""


@pytest.mark.parametrize("planner", [*PLANNERS, Choosy])
def test_the_machine_and_the_loop_start_the_same_gangs_at_the_same_times(planner):
    """On any cluster, jobs, faults, order and backfill; and the journal decides the same again."""
    assert [differences(k, planner) for k in range(4)] == [""] * 4


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(8))
def test_they_do_on_two_hundred_instances(part):
    """Times and lost slot seconds to 1e-9."""
    ks = range(100 + 25 * part, 125 + 25 * part)
    assert [found for k in ks if (found := differences(k, [*PLANNERS, Choosy][k % 8]))] == []
