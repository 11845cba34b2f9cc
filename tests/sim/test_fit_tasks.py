"""Supervised work in the simulator: rounds without collectors, on the same machines, and their pictures."""

import functools

import pytest

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns import batching, distribution, leasing, warmup
from drlnb.records.journal import Journal
from drlnb.sim.costs import Costs, Workload
from drlnb.sim.driver import Clock
from drlnb.sim.training.fleet import run_tasks
from drlnb.sim.training.pool import Pool
from drlnb.sim.training.task import Task
from drlnb.views.fleet import tasks as table_of
from drlnb.views.folds.fold import fold_of
from drlnb.views.learning import curves
from drlnb.views.rounds import anatomy
from tests.matches import like

#: 45 steps in rounds of 10; work without environments.
FIT = {"n_envs": 0, "n_collectors": 0, "n_steps": 10, "total_timesteps": 45, "eval_freq": 5}


def run(hold="round", **more):
    shape = {"n_slots": 1, "n_rounds": 5, "n_collectors": 0, "seed": 1, "costs": Costs(), "config": FIT, **more}
    return run_tasks(range(2), hold=hold, validate=True, **shape)


@pytest.mark.parametrize("hold", ["round", "yield", "last"])
def test_two_tasks_share_a_slot_without_anybody_who_acts(hold):
    """The last round has what is left; nobody is started, woken or sent a version."""
    pool, tasks = run(hold)
    for task in tasks:
        (stream,) = task.streams
        assert [row.n_timesteps for row in stream.of(words.MetricsRecorded)] == [10, 20, 30, 40, 45]
        assert [work.after_timesteps for work in stream.of(words.ComputeGradient)] == [10, 20, 30, 40, 45]
        nobody = (warmup.StartCollector, warmup.WakeCollector, distribution.SendParameters, batching.BatchPlanned)
        assert not stream.of(*nobody)
        assert not stream.of(words.DropExperience), "there is no fragment to free"
        reasons = " ".join(plan.reason for plan in stream.of(leasing.HoldPlanned))
        assert "experience" not in reasons, "it has none"
        for row in stream.of(words.MetricsRecorded):
            assert not row.metrics.keys() & {"round/collect_s", "round/push_s"}, "nobody acts or receives"
        assert stream.records[-1] == like(words.EndTask, state="done")
        assert replay(stream).difference is None
    grants = pool.host.stream.of(leasing.LeaseGranted)
    assert {(grant.task, grant.round) for grant in grants} == {(f"sim{i}", k) for i in range(2) for k in range(6)}
    assert replay(pool.host.stream).difference is None


def test_a_pause_in_a_round_begins_it_once():
    """Told to go on while its slot computes, it goes on with the steps that it has begun."""
    clock = Clock()
    pool = Pool(clock, slots={"n0/slot0": "n0"}, nodes=("n0",), settings=LeasingSettings())
    work = Workload(Costs(compute_s=1.0), seed=1, task=0, n_collectors=0)
    config = {"task": "sim0", "planners": {}, **FIT}
    task = Task(clock, pool, work, config=config, node="n0", validate=True)
    for t, event in ((1.3, words.PauseAsked), (1.6, words.ResumeAsked)):
        clock.after(t, functools.partial(task.host.feed, event))
    task.open()
    clock.run()
    (stream,) = task.streams
    assert [row.n_timesteps for row in stream.of(words.MetricsRecorded)] == [10, 20, 30, 40, 45]
    assert [work.after_timesteps for work in stream.of(words.ComputeGradient)] == [10, 20, 30, 40, 45]


def alone(**config):
    """Return the steps made after each round of a task that has the slot for itself; a round computes for 8 s."""
    clock = Clock()
    pool = Pool(clock, slots={"n0/slot0": "n0"}, nodes=("n0",), settings=LeasingSettings())
    work = Workload(Costs(compute_s=8.0, service_cv=0.0), seed=1, task=0, n_collectors=0)
    task = Task(clock, pool, work, config={"task": "sim0", "planners": {}, **FIT, **config}, node="n0", validate=True)
    task.open()
    clock.run()
    (stream,) = task.streams
    assert replay(stream).difference is None
    return [row.n_timesteps for row in stream.of(words.MetricsRecorded)]


def test_two_gangs_share_two_slots_and_each_step():
    """Leases of two slots; each step is split evenly, and takes half of what one slot would; the last one is short."""
    data = {"n_learners": 2, "n_samples": 36, "batch_size": 8}
    pool, tasks = run("last", n_slots=2, config={**FIT, **data})
    for task in tasks:
        (stream,) = task.streams
        assert [row.n_timesteps for row in stream.of(words.MetricsRecorded)][-1] == 45
        plans = stream.of(batching.SplitPlanned)
        assert [sum(plan.sizes) for plan in plans] == [8, 8, 8, 8, 4] * 9
        assert all(max(plan.sizes) <= 5 for plan in plans)
        assert [share.step for share in stream.of(batching.ComputeShare)] == [step for step in range(45) for _ in "01"]
        assert all(not row.lost for row in stream.of(batching.SplitClosed))
        assert replay(stream).difference is None
    assert {len(grant.slots) for grant in pool.host.stream.of(leasing.LeaseGranted) if grant.round} == {2}
    assert replay(pool.host.stream).difference is None


