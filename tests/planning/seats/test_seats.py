"""Executors that share a device: the rules by hand, the machine through a probe, its laws and its replay."""

import json
import random

import pytest

from drlnb.planning.replay import replay
from drlnb.planning.seats.machine import SeatsMachine
from drlnb.planning.seats.rules import (
    SeatsSettings,
    aggregate,
    choose,
    n_seats_problem,
    percentile,
    slowed,
    virtual_limit,
    wait_s,
)
from drlnb.records.errors import ConfigError, InvalidTransition, JournalError
from drlnb.records.journal import StreamOpened, line_of
from drlnb.records.seats import (
    ComputeMeasured,
    MeasureSeats,
    ProbeFailed,
    ProbePlanned,
    RaiseSeats,
    SeatsMeasured,
    SeatsOpened,
    SeatsPlanned,
    SeatsSet,
    SeatsUp,
    SetSeats,
    TaskLeft,
)
from tests.streams import stream_of

GIB = 2**30


class Node:
    """Plays the world for one machine: answers its commands as told, keeps the journal, checks the laws."""

    def __init__(
        self, n_most=4, rates=(1.0, 1.9, 1.9, 1.9), seat_bytes=GIB // 2, used=4 * GIB, total=16 * GIB, **settings
    ):
        self.machine = SeatsMachine(SeatsSettings(**settings))
        self.t = 0.0
        self.rates, self.memory = rates, (seat_bytes, used, total)
        self.records = []
        self.feed(SeatsOpened, device="n0/gpu0", node="n0", n_most=n_most, limit=f"at most {n_most} seats")

    def feed(self, kind, dt=0.1, **fields):
        """Feed an event; return what the machine answers."""
        self.t += dt
        event = kind(t=self.t, **fields)
        answer = self.machine.handle(event)
        self.machine.check()
        self.records += [event, *answer]
        return list(answer)

    def compute(self, task="a", compute_s=1.0, dt=0.1):
        """Let a round of a task be computed."""
        return self.feed(ComputeMeasured, dt, device="n0/gpu0", task=task, compute_s=compute_s)

    def follow(self, answer):
        """Carry out the commands until nothing more follows; return the decisions."""
        decisions, commands = [], list(answer)
        while commands:
            record = commands.pop(0)
            if isinstance(record, RaiseSeats):
                seat, used, total = self.memory
                commands += self.feed(
                    SeatsUp,
                    device=record.device,
                    n_seats=record.n_seats,
                    seat_bytes=seat,
                    used_bytes=used + seat * (record.n_seats - 1),
                    total_bytes=total,
                )
            elif isinstance(record, MeasureSeats):
                commands += self.measured(record)
            elif isinstance(record, SetSeats):
                commands += self.feed(SeatsSet, device=record.device, n_seats=record.n_seats)
            else:
                decisions.append(record)
        return decisions

    def measured(self, command):
        """Tell what so many executors did: with n seats a round takes n / rate(n) as long as alone."""
        n, seconds = command.n_seats, command.measure_s
        each_s = n / self.rates[n - 1]
        return self.feed(
            SeatsMeasured,
            dt=seconds,
            device=command.device,
            n_seats=n,
            elapsed_s=(each_s * 10,) * n,
            n_rounds=({"a": 5, "b": 5},) * n,
            compute_p50_s={"a": each_s, "b": each_s},
            compute_p95_s={"a": 1.1 * each_s, "b": 1.1 * each_s},
        )

    def probe(self, tasks="abcd"):
        """Let tasks compute until the first probe has been carried out; return its decisions."""
        for _ in range(3):
            for task in tasks:
                answer = self.compute(task)
                if answer:
                    return self.follow(answer)
        return []


# -- rules -----------------------------------------------------------------------------------------------------------
def test_work_is_counted_in_seconds_alone():
    """Two executors, 4 rounds of .5 s in 2 s and 1 of 2 s in 4 s, do 1 + .5 seconds of work per second."""
    assert aggregate({"a": 0.5, "b": 2.0}, [{"a": 4}, {"b": 1}], [2.0, 4.0]) == pytest.approx(1.5)
    assert aggregate({"a": 1.0}, [{"a": 3, "unknown": 9}], [3.0]) == pytest.approx(1.0)
    assert aggregate({"a": 1.0}, [{}], [0.0]) == 0.0


