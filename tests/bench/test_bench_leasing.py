"""The bench of leasing: its rows, their bars, and the time of the table."""

import json

import pytest

from drlnb.bench import leasing, leasing_events, leasing_live, leasing_rows
from drlnb.bench.leasing import GROUPS, Effort, main
from drlnb.records.errors import ConfigError
from drlnb.sim.leasing.compare import LeasingWorkload, alone

QUICK = Effort(rounds=20, fair_rounds=20, seeds=(0,), held_out=(100,), events=30)


def test_a_row_of_throughput_has_both_baselines():
    """Throughput stands beside exclusive and co-located use of the same slots."""
    few = LeasingWorkload(n_slots=1, n_workers=2, n_rounds=8)
    rows = {row.id: row for row in leasing_rows._throughput("x", 0.3, few, (0,))}
    exclusive, colocated = rows["b3-exclusive-x"], rows["b3-colocated-x"]
    assert exclusive.bar.at_least == pytest.approx(0.85 / alone(few, 0).d, rel=0.05)
    assert exclusive.samples == colocated.samples
    assert exclusive.ratio > 1.0
    assert colocated.ratio > 0.5
    assert {row.origin for row in rows.values()} == {"simulated"}


def test_tasks_in_turn_by_hand():
    """On two slots 3, 1, 1, 2 s: the second slot is free first, so it takes the third and the fourth task."""
    assert leasing_rows.in_turn([3.0, 1.0, 1.0, 2.0], 2) == 4.0
    assert leasing_rows.in_turn([3.0, 1.0, 1.0, 2.0], 1) == 7.0
    assert leasing_rows.in_turn([3.0, 1.0], 5) == 3.0


def test_a_makespan_lies_between_a_slot_for_each_and_one_after_the_other():
    """Shared slots end no sooner than a slot for each task, and much sooner than tasks in turn."""
    few = LeasingWorkload(n_slots=1, n_workers=2, n_rounds=8)
    turns, crowd, own = leasing_rows._makespans("x", 1.0, few, (0,))
    assert (turns.id, crowd.id, own.id) == ("makespan-turns-x", "makespan-colocated-x", "makespan-own-x")
    assert turns.samples == crowd.samples == own.samples
    assert turns.ratio < 0.5
    assert own.ratio >= 1.0
    assert own.baseline <= crowd.baseline < turns.baseline
    assert turns.bar is crowd.bar is own.bar is None


def test_the_time_of_an_event_is_that_of_the_table():
    """A cost for each number of tasks that wait, a bar at a thousand, and the growth beside log n."""
    assert 0 < leasing_events.cost_s(5, 30) < 0.01


def test_the_events_rows_tell_points_and_fit(monkeypatch):
    """Twice the cost at a thousand times the tasks: a fit that a person can check, and points to plot."""
    costs = dict(zip(leasing_events.WAITING, (1e-5, 1e-5, 2e-5, 2e-5, 2e-5, 2e-5, 2e-5), strict=True))
    monkeypatch.setattr(leasing_events, "cost_s", lambda n, n_events: costs[n])
    rows = {row.id: row for row in leasing_events.events(QUICK)}
    assert rows["events-1000"].value == pytest.approx(50_000)
    assert rows["events-1000"].holds
    assert rows["events-growth"].value == pytest.approx(2.0)
    assert rows["events-growth"].ratio == pytest.approx(0.5)
    assert len(rows) == len(leasing_events.WAITING) + 1


def test_wrong_words_are_refused():
    """Option, limit and value are named."""
    for words, message in (
        (["--rounds", "5"], "--rounds must be >= 20, got 5"),
        (["--repeats", "6"], r"--repeats must be in 1\.\.5, got 6"),
        (["--rows", "utilization"], r"unknown row 'utilization' \(did you mean utilisation\?\)"),
    ):
        with pytest.raises(ConfigError, match=message):
            main(words)


def test_the_bench_writes_its_rows(monkeypatch, tmp_path, capsys):
    """Each chosen group is called with the effort, and its rows are in the file."""
    asked = []

    def rows(effort):
        asked.append(effort)
        return (leasing_rows._row("x", "a row", (1.0,)),)

    monkeypatch.setattr(leasing_rows, "table", rows)
    assert main(["--rows", "table", "--repeats", "2", "--rounds", "30", "--json", str(tmp_path / "r.json")]) == 0
    assert asked == [Effort(rounds=30, fair_rounds=30, seeds=(0, 1), held_out=(100, 101))]
    assert [row["id"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]] == ["x"]
    assert "a row" in capsys.readouterr().out
    assert set(GROUPS) == {"utilisation", "throughput", "fairness", "makespan", "table", "held-out", "events"}
    assert leasing.GROUPS is GROUPS


@pytest.fixture
def live(monkeypatch):
    """Let the live groups note what they are called with."""
    asked = []

    def rows(effort):
        asked.append(effort)
        return (leasing_rows._row("live", "a live row", (1.0,)),)

    for name in ("tasks_on_one_slot", "grants"):
        monkeypatch.setattr(leasing_live, name, rows)
    monkeypatch.setattr(leasing_rows, "throughput", lambda effort: (leasing_rows._row("x", "a row", (1.0,)),))
    return asked


def test_live_adds_the_rows_of_real_processes(live, tmp_path):
    """A name that both have means both; the live rows have counts of their own."""
    words = ["--rows", "throughput,grants", "--rounds", "30", "--json", str(tmp_path / "r.json")]
    assert main([*words, "--live", "--live-rounds", "9"]) == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["bench"] == "leasing"
    assert [row["id"] for row in report["rows"]] == ["x", "live", "live"]
    assert live == [leasing_live.Effort(rounds=9)] * 2


def test_without_live_nothing_is_started(live, tmp_path):
    """The same words without it measure the simulated rows alone, and refuse what only the live ones have."""
    assert main(["--rows", "throughput", "--json", str(tmp_path / "r.json")]) == 0
    assert live == []
    with pytest.raises(ConfigError, match="unknown row 'grants'"):
        main(["--rows", "grants"])
    with pytest.raises(ConfigError, match="--live-repeats needs --live"):
        main(["--live-repeats", "2"])
    with pytest.raises(ConfigError, match="--live-rounds must be >= 8, got 7"):
        main(["--live", "--live-rounds", "7"])


@pytest.mark.slow
def test_every_group_gives_rows_with_names_of_their_own():
    """Whatever the figures are, a row is measured and named once."""
    rows = [
        row
        for group in (
            leasing_rows.utilisation,
            leasing_rows.fairness,
            leasing_rows.makespan,
            leasing_rows.table,
            leasing_rows.held_out,
        )
        for row in group(QUICK)
    ]
    assert all(row.measured for row in rows)
    assert len({row.id for row in rows}) == len(rows)
