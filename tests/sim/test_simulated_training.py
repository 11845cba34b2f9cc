"""Whole trainings on the virtual clock."""

import argparse
import dataclasses
import json

import pytest

from drlnb.planning.leasing.load import bound, expected_load
from drlnb.planning.replay import replay
from drlnb.records.columns.leasing import LeaseGranted, SlotFailed
from drlnb.records.columns.placement import NodeLost
from drlnb.records.columns.warmup import CollectorLost
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal, line_of
from drlnb.records.round import ExecutorDied, MetricsRecorded, WriteCheckpoint
from drlnb.sim.costs import Costs
from drlnb.sim.faults import Fault
from drlnb.sim.report import new_directory, write_journal
from drlnb.sim.training.report import main, simulate_train
from tests.faults import seeded_faults
from tests.runtime.laws import check_journal


def text_of(result):
    """Return every journal line of a run."""
    streams = result.streams.values()
    return "".join(line_of(record) for stream in streams for record in (stream.header, *stream.records))


def arguments(**changes):
    given = {
        "tasks": 2,
        "gpus": 1,
        "rounds": 3,
        "collectors": 2,
        "learners": 1,
        "hold": "round",
        "seed": 0,
        "swap_budget": None,
        "out": None,
        "json": None,
    }
    return argparse.Namespace(**(given | changes))


def test_two_tasks_on_one_slot_both_finish():
    """S1, S3: each makes all its rounds; `round` has one grant per task and round, and one for version 1."""
    result = simulate_train(2, 1, 5, 2, "round", validate=True)
    assert result.ends == {"sim0": "done", "sim1": "done"}
    for name in result.ends:
        rows = result.streams[f"task-{name}-a1"].of(MetricsRecorded)
        assert [row.round for row in rows] == [1, 2, 3, 4, 5]
    assert result.n_grants == len(result.streams["broker-e1"].of(LeaseGranted)) == 2 * (5 + 1)
    assert {stream.header.origin for stream in result.streams.values()} == {"simulated"}


@pytest.mark.thorough
@pytest.mark.parametrize("hold", ["round", "yield", "last"])
def test_utilisation_is_below_its_bound(hold):
    """No rule of holding can compute more than the tasks have to compute; what is held covers what is computed."""
    for seed in range(3):
        result = simulate_train(3, 1, 8, 2, hold, seed)
        assert 0 < result.utilisation_frac <= result.bound_frac <= 1
        assert result.utilisation_frac <= result.held_frac <= 1
        assert result.inflation >= 1 - 1e-9


def test_the_yardsticks_are_those_of_the_duties_alone():
    """Bound and expectation come from the duty of each task on a slot of its own."""
    result = simulate_train(4, 2, 5, 2)
    assert len(result.duty_frac) == 4
    assert result.bound_frac == bound(result.duty_frac, 2)
    expected = expected_load(4, 2, sum(result.duty_frac) / 4)
    found = (result.expected_utilisation_frac, result.expected_inflation)
    assert found == (expected.utilisation_frac, expected.inflation)


def test_a_task_alone_is_not_slowed_down():
    """One task on one slot: no inflation, and utilisation is its duty."""
    result = simulate_train(1, 1, 5, 2)
    assert result.inflation == pytest.approx(1.0)
    assert result.utilisation_frac == result.bound_frac == result.duty_frac[0]


@pytest.mark.parametrize(
    ("n_slots", "n_rounds", "rel"),
    [
        pytest.param(1, 40, 0.15, marks=pytest.mark.thorough),
        pytest.param(1, 1500, 0.03, marks=pytest.mark.slow),
        pytest.param(2, 1500, 0.03, marks=pytest.mark.slow),
    ],
)
def test_exponential_times_give_what_queueing_theory_expects(n_slots, n_rounds, rel):
    """Machine repairman: T sources, K servers, everything exponential and nothing else on the way."""
    nothing = {"compute_s": 0.0, "publish_s": 0.0, "start_s": 0.0, "rpc_s": 0.0, "gather_s": 0.0, "write_s": 0.0}
    costs = Costs(shape="exponential", collect_s=4.0, finish_s=1.0, **nothing)
    result = simulate_train(4, n_slots, n_rounds, 1, "last", seed=3, costs=costs)
    theory = expected_load(n_tasks=4, n_slots=n_slots, d=0.2)
    assert result.utilisation_frac == pytest.approx(theory.utilisation_frac, rel=rel)
    assert result.inflation == pytest.approx(theory.inflation, rel=rel)


