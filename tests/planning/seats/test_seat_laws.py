"""Laws of the seats machine under any order of what devices and tasks do; the world here keeps its own count."""

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drlnb.planning.seats.machine import SeatsMachine
from drlnb.planning.seats.rules import SeatsSettings, levels
from drlnb.records import seats as records
from drlnb.records.base import from_plain

DEVICES, TASKS, GIB = ("n0/gpu0", "n0/gpu1"), ("a", "b", "c", "d"), 2**30
devices, tasks = st.sampled_from(DEVICES), st.sampled_from(TASKS)


class World(RuleBasedStateMachine):
    """Two devices: executors start, compute together or fail to; tasks come, compute and leave."""

    @initialize(most=st.tuples(st.integers(1, 4), st.integers(1, 4)), memory=st.sampled_from([0.9, 0.3]))
    def begin(self, most, memory):
        self.settings = SeatsSettings(again_s=5.0, settle_s=1.0, fewest=3, memory_frac=memory)
        self.machine = SeatsMachine(self.settings)
        self.t, self.history, self.due, self.most = 0.0, [], {}, dict(zip(DEVICES, most, strict=True))
        #: Device -> seats that the pool has, executors that are up, levels measured in the probe in hand.
        self.pool, self.up, self.measured = dict.fromkeys(DEVICES, 1), dict.fromkeys(DEVICES, 1), {}
        for device, n_most in self.most.items():
            self.feed(records.SeatsOpened, device=device, node="n0", n_most=n_most, limit=f"at most {n_most} seats")

    def feed(self, kind, **values):
        event = kind(t=self.t, **values)
        if len(self.history) % 8 == 3:
            copy = SeatsMachine(self.settings)
            copy.restore(from_plain(json.loads(json.dumps(self.machine.snapshot()))))
            expected = copy.handle(event)
            answer = self.machine.handle(event)
            assert expected == answer
            assert copy.snapshot() == self.machine.snapshot()
        else:
            answer = self.machine.handle(event)
        self.machine.check()
        self.history.append((event, answer))
        for record in answer:
            self.follow(record)
        return answer

    def follow(self, record):
        """Keep each command until it is carried out; a device has one at a time."""
        device = record.device
        if isinstance(record, records.ProbePlanned):
            assert all(other == device or other not in self.due for other in DEVICES), "one device at a time"
            assert 2 <= record.n_most <= self.most[device]
            self.measured[device] = []
        elif isinstance(record, records.SeatsPlanned):
            assert 1 <= record.n_seats <= self.most[device], "what is planned fits"
            assert record.reason
            assert record.rates == () or record.rates[0] in {0.0, 1.0}, "relative to one seat"
        else:
            assert device not in self.due, "the one before has been answered"
            self.due[device] = record
            if isinstance(record, records.RaiseSeats):
                assert self.up[device] <= record.n_seats <= max(self.up[device] + 1, self.pool[device])
            elif isinstance(record, records.MeasureSeats):
                assert record.n_seats <= self.up[device], "who is measured is up"
                assert record.measure_s > 0

    # ------------------------------------------------------------------ tasks
    @rule(device=devices, computed=st.lists(st.tuples(tasks, st.sampled_from([0.5, 1.0, 1.0, 4.0])), max_size=8))
    def compute(self, device, computed):
        for task, compute_s in computed:
            self.t += compute_s / 4
            self.feed(records.ComputeMeasured, device=device, task=task, compute_s=compute_s)

    @rule(task=tasks)
    def leave(self, task):
        assert self.feed(records.TaskLeft, task=task) == ()
        assert self.feed(records.TaskLeft, task=task) == (), "twice is once"

    @rule(seconds=st.sampled_from([1.0, 6.0, 70.0]))
    def wait(self, seconds):
        self.t += seconds

    # ------------------------------------------------------------------ devices carry out what they are told
    @precondition(lambda self: self.due)
    @rule(data=st.data(), n=st.sampled_from([3, 40, 40]))
    def carry_out(self, data, n):
        """Go on with the probe, for some steps."""
        for _ in range(n):
            if not self.due:
                return
            device, command = next(iter(self.due.items()))
            del self.due[device]
            self.t += 0.1
            if isinstance(command, records.RaiseSeats):
                self.up[device] = command.n_seats
                self.feed(
                    records.SeatsUp, device=device, n_seats=command.n_seats, seat_bytes=GIB,
                    used_bytes=command.n_seats * GIB, total_bytes=8 * GIB,
                )  # fmt: skip
            elif isinstance(command, records.MeasureSeats):
                self.measure(device, command, data.draw(st.sampled_from([0.5, 1.0, 2.0])))
            else:
                assert isinstance(command, records.SetSeats)
                self.pool[device] = self.up[device] = command.n_seats
                assert self.feed(records.SeatsSet, device=device, n_seats=command.n_seats) == ()

    def measure(self, device, command, compute_s):
        self.measured[device].append(command.n_seats)
        n = command.n_seats
        known = [*self.machine.state.devices[device].probed] or ["a"]
        self.feed(
            records.SeatsMeasured, device=device, n_seats=n, elapsed_s=(1.0,) * n,
            n_rounds=tuple(dict.fromkeys(known, 2) for _ in range(n)),
            compute_p50_s=dict.fromkeys(known, compute_s), compute_p95_s=dict.fromkeys(known, 1.5 * compute_s),
        )  # fmt: skip
        if not isinstance(self.due.get(device), records.MeasureSeats):
            order = self.measured.pop(device)
            assert tuple(order) == levels(max(order)), "each number was measured twice, in turn"

    @precondition(lambda self: self.due)
    @rule(data=st.data())
    def fail(self, data):
        """Carry a probe through no further: the seats stay as they were."""
        device = data.draw(st.sampled_from(sorted(self.due)))
        if isinstance(self.due[device], records.SetSeats):
            assert self.feed(records.ProbeFailed, device=device, reason="late") == ()
            return
        del self.due[device]
        before = self.machine.seats[device]
        planned, _ = self.feed(records.ProbeFailed, device=device, reason="drawn")
        assert (planned.n_seats, planned.rates) == (before, ())
        self.measured.pop(device, None)

    # ------------------------------------------------------------------ laws
    @invariant()
    def seats_are_those_that_were_set(self):
        if hasattr(self, "machine"):
            for device, n_seats in self.machine.seats.items():
                if device not in self.due:
                    assert n_seats == self.pool[device]

    def teardown(self):
        """Decide all of it again by the events alone."""
        if hasattr(self, "machine"):
            again = SeatsMachine(self.settings)
            for event, answer in self.history:
                assert again.handle(event) == answer
            assert again.snapshot() == self.machine.snapshot()


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
