"""What a node does for a probe, with executors that are played: memory, trials, who is kept and who ends."""

import asyncio
import os
import subprocess
from types import SimpleNamespace

import pytest

from drlnb.records.ids import Fence
from drlnb.runtime.link import Link
from drlnb.runtime.node.seat_trials import SeatTrials
from drlnb.runtime.protocol import to_wire

FENCES = {"0/gpu0/0": Fence(1, 7)}
TRIAL = {"task": "r/a", "n_bytes": 3}


class Executor:
    """An executor that answers at once."""

    def __init__(self, slot, memory=(0, 0, 0), times=(0.5,), fault=""):
        self.slot, self.pids = slot, [os.getpid()]
        self.memory = dict(zip(("seat_bytes", "used_bytes", "total_bytes"), memory, strict=True))
        self.times, self.fault = list(times), fault
        self.asked, self.records, self.ended = [], [], False

    async def wait_up(self, timeout_s):
        if self.fault == "start":
            raise ConnectionError(f"executor {self.slot} is not up after {timeout_s:g} s")

    async def record(self, *, on):
        self.records.append(on)
        return {"tasks": ["r/a"], **self.memory}

    async def ask(self, header, *payloads, timeout_s):
        self.asked.append((header["op"], header["fence"].token))
        if self.fault == header["op"]:
            return {"op": "error", "message": "out of memory"}, b""
        if header["op"] == "trial-export":
            return {"op": "exported", "trials": [] if self.fault == "nothing" else [TRIAL]}, b"abc"
        if header["op"] == "trial-run":
            return {"op": "tried", "times": {"r/a": self.times}, "elapsed_s": sum(self.times)}, b""
        return {"op": "done"}, b""

    async def end(self):
        self.ended = True


@pytest.fixture
def node():
    """Return the plugin beside an agent that makes executors."""
    made = {}

    async def serve(rows):
        for row in rows:
            made.setdefault(row["slot"], Executor(row["slot"]))

    up = []
    slots = SimpleNamespace(serve=serve, executors=made, report_up=lambda executor: up.append(executor.slot))
    plugin = SeatTrials(slots, "0")
    assert sorted(plugin.handlers()) == [
        "drlnb_seats_end", "drlnb_seats_measure", "drlnb_seats_raise", "drlnb_seats_record",
    ]  # fmt: skip
    return SimpleNamespace(plugin=plugin, executors=made, up=up)


def _measure(node, slots, measure_s=1.0):
    return asyncio.run(node.plugin.seats_measure(["0/gpu0/0"], slots, FENCES, measure_s))


def _over_the_wire(node, op, **message):
    """Return the answer to a message as the scheduler gets it."""
    worker = SimpleNamespace(name="0", local_directory=".", handlers={})
    Link(worker).serve(node.plugin.handlers())
    return asyncio.run(worker.handlers[op](**to_wire(message)))


def test_executors_are_started_and_record(node):
    """RAM where the device is virtual: an executor's share is its resident memory."""
    rows = [{"slot": f"0/gpu0/{i}", "device": "cpu:0"} for i in range(2)]
    found = asyncio.run(node.plugin.seats_raise(rows))
    assert 0 < found["seat_bytes"] < found["total_bytes"]
    assert 0 < found["used_bytes"] <= found["total_bytes"]
    assert [one.records for one in node.executors.values()] == [[True], [True]]
    assert asyncio.run(node.plugin.seats_record(["0/gpu0/0"])) == {"tasks": ["r/a"]}


def test_a_cuda_context_counts_though_torch_does_not_see_it(node):
    """Two executors, 6 of 16 in use, 1 each by torch's count: a seat takes at least half of the 6."""
    node.executors["0/gpu0/0"] = Executor("0/gpu0/0", (1, 6, 16))
    node.executors["0/gpu0/1"] = Executor("0/gpu0/1", (1, 5, 16))
    rows = [{"slot": f"0/gpu0/{i}", "device": "cuda:GPU-1"} for i in range(2)]
    assert asyncio.run(node.plugin.seats_raise(rows)) == {"seat_bytes": 3, "used_bytes": 6, "total_bytes": 16}