@pytest.mark.parametrize(
    ("rates", "n_seats"),
    [
        ([1.0], 1),
        ([1.0, 1.02], 1),  # within 3 % of the best: not worth a context
        ([1.0, 1.05], 2),
        ([1.0, 1.9, 1.95, 1.9], 2),
        ([1.0, 1.5, 2.0, 3.0], 4),
        ([1.0, 0.7, 0.6], 1),
        ([1.0, 0.9, 1.3], 3),
    ],
)
def test_the_fewest_seats_near_the_best_aggregate_are_taken(rates, n_seats):
    """Fewer seats win if they lack at most 3 % of the best."""
    found, reason = choose(rates, 0.03)
    assert found == n_seats
    assert f"{rates[-1]:.2f} x" in reason or len(rates) == 1 or n_seats == 1


def test_reasons_say_the_numbers():
    """What a person reads names the gain and what more seats would do."""
    assert choose([1.0, 1.8, 1.82], 0.03)[1] == "2 seats do 1.80 x the work of one (3: 1.82 x)"
    assert choose([1.0, 0.8], 0.03)[1] == "one seat does as much as more (2: 0.80 x)"


@pytest.mark.parametrize("seats", [0, -1, 5, 1.0, True, "two", "", None])
def test_a_wrong_number_of_seats_is_named_with_its_limits(seats):
    """0, negative, above the limit, another type or another word: one line that says what would be right."""
    problem = n_seats_problem(seats)
    assert problem == f"seats must be 'auto' or a whole number from 1 to 4, got {seats!r}"


@pytest.mark.parametrize("seats", [1, 2, 4, "auto"])
def test_a_right_number_of_seats_is_no_problem(seats):
    """1 to 4 and auto are right."""
    assert n_seats_problem(seats) == ""


def test_virtual_devices_share_the_cores():
    """Never more virtual seats than cores: 2 cores carry 2 seats of one device, or 1 of each of two."""
    assert virtual_limit(2, 1, 4) == (2, "2 CPU cores")
    assert virtual_limit(2, 2, 4) == (1, "2 CPU cores for 2 devices")
    assert virtual_limit(1, 1, 4) == (1, "1 CPU core")
    assert virtual_limit(64, 2, 4) == (4, "at most 4 seats")


def test_percentiles_are_values_of_the_sample():
    """The smallest value that is not below the share: of 20 values the 19th is p95, the 10th p50."""
    values = list(range(20, 0, -1))
    assert percentile(values, 0.95) == 19
    assert percentile(values, 0.5) == 10
    assert percentile([7.0], 0.95) == 7.0


@pytest.mark.parametrize(
    ("p50", "p95", "rates", "n_seats", "shrinks"),
    [
        (1.4, 1.5, [1.0, 1.1], 2, False),  # not above 1.5
        (1.4, 1.51, [1.0, 1.1], 2, True),  # 1.1 / 1.4 < 1
        (1.4, 1.51, [1.0, 1.9], 2, False),  # 1.9 / 1.4 > 1: even so 2 seats do more
        (2.0, 3.0, [1.0, 1.9], 2, True),
        (1.3, 2.0, [1.0, 1.8, 2.0], 3, True),  # 2.0 / 1.3 < 1.8
    ],
)
def test_slow_rounds_take_a_seat_away_unless_it_still_pays(p50, p95, rates, n_seats, shrinks):
    """p95 above 1.5 x its probe takes a seat, unless what the seats still do is more than fewer did."""
    assert bool(slowed(p50, p95, rates, n_seats, SeatsSettings())) is shrinks


def test_the_pause_between_probes_doubles():
    """60 s, then twice as long with each probe that changed nothing, at most 16 minutes."""
    assert [wait_s(n, SeatsSettings()) for n in (0, 1, 4, 5, 1000)] == [60.0, 120.0, 960.0, 960.0, 960.0]


def test_wrong_settings_are_told_together():
    """Every wrong value is named in one error."""
    with pytest.raises(ConfigError, match=r"n_most.*0(.|\n)*probe_s.*-1(.|\n)*settle_s.*nan"):
        SeatsSettings(n_most=0, probe_s=-1, settle_s=float("nan"))


