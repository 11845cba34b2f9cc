"""Whatever decides when a task computes and acts, it learns the same: the parameters of a task alone, bitwise."""

import itertools

import pytest

from drlnb.planning.warmup import WARMUP
from drlnb.records.columns import warmup
from drlnb.records.common import SettingChanged
from tests.runtime.laws import check_laws
from tests.runtime.test_rounds_live import _final_parameters

pytestmark = pytest.mark.cluster

#: Gradients at arrival, so that holds and starts come in every order; 12 rounds.
GPF = {"algo": "gpf", "n_steps": 32, "steps": 12 * 8 * 32}
#: Few rounds are enough to plan from, so that each planner does plan.
EARLY = {"collector_mode": "respawn", "min_rounds": 5}


def test_every_planner_gives_the_parameters_of_a_task_alone(make_bench):
    """Seven planners of starts with processes that end after each round, three of holds, two tasks on one slot."""
    bench = make_bench()
    alone = bench.start([bench.spec("a", **GPF)], run="alone")
    assert alone.end()["a"]["state"] == "done"
    wanted = _final_parameters(alone.out, "a")
    planned = set()
    for planner, hold in zip(WARMUP.names, itertools.cycle(("round", "yield", "last")), strict=False):
        how = {"planners": {"hold": hold, "warmup": planner}, "settings": {"warmup": EARLY}}
        run = bench.start([bench.spec("a", **GPF), bench.spec("b", **GPF)], run=planner, **how)
        assert {row["state"] for row in run.end().values()} == {"done"}
        journal = check_laws(run.out)
        planned |= {plan.planner for plan in journal.of(warmup.WarmupPlanned)}
        for task in "ab":
            assert _final_parameters(run.out, task) == wanted, (planner, hold, task)
    assert planned == set(WARMUP.names)


@pytest.mark.slow
def test_a_setting_changed_half_way_changes_no_parameter(make_bench):
    """Hold, planner and mode of the collectors change while it trains, with collectors that stay."""
    bench = make_bench()
    spec = bench.spec("a", **{**GPF, "steps": 60 * 8 * 32})
    alone = bench.start([spec], run="alone")
    assert alone.end()["a"]["state"] == "done"
    run = bench.start([spec, bench.spec("b", **GPF)])
    changes = (("warmup.rho", 3.0), ("leasing.hold", "last"), ("warmup.planner", "patent"))
    for n, (key, value) in enumerate(changes, start=2):
        run.round(n)
        bench.link.set("r1", task="a", key=key, value=value)
    assert {row["state"] for row in run.end().values()} == {"done"}
    journal = check_laws(run.out)
    (stream,) = [one for name, one in journal.streams.items() if name.startswith("task-a-")]
    assert [event.key for event in stream.of(SettingChanged)] == [key for key, _ in changes], "all came in time"
    assert _final_parameters(run.out, "a") == _final_parameters(alone.out, "a")
