"""Fresh machines, fed the events of a run, decide the same again; and where they do not, the first place is named."""

import json
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from round_words import Master

from drlnb.planning import replay as replay_module
from drlnb.planning.replay import fresh_machine, replay
from drlnb.planning.round.machine import RoundMachine
from drlnb.records import round as words
from drlnb.records.errors import JournalError
from drlnb.records.journal import Journal, StreamOpened, line_of, read_stream
from drlnb.records.packed import Packer
from drlnb.sim.costs import Costs
from drlnb.sim.training.fleet import run_tasks
from tests.streams import stream_of

GOLDEN = Path(__file__).parents[1] / "journals"


def header(**changes):
    master = Master()
    return StreamOpened(
        **{
            "stream": "task-a-a1",
            "machine": "round",
            "config": master.machine.config,
            "origin": "simulated",
            "version": "0",
        }
        | changes
    )


@pytest.fixture
def lines():
    """Return the lines of a whole task's stream."""
    master = Master(n_rounds=2)
    master.at_version_1()
    master.to_commit()
    master.completed()
    master.to_commit()
    master.to_end()
    assert master.phase == "ended"
    return [line_of(record) for record in (header(config=master.machine.config), *master.records)]


def replayed(lines):
    return replay(stream_of(lines, source="j"))


@pytest.mark.parametrize("name", ["faults", "two-tasks-one-slot"])
def test_a_packed_journal_says_the_same_in_less_than_half(tmp_path, name):
    """Every stream replays from its short lines; cut anywhere, its whole lines do."""
    for stream in Journal.read(GOLDEN / name).streams.values():
        lines = list(map(Packer().line, (stream.header, *stream.records)))
        path = tmp_path / f"{stream.header.stream}.jsonl"
        path.write_text("".join(lines))
        assert path.stat().st_size < sum(map(len, map(line_of, stream.records))) / 2
        again = replay(read_stream(path))
        assert (again.difference, again.n_records) == (None, len(lines) - 1)
        path.write_text("".join(lines[:-20]) + lines[-20][:5])
        again = replay(read_stream(path))
        assert (again.difference, again.n_records) == (None, len(lines) - 21)


def place(lines, kind):
    """Return the index of the first line of a class."""
    return next(i for i, line in enumerate(lines) if json.loads(line)["r"] == kind)


def edited(lines, i, **changes):
    row = json.loads(lines[i]) | changes
    return [*lines[:i], json.dumps(row) + "\n", *lines[i + 1 :]]


def test_a_stream_replays_exactly(lines):
    """Every record is decided again; the counts are those of the file."""
    result = replayed(lines)
    assert result.difference is None
    assert result.stream == "task-a-a1"
    assert result.n_records == len(lines) - 1
    assert result.counts["MetricsRecorded"] == 2
    assert result.n_events == sum(json.loads(line)["k"] == "e" for line in lines)


@pytest.mark.thorough
def test_a_stream_may_end_anywhere(lines):
    """Its process was killed between two writes, or within one."""
    for n in range(1, len(lines)):
        assert replayed(lines[:n]).difference is None
        assert replayed([*lines[:n], lines[n][:9]]).difference is None


def test_a_short_answer_before_another_event_is_a_difference(lines):
    """Nothing was written after it by the process that was killed."""
    last = max(i for i, line in enumerate(lines) if json.loads(line)["k"] == "e")
    assert "answers, journalled were" in replayed([*lines[: last - 1], *lines[last:]]).difference


def test_a_torn_stream_must_agree_as_far_as_it_goes(lines):
    """A changed decision before the torn line is found."""
    changed = edited(lines, len(lines) - 2, phase="paused")
    assert "journalled was" in replayed([*changed[:-1], lines[-1][:9]]).difference


def test_a_changed_decision_is_named(lines):
    """Source, event, time and both answers are in the message."""
    i = place(lines, "MetricsRecorded")
    difference = replayed(edited(lines, i, n_timesteps=17)).difference
    assert difference.startswith("j: event ")
    assert "(ParametersCommitted, t=" in difference
    assert "'n_timesteps': 16" in difference
    assert "'n_timesteps': 17" in difference


def test_a_removed_decision_is_named(lines):
    """The answer that follows stands in its place."""
    i = place(lines, "ReturnLease")
    assert "(ParametersCommitted" in replayed(lines[:i] + lines[i + 1 :]).difference