# -- the machine -----------------------------------------------------------------------------------------------------
def test_a_probe_keeps_the_number_with_the_best_aggregate():
    """Four tasks, rates 1, 1.9, 1.9, 1.9: 2 seats; measured one after the other, 5 s in all."""
    node = Node()
    planned, chosen = node.probe()
    assert planned == ProbePlanned.match(device="n0/gpu0", n_most=4, reason="the first tasks are resident")
    assert chosen == SeatsPlanned.match(device="n0/gpu0", n_seats=2)
    assert chosen.rates == pytest.approx((1.0, 1.9, 1.9, 1.9))
    assert chosen.reason == "2 seats do 1.90 x the work of one (3: 1.90 x, 4: 1.90 x)"
    measured = [record for record in node.records if isinstance(record, MeasureSeats)]
    assert [record.n_seats for record in measured] == [1, 2, 3, 4, 4, 3, 2, 1]
    assert sum(record.measure_s for record in measured) == pytest.approx(5.0)
    assert node.machine.seats == {"n0/gpu0": 2}


def test_a_machine_that_gets_busier_meanwhile_favours_no_number():
    """Each round takes longer than the one before: measured up and down, 2 seats do as much as one, not less."""
    node = Node(n_most=2)
    busy = iter((1.0, 1.2, 1.4, 1.6))

    def measured(command):
        each_s = next(busy) * command.n_seats
        times = {"a": each_s, "b": each_s, "too short to be timed": 0.0}
        return node.feed(
            SeatsMeasured,
            device=command.device,
            n_seats=command.n_seats,
            elapsed_s=(2 * each_s,) * command.n_seats,
            n_rounds=({"a": 1, "b": 1},) * command.n_seats,
            compute_p50_s=times,
            compute_p95_s=times,
        )

    node.measured = measured
    _, chosen = node.probe("ab")
    # alone (1 + 1.6) / 2 = 1.3: 1.3 / 1 and 1.3 / 1.6, mean 1.056; with two 1.3 / 1.2 and 1.3 / 1.4, mean 1.006.
    assert chosen.rates == pytest.approx((1.0, 1.006 / 1.056), abs=1e-3)
    assert node.compute("too short to be timed") == []


def test_a_probe_after_which_more_seats_were_left_is_repeated():
    """Something else may have used the machine: two minutes later it is looked at again; at the most, it is not."""
    node = Node(rates=(1.0, 0.6, 0.6, 0.6))
    node.probe("ab")
    assert node.machine.seats == {"n0/gpu0": 1}
    assert node.compute("a", dt=110.0) == []
    assert node.compute("a", dt=10.0)[0] == ProbePlanned.match(reason="more seats did not pay when it was probed last")
    most = Node(n_most=2)
    most.probe("ab")
    assert most.machine.seats == {"n0/gpu0": 2}
    assert most.compute("a", dt=10_000.0) == []


def test_no_probe_before_every_task_has_computed_twice():
    """A task that comes newly sets the count back: with one round of it nothing is probed."""
    node = Node()
    assert node.compute("a") == node.compute("a") == node.compute("a") == []
    assert node.compute("b") == node.compute("a") == node.compute("a") == []
    assert node.compute("b") == [ProbePlanned.match(n_most=2), RaiseSeats(device="n0/gpu0", n_seats=1)]


def test_one_task_alone_is_not_probed():
    """A task holds one lease at a time: a second seat would be idle."""
    node = Node()
    assert [node.compute("a") for _ in range(50)] == [[]] * 50


def test_no_more_seats_are_tried_than_tasks_compute_there():
    """Three tasks: 1, 2, 3 seats are measured, and the reason says why no more."""
    node = Node(rates=(1.0, 2.0, 3.0))
    _, chosen = node.probe("abc")
    assert chosen.n_seats == 3
    assert chosen.reason.endswith("no more were tried: 3 tasks compute here")


