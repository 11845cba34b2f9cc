"""What planners are told of the steps of supervised work that several slots share."""

from dataclasses import asdict

import pytest
from round_words import of, only
from test_shared_steps import Gang

from drlnb.planning.batching import BatchPlan
from drlnb.records.columns import batching

SHAPE = {"n_steps": 99, "total": 99, "n_samples": 2000, "batch_size": 100, "planners": {"batching": "own:told"}}
ONE_OF_TWO = {"quorum": 0.5, "deadline_s": 0.5, "late": "drop"}


class Told:
    """Shares evenly, and remembers all reports."""

    name = "told"

    def plan(self, view):
        first, n = view.n_units - view.n_units // 2, len(view.members)
        return BatchPlan(sizes=(first, view.n_units - first) if n == 2 else (view.n_units,))

    def observe(self, memory, report):
        return [*(memory or []), asdict(report)]


def told(**settings):
    """Return a gang of two whose planner remembers its reports, and the orders of a split after both were measured."""
    gang = Gang({"batching": Told()}, **SHAPE, batching=settings)
    out = gang.lease("s0", "s1")
    for _ in range(2):
        out = gang.step(out)
    return gang, of(batching.ComputeShare, out)


def reports(gang):
    return gang.machine.state.memories["batching:own:told"]


def test_2_6_a_report_has_the_gradients_of_its_step_as_scalars():
    """The second step's is the first report: norm and age come with a share, the cosine once the step is made."""
    gang, orders = told()
    before = len(reports(gang))
    for order, norm_sq in zip(reversed(orders), (9.0, 4.0), strict=True):
        out = gang.share(order, norm_sq=norm_sq)
    assert len(reports(gang)) == before, "a report is made when its step is"
    gang.applied(only(batching.ApplyGradients, out), cosines=(0.8, 0.6))
    last = reports(gang)[-1]
    assert (last["members"], last["sizes"], last["n_done"]) == (["s0", "s1"], [50, 50], [50, 50])
    assert last["norms"] == [2.0, 3.0]
    assert last["cosines"] == [0.8, 0.6]
    assert last["ages_s"] == pytest.approx([0.5, 2.0])
    assert last["duration_s"] == pytest.approx(only(batching.SplitClosed, out).duration_s)
    assert gang.replayed().difference is None


def test_2_6_a_gradient_that_no_step_used_has_no_scalars():
    """One of two is dropped: the cosine that comes is of the one that was used."""
    gang, (mine, others) = told(**ONE_OF_TWO)
    gang.share(mine, norm_sq=4.0)
    out = gang.deadline(f"split/{mine.split}")
    gang.applied(only(batching.ApplyGradients, out), cosines=(1.0,))
    last = reports(gang)[-1]
    assert (last["members"], last["compute_s"]) == (["s0", "s1"], [0.5, None])
    assert [last[name] for name in ("norms", "cosines", "ages_s")] == [[2.0, None], [1.0, None], [0.5, None]]
    assert others.slot == "s1"


@pytest.mark.parametrize("moment", ["before the step is made", "in the next split"])
def test_how_long_a_late_share_took_is_reported_when_it_comes(moment):
    """Its gradient is not used, its time is: 50 samples in 2 s."""
    gang, (mine, others) = told(**ONE_OF_TWO)
    gang.share(mine)
    applied = only(batching.ApplyGradients, gang.deadline(f"split/{mine.split}"))
    if moment == "before the step is made":
        gang.share(others)
        gang.applied(applied)
    else:
        (order,) = of(batching.ComputeShare, gang.applied(applied))
        assert reports(gang)[-1]["compute_s"] == [0.5, None]
        gang.share(others)
        out = gang.share(order)
        assert only(batching.SplitClosed, out).wait_s == 0.0, "nobody of that split waited"
        gang.applied(only(batching.ApplyGradients, out))
    last = reports(gang)[-1]
    assert last["members"] == ["s0", "s1"]
    assert (last["sizes"][1], last["n_done"][1], last["compute_s"][1]) == (50, 50, 2.0)
    assert last["norms"][1] is None
    assert gang.replayed().difference is None


def test_trap_17_the_first_share_of_a_process_counts_nothing_however_late_it_comes():
    """It had the start of libraries in it: the second share is the first that is reported."""
    gang = Gang({"batching": Told()}, **SHAPE, batching=ONE_OF_TWO)
    mine, cold = of(batching.ComputeShare, gang.lease("s0", "s1"))
    gang.share(mine)
    out = gang.applied(only(batching.ApplyGradients, gang.deadline(f"split/{mine.split}")))
    (order,) = of(batching.ComputeShare, out)
    gang.share(cold)
    out = gang.step([order])
    assert [report["members"] for report in reports(gang)] == [["s0"]]
    gang.step(out)
    assert reports(gang)[-1]["members"] == ["s0", "s1"]