def test_a_removed_event_is_named(lines):
    """Its answer then belongs to the event before it."""
    i = place(lines, "LeaseReceived")
    assert "2 answers, journalled were 4" in replayed(lines[:i] + lines[i + 1 :]).difference


def test_a_changed_time_is_named(lines):
    """Scalars of a round depend on the time of its commit."""
    i = [k for k, line in enumerate(lines) if json.loads(line)["r"] == "ParametersCommitted"][1]
    difference = replayed(edited(lines, i, t=json.loads(lines[i])["t"] + 0.25)).difference
    assert "round/time_s" in difference


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("LeaseReceived", {"t": -1.0}, "InvalidTransition"),
        ("LeaseReceived", {"slots": []}, "IndexError"),
        ("ParametersReady", {"round": "x"}, "TypeError"),
        ("PlacementReceived", {"collector_nodes": None}, "TypeError"),
    ],
)
def test_an_event_that_the_machine_refuses_is_named(lines, kind, changes, message):
    """A file edited by hand never ends in a traceback."""
    difference = replayed(edited(lines, place(lines, kind), **changes)).difference
    assert "the fresh machine refused it" in difference
    assert message in difference


class ReadsAClock(RoundMachine):
    """A machine with a planted defect: it looks at the wall clock."""

    def handle(self, event):
        out = super().handle(event)
        return tuple(
            replace(r, n_timesteps=time.perf_counter_ns()) if isinstance(r, words.MetricsRecorded) else r for r in out
        )


class IsRandom(RoundMachine):
    """A machine with a planted defect: it draws a number of its own."""

    def handle(self, event):
        out = super().handle(event)
        return tuple(replace(r, reason=str(random.random())) if hasattr(r, "reason") else r for r in out)


@pytest.mark.parametrize("broken", [ReadsAClock, IsRandom])
def test_a_machine_that_looks_at_the_world_is_caught(broken, lines, monkeypatch):
    """The gate turns red: a clock read or a random number breaks the replay of its own journal."""
    monkeypatch.setattr(replay_module, "RoundMachine", broken)
    machine = broken(json.loads(lines[0])["config"])
    events = [event for event, _ in stream_of(lines, source="j").answers()]
    records = [record for event in events for record in (event, *machine.handle(event))]
    assert "journalled was" in replayed([lines[0], *map(line_of, records)]).difference


def test_a_stream_may_begin_with_a_snapshot(lines):
    """A machine restored from the header's snapshot goes on as the one that wrote the stream."""
    i = place(lines, "LeaseReceived")
    machine = fresh_machine(header(config=json.loads(lines[0])["config"]))
    for event, _ in stream_of(lines[:i], source="j").answers():
        machine.handle(event)
    later = line_of(header(config=json.loads(lines[0])["config"], snapshot=machine.snapshot()))
    assert replayed([later, *lines[i:]]).difference is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine": "oracle"}, "unknown machine 'oracle'"),
        ({"config": {}}, "cannot build its machine: KeyError"),
        ({"config": {"epoch": 1}, "machine": "pool"}, "cannot build its machine: KeyError"),
    ],
)
def test_a_header_that_describes_no_machine(changes, message):
    """The message names the stream."""
    with pytest.raises(JournalError, match=f"task-a-a1: {message}"):
        fresh_machine(header(**changes))


def test_a_simulated_pool_replays_from_its_lines():
    """Lease table and placement, through JSON and back."""
    pool, tasks = run_tasks([0, 1], n_slots=1, n_rounds=3, n_collectors=2, hold="round", seed=1, costs=Costs())
    for host in (pool.host, *[task.host for task in tasks]):
        stream = host.stream
        lines = [line_of(record) for record in (stream.header, *stream.records)]
        assert replayed(lines).difference is None


@pytest.mark.parametrize("run", sorted(path.name for path in GOLDEN.iterdir() if path.is_dir()))
def test_golden_journals_replay(run):
    """What earlier versions decided is decided today; a change here is reviewed, not regenerated in passing."""
    journal = Journal.read(GOLDEN / run)
    assert {stream.header.machine for stream in journal.streams.values()} == {"pool", "round"}
    for stream in journal.streams.values():
        assert replay(stream).difference is None


def test_golden_journals_are_small():
    """Each file can be read in a review."""
    sizes = {path.name: path.stat().st_size for path in GOLDEN.glob("*/*.jsonl")}
    assert sizes
    assert max(sizes.values()) < 60_000