@pytest.mark.thorough
def test_scattered_arrivals_cost_the_seeds_rule_more_than_last():
    """At CV .05 `round` gives shorter rounds than `last`, at CV 1 longer ones (leasing at load 1, four collectors)."""
    even, scattered = ({hold: _inflation(hold, cv) for hold in ("round", "last")} for cv in (0.05, 1.0))
    assert even["round"] < even["last"]
    assert scattered["last"] < scattered["round"]


def _inflation(hold, cv):
    return simulate_train(5, 1, 10, 4, hold, seed=3, costs=Costs(collect_cv=cv)).inflation


def test_the_same_seed_gives_the_same_journal():
    """Byte for byte; another seed gives another one."""
    first, again, other = (text_of(simulate_train(2, 1, 3, 2, seed=seed)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_a_journal_on_disk_replays_exactly(tmp_path):
    """Pool and tasks, from files, decide the same again."""
    result = simulate_train(2, 1, 12, 2, seed=1)
    write_journal(result.streams, tmp_path / "run")
    journal = Journal.read(tmp_path / "run")
    assert sorted(journal.streams) == ["broker-e1", "task-sim0-a1", "task-sim1-a1"]
    assert journal.of(WriteCheckpoint)
    for name, stream in journal.streams.items():
        answer = replay(stream)
        assert answer.difference is None
        assert answer.n_records == len(result.streams[name].records)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_all_tasks_end_whatever_dies(seed):
    """Whatever can die or stand still does; the rounds go on, and every stream obeys the laws and replays."""
    faults = seeded_faults(20, until_s=60.0, seed=seed)
    hold = ("round", "last", "yield")[seed % 3]
    result = simulate_train(3, 2, 8, 2, hold, seed, n_nodes=2, faults=faults, validate=True)
    assert set(result.ends.values()) == {"done"}
    check_journal(Journal(streams=result.streams))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_all_tasks_end_in_many_runs(seed):
    """The same with more of everything; a task that is killed three times in one round may fail."""
    faults = seeded_faults(80, until_s=200.0, seed=seed)
    hold = ("round", "last", "yield")[seed % 3]
    result = simulate_train(5, 3, 30, 3, hold, seed, n_nodes=3, faults=faults, validate=True)
    assert set(result.ends.values()) <= {"done", "failed"}
    check_journal(Journal(streams=result.streams))


def test_each_kind_of_death_is_seen():
    """One of each: the journals hold the word of it, and the tasks finish."""
    faults = (
        Fault(t=6.0, kind="collector", index=0),
        Fault(t=10.0, kind="executor", index=0),
        Fault(t=14.2, kind="executor", index=1),
        Fault(t=19.0, kind="node", index=0),
        Fault(t=19.5, kind="executor", index=1),
        Fault(t=1e6, kind="node", index=0),
    )
    result = simulate_train(2, 2, 6, 2, seed=2, n_nodes=2, faults=faults, validate=True)
    journal = Journal(streams=result.streams)
    for kind in (CollectorLost, ExecutorDied, NodeLost, SlotFailed):
        assert journal.of(kind)
    assert set(result.ends.values()) == {"done"}


def test_seeded_faults_are_sorted_and_seeded():
    """All kinds occur within the time given."""
    faults = seeded_faults(50, until_s=10.0, seed=1)
    assert faults == seeded_faults(50, until_s=10.0, seed=1)
    assert [fault.t for fault in faults] == sorted(fault.t for fault in faults)
    assert all(0 <= fault.t < 10 for fault in faults)
    assert {fault.kind for fault in faults} == {"collector", "executor", "node", "holder", "frozen", "slot"}
    assert {fault.kind for fault in seeded_faults(9, until_s=1.0, seed=1, kinds=("node",))} == {"node"}


# ---------------------------------------------------------------------- the command
def test_the_command_prints_a_table(capsys):
    """Utilisation stands beside expectation and bound; no file is written."""
    assert main(arguments()) == 0
    out = capsys.readouterr().out
    assert "2 tasks, 1 slots, 3 rounds, 2 collectors each, hold round, seed 0 (simulated)" in out
    assert [line.split()[0] for line in out.splitlines()[2:]] == [
        "utilisation", "held", "inflation", "grants", "makespan",
    ]  # fmt: skip


def test_the_commands_last_line_is_json(capsys, tmp_path):
    """One object with rows; the numbers are those of the run; the journal lies where it was asked for."""
    assert main(arguments(json="-", out=str(tmp_path))) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    result = simulate_train(2, 1, 3, 2, "round")
    assert report["utilisation_frac"] == result.utilisation_frac
    assert report["inflation"] == result.inflation
    assert report["bench"] == "simulate-train"
    assert {row["id"]: row["origin"] for row in report["rows"]} == dict.fromkeys(
        ["utilisation", "utilisation-expected", "held", "inflation"], "simulated"
    )
    assert len(Journal.read(tmp_path).streams) == 3


def test_the_table_of_gangs_expects_nothing(capsys):
    """Theory knows no leases of several slots: neither its column nor its row is there; the bound is."""
    assert main(arguments(gpus=2, learners=2, json="-")) == 0
    *table, line = capsys.readouterr().out.splitlines()
    assert table[0] == "2 tasks, 2 slots, 3 rounds, 2 collectors each, 2 learners each, hold round, seed 0 (simulated)"
    assert table[1].split() == ["measured", "bound"]
    assert [len(row.split()) for row in table[2:]] == [3, 2, 2, 2, 2]
    report = json.loads(line)
    assert (report["expected_utilisation_frac"], report["expected_inflation"]) == (None, None)
    assert {row["id"]: row["baseline"].split()[0] for row in report["rows"]} == {
        "utilisation": "bound",
        "held": "utilisation",
        "inflation": "alone",
    }


def test_more_learners_than_slots_or_collectors_are_refused():
    """Both at once, with the numbers; no such line where a number is wrong by itself."""
    with pytest.raises(ConfigError) as caught:
        main(arguments(learners=3))
    assert caught.value.problems == (
        "learners must be <= gpus = 1, got 3: each computes on a slot of its own",
        "learners must be <= collectors = 2, got 3: each computes what whole collectors made",
    )
    with pytest.raises(ConfigError) as caught:
        main(arguments(learners=65, gpus=0, collectors=3))
    assert caught.value.problems == (
        "gpus must be a whole number in 1..1000, got 0",
        "learners must be a whole number in 1..64, got 65",
    )


def test_wrong_numbers_are_refused_together():
    """Each problem names option, limit and value."""
    wrong = arguments(tasks=0, gpus=-1, rounds=0, collectors=257, hold="best", seed=-1)
    with pytest.raises(ConfigError) as caught:
        main(wrong)
    assert caught.value.problems == (
        "tasks must be a whole number in 1..1000, got 0",
        "gpus must be a whole number in 1..1000, got -1",
        "rounds must be a whole number in 1..100000, got 0",
        "collectors must be a whole number in 1..256, got 257",
        "seed must be a whole number >= 0, got -1",
        "hold must be one of round, yield, last, got 'best'",
    )


def test_a_full_directory_is_refused(tmp_path):
    """Nothing is overwritten, and a file is no directory."""
    (tmp_path / "mine.txt").write_text("precious")
    for out in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(ConfigError, match="--out must be a new or empty directory, got"):
            main(arguments(out=out))
    assert (tmp_path / "mine.txt").read_text() == "precious"
    assert new_directory(None) is None
    assert new_directory(str(tmp_path / "new")) == tmp_path / "new"
    with pytest.raises(ConfigError, match=r"--out .*mine.txt/new cannot be made: Not a directory"):
        new_directory(str(tmp_path / "mine.txt" / "new"))


def test_a_failed_task_gives_exit_code_1(monkeypatch):
    """The command says so as a real run does."""
    from drlnb.sim.training import report as train

    result = simulate_train(1, 1, 1, 1)
    failed = dataclasses.replace(result, ends={"sim0": "failed"})
    monkeypatch.setattr(train, "simulate_train", lambda *_, **__: failed)
    assert main(arguments()) == 1
