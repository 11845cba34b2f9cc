"""Laws of the warm-up machine where collectors wait for CPU slots, in every mode and order of events.

The world here keeps the processes and the queue by itself; slots come and are taken back whenever hypothesis likes.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from warmup_words import Starts

from drlnb.records.columns.warmup import ParkCollector, RevokeStart, StartCollector, StopCollector, WarmupMeasured

N = 3


class World(RuleBasedStateMachine):
    """Three collectors on two nodes, whose CPU slots are few in some rounds and enough in others."""

    #: Whether each event is given to a restored copy, too: slow.
    copied = False

    @initialize(
        planner=st.sampled_from(["saa", "seed", "cold", "keep"]),
        mode=st.sampled_from(["park", "park", "respawn", "keep"]),
        wait_s=st.sampled_from([0.0, 1.0, 9.0]),
    )
    def open(self, planner, mode, wait_s):
        self.task = Starts(N, nodes=["n0", "n0", "n1"], planner=planner, collector_mode=mode)
        self.task.copied = self.copied
        self.task.open()
        self.wait_s, self.n_sharing = wait_s, 2
        #: Collector -> ``up``, ``off`` (its process ended), ``asked`` (its process is to be started), ``dead``.
        self.process = dict.fromkeys(range(N), "up")
        #: Parked collectors that have asked for a slot ahead, and those that have it.
        self.asks, self.has = set(), set()
        self.sent, self.here, self.stage = set(), set(), 0
        self.stopped = self.paused = False
        self.measured = []

    def take(self, records):
        for record in records:
            i = getattr(record, "collector", None)
            if isinstance(record, StopCollector):
                assert self.process[i] == "up", "only who is up is stopped"
                self.process[i] = "off"
            elif isinstance(record, ParkCollector):
                assert self.process[i] == "up", "only who is up is parked"
            elif isinstance(record, StartCollector):
                assert not self.stopped, "no start after a stop"
                assert record.round == self.task.round + 1, "a start is for the next round"
                assert record.parked == (self.process[i] == "up"), "a process that lives is not started again"
                if record.parked:
                    self.asks.add(i)
                else:
                    self.process[i] = "asked"
            elif isinstance(record, RevokeStart):
                assert record.parked == (self.process[i] == "up"), "a process that lives on is not ended"
                if record.parked:
                    assert i in self.asks, "only a place that was asked for is taken back"
                    self.asks.discard(i)
                else:
                    self.process[i] = "off"
            elif isinstance(record, WarmupMeasured):
                pairs = zip(record.early_s, record.late_s, strict=True)
                assert all(early == 0.0 or late == 0.0 for early, late in pairs)
                self.measured.append(record.round)

    def send(self, i, *, keeps):
        queued_s = 0.0 if i in self.has else self.wait_s
        self.sent.add(i)
        self.asks.discard(i), self.has.discard(i)
        self.take(
            self.task.arrived(
                i, queued_s=queued_s, n_cpu_slots=1, n_sharing=self.n_sharing,
                keeps_cpu=keeps and self.task.machine.state.keeps_cpu,
            )
        )  # fmt: skip

    def work(self):
        self.stage += 1
        words = self.task.granted if self.stage == 1 else self.task.made if self.stage == 5 else None
        self.take(words() if words else self.task.computed(self.stage - 2))

    def publish(self, host):
        self.here.add(host)
        self.take(self.task.completed(host))

    def steps(self, *, keeps=False):
        """Return what may happen next, the most natural first."""
        up = [i for i in range(N) if self.process[i] == "up"]
        steps = [(self.send, i) for i in up if i not in self.sent and not self.here]
        steps = [(lambda call=call, i=i: call(i, keeps=keeps)) for call, i in steps]
        steps += [(lambda i=i: self.be_ready(i)) for i in range(N) if self.process[i] in {"dead", "asked"}]
        if self.sent and self.stage < 5:
            steps.append(self.work)
        if len(self.sent) == N and self.stage == 5:
            steps += [(lambda host=host: self.publish(host)) for host in ("n0", "n1") if host not in self.here]
        if len(self.here) == 2 and len(up) == N:
            steps.append(self.next_round)
        return steps

    def be_ready(self, i):
        self.process[i] = "up"
        self.take(self.task.ready(i))

    def next_round(self):
        self.sent.clear(), self.here.clear()
        self.stage = 0
        self.task.round += 1

    @rule(laters=st.lists(st.sampled_from([0.0, 0.25, 1.0, 4.0]), min_size=2, max_size=6), data=st.data())
    def go_on(self, laters, data):
        for later in laters:
            self.task.t += later
            steps = self.steps(keeps=data.draw(st.booleans()))
            if steps:
                data.draw(st.sampled_from([steps[0], steps[0], steps[-1]]))()

    @rule(n=st.integers(1, 4))
    def go_through(self, n):
        """Make whole rounds: nobody is forgotten, whatever happened before."""
        if self.paused or self.stopped:
            return
        goal = self.task.round + n
        for _ in range(n * 40):
            steps = self.steps()
            assert steps, "nothing can happen any more"
            self.task.t += 0.5
            steps[0]()
            if self.task.round == goal:
                break
        assert self.task.round == goal, "the round hangs"

    @rule(data=st.data())
    def be_lent_a_slot(self, data):
        """Have the slot that a parked collector asked for ahead."""
        if self.asks:
            i = data.draw(st.sampled_from(sorted(self.asks)))
            self.asks.discard(i)
            self.has.add(i)
            self.take(self.task.has_slot(i))

    @rule(data=st.data())
    def lose_a_slot(self, data):
        """Somebody who can act has taken it."""
        if self.has:
            self.has.discard(data.draw(st.sampled_from(sorted(self.has))))

    @rule(data=st.data())
    def lose(self, data):
        able = [i for i, state in self.process.items() if state in {"up", "asked"}]
        if able and not self.stopped:
            i = data.draw(st.sampled_from(able))
            self.process[i] = "dead"
            self.asks.discard(i), self.has.discard(i)
            self.take(self.task.lost(i))

    @rule(n=st.integers(1, 2))
    def share(self, n):
        """Another task comes or goes."""
        self.n_sharing = n

    @rule(mode=st.sampled_from(["park", "respawn", "keep"]))
    def choose(self, mode):
        self.take(self.task.set("warmup.collector_mode", mode))

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

    @precondition(lambda self: self.sent and not self.stopped and self.task.round > 4)
    @rule()
    def stop(self):
        self.take(self.task.stop())
        self.stopped = True

    @invariant()
    def rounds_are_measured_once(self):
        if hasattr(self, "task"):
            assert len(set(self.measured)) == len(self.measured)

    @invariant()
    def nobody_whose_parameters_are_here_is_left(self):
        if hasattr(self, "task") and not (self.paused or self.stopped):
            for i in self.sent:
                assert not (self.task.nodes[i] in self.here and self.process[i] == "off"), f"{i} was forgotten"


World.TestCase.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)
TestWorld = World.TestCase


class LongWorld(World):
    """The same, more and longer."""

    copied = True


LongWorld.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestLongWorld(LongWorld.TestCase):
    """100 worlds of 30 steps."""
