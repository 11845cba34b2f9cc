"""Clock, hosted machine, durations, executors."""

import math

import numpy as np
import pytest

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.columns.leasing import RequestRefused, SlotRequested
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.sim.costs import Costs, Workload
from drlnb.sim.driver import Clock, Hosted
from drlnb.sim.training.pool import Executor, Pool


# ---------------------------------------------------------------------- clock
def test_calls_are_made_in_time_order_and_ties_in_the_order_of_setting():
    """A run is a function of its seed."""
    clock, seen = Clock(), []
    for delay_s, name in ((2.0, "late"), (1.0, "first"), (1.0, "second"), (0.0, "now")):
        clock.after(delay_s, seen.append, name)
    clock.run(until_s=1.5)
    assert (seen, clock.now) == (["now", "first", "second"], 1.0)
    clock.run()
    assert (seen[-1], clock.now) == ("late", 2.0)


class Echo:
    """A machine that answers with what it is told to."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.heard = []
        self.checks = 0

    def handle(self, event):
        self.heard.append(event)
        return self.answers.pop(0) if self.answers else ()

    def check(self):
        self.checks += 1

    def restore(self, state):
        del state


def hosted(clock, machine, *, validate=False):
    return Hosted(clock, machine, kind="pool", config={}, stream="s", effects={}, validate=validate)


def test_the_same_name_replaces_a_deadline():
    """Only the later one is told."""
    clock = Clock()
    machine = Echo((SetDeadline(name="x", after_s=1.0),), (SetDeadline(name="x", after_s=5.0),))
    host = hosted(clock, machine)
    host.feed(DeadlinePassed, name="start")
    host.feed(DeadlinePassed, name="again")
    clock.run()
    assert machine.heard[2:] == [DeadlinePassed(t=5.0, name="x")]


def test_event_and_answer_are_journalled_and_returned():
    """Times are rounded to microseconds; the machine is checked only if wanted."""
    clock = Clock()
    answer = (SetDeadline(name="x", after_s=1.0),)
    machine = Echo(answer)
    host = hosted(clock, machine, validate=True)
    clock.after(1.23456789, lambda: None)
    clock.run()
    assert host.feed(DeadlinePassed, name="a") == answer
    assert host.stream.records == (DeadlinePassed(t=1.234568, name="a"), *answer)
    assert machine.checks == 1
    host.feed_after(2.0, DeadlinePassed, name="b")
    clock.run()
    assert machine.heard[-1].name == "b"


# ---------------------------------------------------------------------- durations
def test_every_planner_sees_the_same_workload():
    """A round's durations do not depend on the order in which they are asked for, nor on the starts drawn between."""
    one, other = (Workload(Costs(), seed=3, task=1, n_collectors=2) for _ in range(2))
    forward = [one.round(k) for k in range(4)]
    other.start_s(None)
    assert [other.round(k) for k in (3, 1, 2, 0)] == [forward[k] for k in (3, 1, 2, 0)]
    assert Workload(Costs(), seed=3, task=2, n_collectors=2).round(0) != forward[0]
    assert Workload(Costs(), seed=4, task=1, n_collectors=2).round(0) != forward[0]


@pytest.mark.parametrize(("shape", "cv"), [("lognormal", 0.5), ("exponential", 1.0)])
def test_durations_have_their_mean_and_spread(shape, cv):
    """8,000 draws: mean within 5 %, coefficient of variation within 10 %."""
    workload = Workload(Costs(shape=shape, collect_s=4.0, collect_cv=0.5), seed=0, task=0, n_collectors=8)
    drawn = np.array([workload.round(k).collect_s for k in range(1000)])
    assert drawn.mean() == pytest.approx(4.0, rel=0.05)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.10)


def test_no_spread_gives_the_means():
    """The compute of a round is shared by its batches."""
    workload = Workload(Costs(collect_cv=0.0, service_cv=0.0), seed=0, task=0, n_collectors=4)
    costs = workload.round(7)
    assert costs.collect_s == (4.0,) * 4
    assert costs.stage_s == (0.25,) * 4
    assert (costs.finish_s, costs.publish_s, costs.rpc_s, workload.start_s(None)) == (0.02, 0.01, 0.001, 0.04)


def test_wrong_costs_are_refused_together():
    """The message names each."""
    with pytest.raises(ConfigError) as caught:
        Costs(collect_s=-1.0, rpc_s=math.nan, shape="square")
    assert caught.value.problems == (
        "collect_s must be a number from 0 to 1e9, got -1.0",
        "rpc_s must be a number from 0 to 1e9, got nan",
        "shape must be one of lognormal, exponential, got 'square'",
    )


# ---------------------------------------------------------------------- executors
def test_an_executor_works_serially_in_order_of_arrival():
    """Two jobs of 2 s end at 2 and 4 s."""
    clock, ends = Clock(), []
    executor = Executor(clock, "s", "n0")
    for name in ("a", "b"):
        executor.submit(Fence(epoch=1, token=1), 2.0, lambda name=name: ends.append((name, clock.now)))
    clock.run()
    assert ends == [("a", 2.0), ("b", 4.0)]


def test_what_is_thrown_away_is_never_done():
    """The job that runs still needs its rest: nothing can be taken from a kernel that runs."""
    clock, ends = Clock(), []
    executor = Executor(clock, "s", "n0")
    executor.submit(Fence(epoch=1, token=1), 2.0, lambda: ends.append("a"))
    clock.run(until_s=0.5)
    clock.after(0.5, lambda: ends.append(executor.clear()))
    clock.run()
    assert ends == [1.5]
    assert executor.clear() == 0.0


def test_a_dead_executor_loses_what_is_sent_to_it():
    """Until a new one is up, under a higher epoch."""
    clock, ends = Clock(), []
    executor = Executor(clock, "s", "n0")
    executor.die()
    executor.submit(Fence(epoch=1, token=1), 2.0, lambda: ends.append("a"))
    clock.run()
    assert ends == []
    assert executor.epoch == 2


@pytest.mark.parametrize(("allowed", "n_known"), [((), 2), (("n0/a", "n9/x"), 1)])
def test_slots_that_never_come_are_refused(allowed, n_known):
    """A request for more than the world has is one line; a slot that is down at the moment counts, it comes back."""
    clock = Clock()
    pool = Pool(clock, slots={"n0/a": "n0", "n0/b": "n0"}, nodes=("n0",), settings=LeasingSettings())
    pool.lose_slot("n0/a", 5.0)
    asked = {"attempt": 1, "round": 1, "node": "n0", "allowed": allowed}
    pool.host.feed(SlotRequested, request_id="a/1", task="a", n_slots=n_known, **asked)
    (refused,) = pool.host.feed(SlotRequested, request_id="b/1", task="b", n_slots=3, **asked)
    line = f"task b would wait for ever: it wants 3 slots at once, and {n_known} may serve it"
    assert refused == RequestRefused(subject="b/1", reason=line, final=True)
