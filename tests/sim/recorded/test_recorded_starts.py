"""A run's starts, played once more: the same rule gives the same waits, another one what a run under it gives."""

import functools

import pytest

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.replay import replay
from drlnb.records.columns.warmup import CollectorReady, StartCollector
from drlnb.records.journal import Journal
from drlnb.sim.costs import Costs, Workload
from drlnb.sim.driver import Clock
from drlnb.sim.recorded.play import load_of, pools_of, recorded_tasks, simulate_recorded, starts_of
from drlnb.sim.recorded.settings import Rules
from drlnb.sim.recorded.task import RecordedTask
from drlnb.sim.training.pool import Pool
from drlnb.sim.training.task import Task


@functools.cache
def respawned(n_rounds=30, n_collectors=2, planner="saa", hold="yield", **warmup):
    """Return the journal of a simulated task on one slot, its collectors ended between rounds, started for .5 s."""
    clock = Clock()
    pool = Pool(clock, slots={"n0/slot0": "n0"}, nodes=("n0",), settings=LeasingSettings())
    costs = Costs(collect_s=1.0, compute_s=4.0, finish_s=0.05, publish_s=0.01, collect_cv=0.2, start_s=0.5)
    config = {
        "task": "sim0", "n_envs": n_collectors, "n_collectors": n_collectors, "n_steps": 8, "streams": True,
        "total_timesteps": n_rounds * 8 * n_collectors, "can_respawn": True,
        "planners": {"warmup": planner, "hold": hold}, "warmup": {"collector_mode": "respawn", **warmup},
    }  # fmt: skip
    workload = Workload(costs, seed=1, task=0, n_collectors=n_collectors)
    task = Task(clock, pool, workload, config=config, node="n0", validate=True)
    task.open()
    clock.run()
    assert replay(task.host.stream).difference is None
    return Journal(streams={each.header.stream: each for each in (pool.host.stream, task.host.stream)})


def measured(journal, first=10):
    """Return what the starts of a journal came to, from a round on."""
    stream = next(each for each in journal.streams.values() if each.header.machine == "round")
    return starts_of({"sim0": stream}, {"sim0": (first, 10_000)}).get("sim0", (0.0, 0.0))


def foretold(journal, **planners):
    """Return what the same is under other planners, by playing the journal once more."""
    recorded = load_of(pools_of(journal), ["sim0"], 1)
    tasks = recorded_tasks(journal, recorded.rounds)
    rules = Rules(n_slots=1, tasks={"sim0": {"planners": planners}})
    return simulate_recorded(tasks, rules, until_s=recorded.window_s)


@pytest.mark.parametrize("planner", ["cold", "saa", "keep", "patent"])
def test_the_same_rule_gives_the_recorded_waits(planner):
    """Rounds wait for their last collector, and collectors idle, as they did: within a tenth, or 20 ms."""
    journal = respawned(40, 3, planner)
    load = foretold(journal)
    assert load.starts["sim0"] == pytest.approx(measured(journal, 2), rel=0.1, abs=0.02)


@pytest.mark.parametrize("planner", ["saa", "keep", "patent"])
def test_another_rule_gives_what_a_run_under_it_gives(planner):
    """Foretold from a run in which each round waits for its starts; rounds become shorter."""
    cold, own = respawned(40, 3, "cold"), respawned(40, 3, planner)
    load, now = foretold(cold, warmup=planner), foretold(cold)
    late_s, early_s = load.starts["sim0"]
    assert load.starts["sim0"] == pytest.approx(measured(own, 2), rel=0.2, abs=0.03)
    assert late_s < now.starts["sim0"][0] == pytest.approx(0.55, abs=0.05)
    assert early_s > now.starts["sim0"][1] == 0.0
    assert load.round_s["sim0"] < now.round_s["sim0"]


def test_collectors_that_rest_are_started_by_nobody():
    """Their rounds wait for no start, and nothing is told of any."""
    journal = respawned(30, 2, "cold", collector_mode="park")
    assert foretold(journal).starts == {}


def start(collector, mode, round):
    return StartCollector(
        collector=collector, node="n0", round=round, env_indices=(collector,), after_s=0.0, start_mode=mode
    )


def ready(t, collector, mode, start_s, round=1):
    return CollectorReady(
        t=t, collector=collector, node="n0", start_s=start_s, n_starting=1, start_mode=mode, round=round
    )


def test_a_start_takes_what_its_collectors_own_took_in_turn():
    """Of its mode; else another collector's of that mode, else any; what waited for its zygote tells nothing."""
    journal = respawned()
    stream = next(each for each in journal.streams.values() if each.header.machine == "round")
    kept = [each for each in stream.records if not isinstance(each, CollectorReady)]
    told = [
        ready(0.0, 0, "zygote", 0.9),  # made the zygote
        ready(0.0, 1, "zygote", 0.8),  # waited for it
        ready(5.0, 0, "zygote", 0.1),
        ready(6.0, 0, "zygote", 0.2),
        ready(7.0, 1, "spawn", 1.5),
    ]
    task = RecordedTask(type(stream)(header=stream.header, records=(*told, *kept), torn=False, source="here"))
    assert task.start_modes == {"zygote", "spawn"}
    assert [task.start_s(start(0, "zygote", k)) for k in (2, 3, 4)] == [0.1, 0.2, 0.1]
    assert task.start_s(start(1, "zygote", 3)) == 0.2
    assert task.start_s(start(0, "spawn", 3)) == 1.5
    assert task.start_s(start(1, "simulated", 3)) == 1.5, "its own, whatever the mode"
