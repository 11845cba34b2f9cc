"""Laws of the warm-up machine under any order of events that a world can bring about (leasing.md 8, "Warm-up").

The world here is written apart from the machine: processes that live or not, timers, parameters that have come.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from warmup_words import Starts

from drlnb.records.warmup import (
    RevokeStart,
    StartCollector,
    StopCollector,
    WarmupMeasured,
    WarmupPlanned,
)

LATER = st.sampled_from([0.0, 0.25, 1.0, 1.0, 4.0])


class World(RuleBasedStateMachine):
    """Two nodes, three collectors that end after each round, and everything that may happen to them."""

    def __init__(self):
        super().__init__()
        self.task = None

    @initialize(planner=st.sampled_from(["cold", "seed", "mean", "quantile", "saa", "progress"]), known=st.booleans())
    def open(self, planner, known):
        self.task = Starts(3, nodes=["n0", "n0", "n1"], planner=planner, rho=10.0)
        self.task.copied = False
        self.task.open()
        if known:
            for _ in range(8):
                self.task.whole_round()
        self.task.copied = True
        #: Collector -> ``up``, ``off`` (ended after sending), ``timed`` (starts at), ``starting``, ``dead`` (lost).
        self.state = dict.fromkeys(range(3), "up")
        self.timer, self.began = {}, {}
        self.sent, self.here = set(), set()
        self.stage = 0
        self.stopped = self.paused = False
        self.measured = []

    # ------------------------------------------------------------------ the world carries out and checks commands
    def take(self, records):
        t = self.task.t
        for record in records:
            i = getattr(record, "collector", None)
            if isinstance(record, StopCollector):
                assert self.state[i] == "up", "only who is up is stopped"
                self.state[i] = "off"
            elif isinstance(record, StartCollector):
                assert not self.stopped, "no start after a stop"
                assert record.round == self.task.round + 1, "a start is for the next round"
                assert self.state[i] in {"off", "timed"}, "never a second process"
                assert record.node == self.task.nodes[i]
                self.state[i], self.timer[i] = "timed", t + record.after_s
            elif isinstance(record, RevokeStart):
                assert self.state[i] in {"timed", "starting"}, "only a start that is out is taken back"
                self.state[i] = "off"
            elif isinstance(record, WarmupMeasured):
                assert all(
                    early == 0.0 or late == 0.0 for early, late in zip(record.early_s, record.late_s, strict=True)
                )
                self.measured.append(record.round)
            elif isinstance(record, WarmupPlanned):
                assert record.start_after_s is None or record.start_after_s >= 0.0
        self.run_timers()

    def run_timers(self):
        for i, state in self.state.items():
            if state == "timed" and self.timer[i] <= self.task.t + 1e-6:
                self.state[i], self.began[i] = "starting", self.timer[i]

    def pass_time(self, seconds):
        self.task.t += seconds
        self.run_timers()

    # ------------------------------------------------------------------ rules
    @precondition(lambda self: len(self.sent) < 3 and not self.here)
    @rule(later=LATER, data=st.data())
    def send(self, later, data):
        able = [i for i in range(3) if i not in self.sent and self.state[i] == "up"]
        if able:
            self.pass_time(later)
            i = data.draw(st.sampled_from(able))
            self.sent.add(i)
            self.take(self.task.arrived(i))

    @precondition(lambda self: self.sent and self.stage < 5)
    @rule(later=LATER)
    def work(self, later):
        """Lease, gradients, parameters."""
        self.pass_time(later)
        self.stage += 1
        out = (
            self.task.granted() if self.stage == 1
            else self.task.made() if self.stage == 5
            else self.task.computed(self.stage - 2)
        )  # fmt: skip
        self.take(out)

    @precondition(lambda self: len(self.sent) == 3)
    @rule(later=LATER, host=st.sampled_from(["n0", "n1"]))
    def publish(self, later, host):
        self.pass_time(later)
        if host not in self.here:
            self.here.add(host)
            self.take(self.task.completed(host))

    @rule(later=LATER, data=st.data())
    def ready(self, later, data):
        self.pass_time(later)
        able = [i for i, state in self.state.items() if state in {"starting", "dead"}]
        if able:
            i = data.draw(st.sampled_from(able))
            start_s = max(0.0, self.task.t - self.began.get(i, self.task.t))
            self.state[i] = "up"
            self.take(self.task.ready(i, start_s=start_s))

    @precondition(lambda self: len(self.here) == 2 and all(state == "up" for state in self.state.values()))
    @rule()
    def next_round(self):
        """Nobody waits: the next round can begin."""
        self.sent.clear()
        self.here.clear()
        self.stage = 0
        self.task.round += 1

    @rule(data=st.data())
    def lose(self, data):
        able = [i for i, state in self.state.items() if state in {"up", "starting"} and i not in self.sent]
        if able:
            i = data.draw(st.sampled_from(able))
            self.state[i] = "dead"
            self.take(self.task.lost(i))

    @precondition(lambda self: not self.paused)
    @rule()
    def pause(self):
        self.paused = True
        self.take(self.task.pause())

    @precondition(lambda self: self.paused)
    @rule()
    def resume(self):
        self.paused = False
        self.take(self.task.resume())

    @rule(kind=st.sampled_from(["cold", "mean", "saa", "progress", "quantile"]))
    def tune(self, kind):
        self.take(self.task.set("warmup.planner", kind))

    @precondition(lambda self: self.task and self.task.round > 10)
    @rule()
    def stop(self):
        self.take(self.task.stop())
        self.stopped = True

    # ------------------------------------------------------------------ laws
    @invariant()
    def nobody_whose_parameters_are_here_is_left(self):
        """Start = min(planned, parameters): who has sent and has them is on its way, unless a person holds it."""
        if self.task is None or self.paused or self.stopped:
            return
        for i in self.sent:
            if self.task.nodes[i] in self.here:
                assert self.state[i] != "off", f"collector {i} was forgotten"
                assert self.state[i] != "timed", f"collector {i} starts after its parameters"

    @invariant()
    def rounds_are_measured_once(self):
        if self.task is not None:
            assert len(set(self.measured)) == len(self.measured)


World.TestCase.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)
TestWorld = World.TestCase


class LongWorld(World):
    """The same, more and longer."""


LongWorld.TestCase.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)


@pytest.mark.slow
class TestLongWorld(LongWorld.TestCase):
    """300 worlds of 60 steps."""