def test_memory_bounds_what_is_tried():
    """A seat of 5 GiB, 4 of 16 GiB used: 9 fit below 90 % (14.4 GiB), 14 fit, 19 do not: 3 seats at most."""
    node = Node(rates=(1.0, 2.0, 3.0, 4.0), seat_bytes=5 * GIB)
    _, chosen = node.probe()
    assert chosen.n_seats == 3
    assert chosen.reason.endswith("no more were tried: one more would use 19.0 GiB of 16.0 GiB")
    full = Node(used=15 * GIB)
    (_, chosen) = full.probe()
    assert chosen == SeatsPlanned.match(n_seats=1, rates=(), reason="one seat: one more would use 15.5 GiB of 16.0 GiB")


def test_a_device_with_one_seat_says_why_at_once():
    """Where no second seat fits, that is decided when the device comes, and nothing is ever probed."""
    node = Node(n_most=1)
    assert node.records[1] == SeatsPlanned.match(n_seats=1, reason="one seat: at most 1 seats")
    assert node.probe() == []


#: Seconds of a round that are 1.6 x its 95th percentile with two seats in the probe.
_SLOW = 1.6 * 1.1 * 2 / 1.2


def _train(node, tasks, compute_s, dt, seconds):
    """Let rounds end every `dt` seconds; return the first answer."""
    for n in range(round(seconds / dt)):
        if answer := node.compute(tasks[n % len(tasks)], compute_s, dt=dt):
            return answer
    return []


def test_fewer_seats_that_do_as_much_in_training_stay():
    """5 s at 1.6 x the probe's: one seat less; it does 8 rounds a second as the two did; 60 s x 2 later a probe."""
    node = Node(rates=(1.0, 1.2, 1.2, 1.2))
    node.probe()
    (shrunk,) = node.follow(_train(node, "ab", _SLOW, 0.125, 6.0))
    assert shrunk == SeatsPlanned.match(n_seats=1)
    assert shrunk.reason.startswith("p95 of compute is 1.60 x its probe")
    assert _train(node, "ab", 1.0, 0.125, 30.0) == []
    assert node.machine.seats == {"n0/gpu0": 1}
    answer = _train(node, "ab", 1.0, 1.0, 120.0)
    assert answer[0] == ProbePlanned.match(reason="rounds were slow when it was probed last")


def test_a_seat_comes_back_if_fewer_do_less_in_training():
    """Two seats did 8 rounds a second, one does 5: 0.62 x; the seat is back at once, and stays for 2 minutes."""
    node = Node(n_most=2, rates=(1.0, 1.2))
    node.probe()
    node.follow(_train(node, "ab", _SLOW, 0.125, 6.0))
    assert node.machine.seats == {"n0/gpu0": 1}
    (back,) = node.follow(_train(node, "ab", 1.0, 0.2, 6.0))
    assert back == SeatsPlanned.match(n_seats=2)
    assert back.reason.startswith("in training 1 did 0.6")
    assert node.machine.seats == {"n0/gpu0": 2}
    assert _train(node, "ab", _SLOW, 0.125, 100.0) == []
    (again,) = node.follow(_train(node, "ab", _SLOW, 0.125, 30.0))
    assert again.n_seats == 1


def test_a_seat_comes_back_once_no_other_device_is_probed():
    """Fewer did less, but another device is being probed: it is judged again when that is over."""
    node = Node(n_most=2, rates=(1.0, 1.2))
    node.probe("ab")
    node.follow(_train(node, "ab", _SLOW, 0.125, 6.0))
    assert node.machine.seats == {"n0/gpu0": 1}
    node.feed(SeatsOpened, device="n0/gpu1", node="n0", n_most=2, limit="at most 2 seats")
    answers = [node.feed(ComputeMeasured, device="n0/gpu1", task=task, compute_s=1.0) for task in "cdcdc"]
    begun = next(answer for answer in answers if answer)
    assert begun[0] == ProbePlanned.match(device="n0/gpu1")
    assert _train(node, "ab", 1.0, 0.2, 6.0) == []
    node.follow(begun)
    (back,) = node.follow(_train(node, "ab", 1.0, 0.2, 12.0))
    assert back == SeatsPlanned.match(device="n0/gpu0", n_seats=2)