@pytest.mark.parametrize("dead", ["n0/slot0", "n0/slot1"])
def test_a_slot_that_dies_in_the_midst_of_a_round_costs_a_step_or_its_round(dead):
    """In the third step of the second round: the other slot makes that one and the rest, or, as no lead, all of it."""
    data = {"n_learners": 2, "n_samples": 8, "batch_size": 8, "planners": {"hold": "last"}}
    clock = Clock()
    pool = Pool(clock, slots={"n0/slot0": "n0", "n0/slot1": "n0"}, nodes=("n0",), settings=LeasingSettings())
    work = Workload(Costs(compute_s=1.0, service_cv=0.0), seed=1, task=0, n_collectors=0)
    task = Task(clock, pool, work, config={"task": "sim0", **FIT, **data}, node="n0", validate=True)
    feed = task.host.feed

    def watched(kind, **values):
        out = feed(kind, **values)
        if kind is batching.GradientsApplied and values["split"] == 12:
            clock.after(0.0, pool.lose_slot, dead)
        return out

    task.host.feed = watched
    task.open()
    clock.run()
    (stream,) = task.streams
    assert stream.records[-1] == like(words.EndTask, state="done")
    assert len({row.fence for row in stream.of(words.ExecutorDied, words.LeaseLost)}) == 1
    steps = [order.step for order in stream.of(batching.ApplyGradients) if order.round == 2 and order.split]
    asked = [(order.step, order.parameters) for order in stream.of(batching.ApplyGradients) if not order.split]
    if dead == "n0/slot1":
        assert (asked, steps) == ([(11, "p/sim0/12")], list(range(10, 20)))
    else:
        assert (asked, steps) == ([], [10, 11]), "one slot alone makes its round without shares"
        assert stream.of(words.ComputeGradient)[0].after_timesteps == 20
    assert [row.n_timesteps for row in stream.of(words.MetricsRecorded)] == [10, 20, 30, 40, 45]
    assert replay(stream).difference is None


def test_the_work_of_shared_steps_is_in_the_picture_of_leases():
    """Seconds that slots computed are those of all shares, and of what was made of them."""
    data = {"n_learners": 2, "n_samples": 36, "batch_size": 8}
    pool, tasks = run("last", n_slots=2, config={**FIT, **data})
    streams = [pool.host.stream, *(stream for task in tasks for stream in task.streams)]
    fold = fold_of(Journal(streams={stream.header.stream: stream for stream in streams}))
    for task in tasks:
        (stream,) = task.streams
        shares = sum(share.compute_s for share in stream.of(batching.ShareComputed))
        made = sum(ready.elapsed_s for ready in stream.of(words.ParametersReady))
        attempt = fold.tasks[task.name].latest
        assert shares > 3 * made
        assert float(attempt.work["elapsed"].sum()) == pytest.approx(shares + made)


def test_rounds_end_with_the_epoch_and_after_about_two_seconds():
    """Ten steps first, of .8 s: two fill two seconds, until the lower median is 4 s; and up to the end of an epoch."""
    assert alone(n_steps=100, total_timesteps=17) == [10, 12, 14, 15, 16, 17]
    assert alone(n_steps=100, total_timesteps=17, epoch_steps=11) == [10, 11, 13, 14, 15, 16, 17]
    assert alone(n_steps=100, total_timesteps=13, epoch_steps=4) == [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]


def test_pictures_of_it_invent_nothing():
    """Its rounds are counted from its own steps, and its curve is the loss."""
    pool, tasks = run()
    streams = [pool.host.stream, *(stream for task in tasks for stream in task.streams)]
    journal = Journal(streams={stream.header.stream: stream for stream in streams})
    view = table_of(journal)
    names = [column.name for column in view.table]
    rows = [dict(zip(names, row, strict=True)) for row in view.rows()]
    assert [(row["rounds"], row["total"], row["ret"]) for row in rows] == [(5, 5, None), (5, 5, None)]
    assert curves(journal).sentence == "no train/loss yet", "a simulation has no loss"
    parts = anatomy(journal)
    names = [column.name for column in parts.table]
    rows = [dict(zip(names, row, strict=True)) for row in parts.rows()]
    assert [row["series"] for row in rows] == ["wait for a slot", "update", "control"] * 2
    means = [
        sum(row.metrics["round/update_s"] for row in task.streams[0].of(words.MetricsRecorded)) / 5 for task in tasks
    ]
    assert sorted(rows[i]["mean"] for i in (1, 4)) == pytest.approx(sorted(means))
    lanes, starts, stops = (parts.columns["bars"][name] for name in ("lane", "start", "stop"))
    assert lanes.tolist() == [0, 0, 0, 1, 1, 1]
    assert starts.reshape(2, 3)[:, 1:].tolist() == stops.reshape(2, 3)[:, :-1].tolist()


def test_a_gang_by_the_patents_planner_is_replayed_from_its_journal():
    """Four slots, three waited for: plans that depend on the processor are read back, what it remembers made again."""
    data = {"n_learners": 4, "n_samples": 360, "batch_size": 80, "planners": {"hold": "last", "batching": "patent"}}
    more = {"batching": {"quorum": 0.75, "late": "drop"}}
    _, (task, _) = run("last", n_slots=4, config={**FIT, **data, **more})
    (stream,) = task.streams
    plans = stream.of(batching.SplitPlanned)
    assert {plan.planner for plan in plans} == {"patent"}
    assert {sum(plan.sizes) for plan in plans} == {80, 40}
    assert stream.of(batching.QuorumReached)
    memories = stream.of(words.WriteCheckpoint)[-1].memories["batching:patent"]
    assert memories["mean"]
    assert replay(stream).difference is None
