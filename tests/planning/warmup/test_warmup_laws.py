"""Laws of the warm-up machine under any order of events that a world can bring about (leasing.md 8, "Warm-up").

The world here is written apart from the machine: processes that live or not, timers, parameters that have come.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from warmup_words import Starts

from drlnb.records.columns.warmup import (
    RevokeStart,
    StartCollector,
    StopCollector,
    WarmupMeasured,
    WarmupPlanned,
)

LATER = st.sampled_from([0.0, 0.25, 1.0, 1.0, 4.0])


class World(RuleBasedStateMachine):
    """Two nodes, three collectors that end after each round, and everything that may happen to them."""

    #: Whether each event is given to a restored copy, too: slow.
    copied = False

    def __init__(self):
        super().__init__()
        self.task = None

    @initialize(
        planner=st.sampled_from(["saa", "patent", "cold"]),
        known=st.sampled_from([True, True, True, False]),
    )
    def open(self, planner, known):
        self.task = Starts(3, nodes=["n0", "n0", "n1"], planner=planner, rho=10.0)
        self.task.copied = False
        self.task.open()
        if known:
            for _ in range(8):
                self.task.whole_round()
        self.task.copied = self.copied
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
            if state == "timed" and self.timer[i] <= self.task.t:
                self.state[i], self.began[i] = "starting", self.timer[i]

    def pass_time(self, seconds):
        self.task.t += seconds
        self.run_timers()

    # ------------------------------------------------------------------ what a round consists of
    def send(self, i):
        self.sent.add(i)
        self.take(self.task.arrived(i))

    def work(self):
        """Lease, gradients, parameters."""
        self.stage += 1
        out = (
            self.task.granted() if self.stage == 1
            else self.task.made() if self.stage == 5
            else self.task.computed(self.stage - 2)
        )  # fmt: skip
        self.take(out)

    def publish(self, host):
        self.here.add(host)
        self.take(self.task.completed(host))

    def ready(self, i):
        start_s = max(0.0, self.task.t - self.began.get(i, self.task.t))
        self.state[i] = "up"
        self.take(self.task.ready(i, start_s=start_s))

    def next_round(self):
        self.sent.clear()
        self.here.clear()
        self.stage = 0
        self.task.round += 1

    def steps(self):
        """Return what may happen next in the round, the most natural first."""
        up = [i for i in range(3) if self.state[i] == "up"]
        steps = [(self.send, i) for i in up if i not in self.sent and not self.here]
        steps += [(self.ready, i) for i in range(3) if self.state[i] == "dead"]
        if self.sent and self.stage < 5:
            steps.append((self.work,))
        if len(self.sent) == 3 and self.stage == 5:
            steps += [(self.publish, host) for host in ("n0", "n1") if host not in self.here]
        steps += [(self.ready, i) for i in range(3) if self.state[i] == "starting"]
        if len(self.here) == 2 and len(up) == 3:
            steps.append((self.next_round,))
        return steps

    # ------------------------------------------------------------------ rules
    @rule(laters=st.lists(LATER, min_size=1, max_size=4), data=st.data())
    def go_on(self, laters, data):
        """Take some steps of the round, with time between them, mostly in their natural order."""
        for later in laters:
            self.pass_time(later)
            steps = self.steps()
            if steps:
                which = data.draw(st.sampled_from([0, 0, 0, len(steps) - 1]))
                call, *arguments = steps[which]
                call(*arguments)

    @rule(gap_s=st.sampled_from([1.0, 3.0]))
    def go_through(self, gap_s):
        """Go to the end of the round."""
        for _ in range(20):
            steps = self.steps()
            if not steps or steps[0] == (self.next_round,):
                break
            self.pass_time(gap_s / 5)
            call, *arguments = steps[0]
            call(*arguments)

    @rule(data=st.data())
    def lose(self, data):
        able = [i for i, state in self.state.items() if state in {"up", "starting"}]
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

    @rule(kind=st.sampled_from(["cold", "patent", "saa"]))
    def tune(self, kind):
        self.take(self.task.set("warmup.planner", kind))

    @precondition(lambda self: self.sent and not self.stopped)
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
    def a_stop_or_a_pause_leaves_no_timer(self):
        """Take back what has not happened by then."""
        if self.task is not None and (self.stopped or self.paused):
            assert "timed" not in self.state.values()

    @invariant()
    def rounds_are_measured_once(self):
        if self.task is not None:
            assert len(set(self.measured)) == len(self.measured)


World.TestCase.settings = settings(max_examples=12, stateful_step_count=15, deadline=None)
TestWorld = World.TestCase


class LongWorld(World):
    """The same, more and longer."""

    copied = True


LongWorld.TestCase.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)


@pytest.mark.slow
class TestLongWorld(LongWorld.TestCase):
    """300 worlds of 60 steps."""