def test_a_trial_ends_when_other_tasks_compute():
    """What a task more does is no measure of the seats."""
    node = Node(rates=(1.0, 1.2, 1.2, 1.2))
    node.probe()
    node.follow(_train(node, "ab", _SLOW, 0.125, 6.0))
    node.compute("e")
    assert _train(node, "abe", 1.0, 0.2, 30.0) == []
    assert node.machine.seats == {"n0/gpu0": 1}


def test_rounds_during_a_probe_are_counted_and_begin_nothing():
    """Two tasks compute here; while the probe raises seats, a round is answered by nothing."""
    node = Node()
    answers = [node.compute(task) for task in "ababa"]
    assert answers[-1][0] == ProbePlanned.match(device="n0/gpu0")
    assert node.compute("a") == []
    assert node.machine.n_tasks("n0/gpu0") == 2


def test_one_task_on_one_seat_is_not_probed_again():
    """More seats did not pay for two tasks; one of them leaves, and the other has nobody to share with."""
    node = Node(rates=(1.0, 1.0, 1.0, 1.0))
    node.probe("ab")
    assert node.machine.seats == {"n0/gpu0": 1}
    node.feed(TaskLeft, task="b")
    assert all(node.compute("a", dt=200.0) == [] for _ in range(4))


def test_time_to_settle_is_needed():
    """Rounds right after a change are no measure of the seats."""
    with pytest.raises(ConfigError, match="settle_s must be a number from 1e-9 to 1e9, got 0"):
        SeatsSettings(settle_s=0)


def test_rounds_as_in_the_probe_change_nothing():
    """Rounds up to 1.5 x the probe's 95th percentile are no reason."""
    node = Node()
    node.probe()
    each = 2 / 1.9 * 1.1 * 1.49
    assert all(node.compute(task, each, dt=0.1) == [] for task in "abababab" * 20)
    assert node.feed(TaskLeft, task="of another device") == []


def test_other_tasks_are_a_reason_to_probe_again_but_not_at_once():
    """A task that comes later leads to another probe once it has computed twice and a minute has passed."""
    node = Node(rates=(1.0, 2.0, 3.0, 4.0))
    _, chosen = node.probe("ab")
    assert chosen.n_seats == 2
    assert [node.compute(task) for task in "cabcab"] == [[]] * 6
    planned, chosen = node.follow(node.compute("c", dt=60.0))
    assert planned.reason == "other tasks are resident"
    assert chosen.n_seats == 3


def test_one_task_left_needs_one_seat():
    """When all but one have ended, the other seats go without a probe."""
    node = Node()
    node.probe("ab")
    assert node.feed(TaskLeft, task="b") == []
    (chosen,) = node.follow(node.compute("a", dt=61.0))
    assert chosen == SeatsPlanned.match(n_seats=1, reason="one seat: one task computes here")


def test_a_probe_that_fails_leaves_the_seats_as_they_were():
    """The plan says why; nothing was measured; the next try comes later."""
    node = Node()
    node.probe()
    for task in "xyxyabcd" * 2:
        node.compute(task)
    begun = node.compute("x", dt=61.0)
    assert begun[0] == ProbePlanned.match(n_most=4)
    failed = node.feed(ProbeFailed, device="n0/gpu0", reason="an executor died")
    assert node.follow(failed) == [
        SeatsPlanned.match(n_seats=2, rates=(), reason="as before: the probe failed (an executor died)")
    ]
    assert node.feed(ProbeFailed, device="n0/gpu0", reason="late") == []
    assert node.compute("x", dt=100.0) == []


def test_one_device_is_probed_at_a_time():
    """While one is measured another waits, since they share the machine."""
    node = Node()
    node.feed(SeatsOpened, device="n0/gpu1", node="n0", n_most=4, limit="at most 4 seats")
    for task in "ababa":
        begun = node.compute(task)
    assert begun
    others = [node.feed(ComputeMeasured, device="n0/gpu1", task=task, compute_s=1.0) for task in "cdcdcd"]
    assert others == [[]] * 6
    node.follow(begun)
    assert node.feed(ComputeMeasured, device="n0/gpu1", task="c", compute_s=1.0)[0] == ProbePlanned.match(
        device="n0/gpu1"
    )