def test_rounds_are_exported_once_and_loaded_by_whoever_is_new(node):
    """One executor, then two: the second loads what the first has exported; one without a lease takes its fence."""
    node.executors.update({"0/gpu0/0": Executor("0/gpu0/0"), "0/gpu0/1": Executor("0/gpu0/1", times=(0.5, 1.5))})
    assert _measure(node, ["0/gpu0/0"]) == {
        "elapsed_s": [0.5],
        "n_rounds": [{"r/a": 1}],
        "compute_p50_s": {"r/a": 0.5},
        "compute_p95_s": {"r/a": 0.5},
    }
    assert _measure(node, ["0/gpu0/0", "0/gpu0/1"]) == {
        "elapsed_s": [0.5, 2.0],
        "n_rounds": [{"r/a": 1}, {"r/a": 2}],
        "compute_p50_s": {"r/a": 0.5},
        "compute_p95_s": {"r/a": 1.5},
    }
    first, second = node.executors.values()
    assert [op for op, _ in first.asked] == ["trial-export", "trial-load", "trial-run", "trial-run"]
    assert second.asked == [("trial-load", 7), ("trial-run", 7)]


def test_afterwards_some_are_lent_and_the_others_end(node):
    """Kept and adopted executors forget the trial and record no more; adopted ones are told to the pool."""
    for i in range(3):
        node.executors[f"0/gpu0/{i}"] = Executor(f"0/gpu0/{i}")
    _measure(node, list(node.executors))
    kept, adopted, closed = node.executors.values()
    asyncio.run(node.plugin.seats_end(["0/gpu0/0"], ["0/gpu0/1"], ["0/gpu0/2", "0/gpu0/3"], FENCES))
    assert (closed.ended, kept.ended, adopted.ended) == (True, False, False)
    assert list(node.executors) == ["0/gpu0/0", "0/gpu0/1"]
    assert node.up == ["0/gpu0/1"]
    for one in (kept, adopted):
        assert one.records == [False]
        assert one.asked[-1][0] == "trial-end"
    assert node.plugin.trials is None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("nothing", "no task has computed a whole round here"),
        ("trial-load", "executor 0/gpu0/0: out of memory"),
        ("trial-run", "executor 0/gpu0/0: out of memory"),
    ],
)
def test_what_fails_in_a_trial_is_told_in_words(node, fault, reason):
    """The probe ends with the reason; nothing is raised over the wire."""
    node.executors["0/gpu0/0"] = Executor("0/gpu0/0", fault=fault)
    message = {"lent": ["0/gpu0/0"], "slots": ["0/gpu0/0"], "fences": FENCES, "measure_s": 1.0}
    assert _over_the_wire(node, "drlnb_seats_measure", **message) == {"refused": reason}


def test_executors_that_are_missing_or_do_not_start_are_told(node):
    """The names of the slots, and how long was waited."""
    missing = _over_the_wire(node, "drlnb_seats_record", slots=["0/gpu0/9"])
    assert missing == {"refused": "no executor serves 0/gpu0/9 on 0"}
    node.executors["0/gpu0/0"] = Executor("0/gpu0/0", fault="start")
    silent = _over_the_wire(node, "drlnb_seats_raise", slots=[{"slot": "0/gpu0/0", "device": "cpu:0"}])
    assert silent == {"refused": "executor 0/gpu0/0 is not up after 60 s"}


def test_an_executor_that_has_just_died_refuses_the_probe(node):
    """Its memory cannot be read any more; nothing but the probe ends by that."""
    died = subprocess.Popen(["true"])
    died.wait()
    node.executors["0/gpu0/0"] = Executor("0/gpu0/0")
    node.executors["0/gpu0/0"].pids = [died.pid]
    answer = _over_the_wire(node, "drlnb_seats_raise", slots=[{"slot": "0/gpu0/0", "device": "cpu:0"}])
    assert answer == {"refused": "executor 0/gpu0/0 has ended"}