@pytest.mark.parametrize(
    "event",
    [
        SeatsOpened(t=9.0, device="n0/gpu0", node="n0", n_most=4, limit=""),
        SeatsOpened(t=9.0, device="n0/gpu7", node="n0", n_most=0, limit=""),
        ComputeMeasured(t=9.0, device="n1/gpu0", task="a", compute_s=1.0),
        ComputeMeasured(t=0.0, device="n0/gpu0", task="a", compute_s=1.0),
        ComputeMeasured(t=float("nan"), device="n0/gpu0", task="a", compute_s=1.0),
        SeatsSet(t=9.0, device="n0/gpu0", n_seats=1),
        SeatsUp(t=9.0, device="n0/gpu0", n_seats=1, seat_bytes=1, used_bytes=1, total_bytes=1),
    ],
)
def test_what_cannot_be_is_refused_loudly(event):
    """A device that is unknown or comes twice, an answer that nobody asked for, an older time: a defect of ours."""
    with pytest.raises(InvalidTransition):
        Node().machine.handle(event)


def test_a_measurement_out_of_turn_is_refused():
    """Rates are measured for 1, 2, 3 ... seats in this order."""
    node = Node()
    for task in "ababa":
        begun = node.compute(task)
    assert begun
    node.feed(SeatsUp, device="n0/gpu0", n_seats=2, seat_bytes=1, used_bytes=1, total_bytes=9)
    with pytest.raises(InvalidTransition):
        node.measured(MeasureSeats(device="n0/gpu0", n_seats=2, measure_s=1.0))


def _story(seed):
    """Play a random life of a device: tasks come and go, rounds get slow, probes fail."""
    draw = random.Random(seed)
    node = Node(rates=tuple(draw.uniform(0.8, 1.2) * n**0.7 for n in range(1, 5)), again_s=5.0)
    tasks = ["a", "b"]
    for _ in range(300):
        what = draw.random()
        if what < 0.03:
            tasks.append(f"t{draw.randrange(20)}")
        elif what < 0.05 and len(tasks) > 1:
            node.feed(TaskLeft, task=tasks.pop(0))
        answer = node.compute(draw.choice(tasks), draw.choice((1.0, 1.0, 4.0)))
        json.dumps(node.machine.snapshot())
        if answer and isinstance(answer[-1], RaiseSeats) and draw.random() < 0.3:
            answer = node.feed(ProbeFailed, device="n0/gpu0", reason="drawn")
        node.follow(answer)
    return node


@pytest.mark.parametrize("seed", range(5))
def test_fresh_machines_decide_the_same_again(seed):
    """A journal of any life replays exactly, from its beginning and from a snapshot in its midst."""
    node = _story(seed)
    header = StreamOpened(
        stream="seats-e1", machine="seats", config=node.machine.config, origin="simulated", version="0"
    )
    lines = [line_of(record) for record in (header, *node.records)]
    assert replay(stream_of(lines, source="j")).difference is None
    cut = next(i for i, record in enumerate(node.records) if i > 150 and record.letter == "e")
    before = SeatsMachine(node.machine.settings)
    for record in node.records[:cut]:
        if record.letter == "e":
            before.handle(record)
    state = json.loads(json.dumps(before.snapshot()))
    later = StreamOpened(
        stream="s", machine="seats", config=node.machine.config, snapshot=state, origin="simulated", version="0"
    )
    lines = [line_of(record) for record in (later, *node.records[cut:])]
    assert replay(stream_of(lines, source="j")).difference is None


def test_a_journal_with_an_unknown_setting_is_refused():
    """A header of a later version names what is unknown."""
    header = StreamOpened(stream="s", machine="seats", config={"n_chairs": 3}, origin="simulated", version="0")
    with pytest.raises(JournalError, match="n_chairs"):
        replay(stream_of([line_of(header)], source="j"))


def test_laws_that_are_broken_are_named():
    """`check` fails when a device has more seats than it may."""
    node = Node()
    snapshot = node.machine.snapshot()
    next(iter(snapshot["devices"].values()))["n_seats"] = 9
    node.machine.restore(snapshot)
    with pytest.raises(AssertionError, match="seats are from 1 to the most"):
        node.machine.check()
