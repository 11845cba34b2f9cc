"""Hold planners on the same workload: utilisation, its bound, and the other two ways to share a device."""

import argparse
import functools
import json
from dataclasses import dataclass

import pytest

from drlnb.cli.main import main as drlnb_main
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.errors import ConfigError
from drlnb.sim.costs import Costs, RoundCosts
from drlnb.sim.leasing.colocated import colocated_rounds_hz
from drlnb.sim.leasing.compare import LeasingWorkload, alone, simulate_leasing, tasks_for_load
from drlnb.sim.leasing.report import main, workloads
from drlnb.sim.report import compare

SMALL = LeasingWorkload(n_tasks=3, n_slots=1, n_workers=2, n_rounds=9, compute_s=0.5)


# ------------------------------------------------------------------ co-location, by hand
@dataclass
class Fixed:
    """A task whose every round takes the same time."""

    collect_s: tuple[float, ...]
    stage_s: tuple[float, ...]
    costs: Costs | None = None

    def round(self, k):
        return RoundCosts(collect_s=self.collect_s, stage_s=self.stage_s, finish_s=0.5, publish_s=0.25, rpc_s=0.0)

    def start_s(self):
        return 0.0


def rounds_hz(*tasks, n_devices=1):
    return colocated_rounds_hz(tasks, n_devices=n_devices, n_rounds=20, warm_up=0.1)


def test_one_process_has_the_device_for_itself():
    """4 s collecting, 1 s + 1 s of gradients in turn, 0.5 s of update, 0.25 s of sending: 6.75 s a round."""
    assert rounds_hz(Fixed((4.0, 4.0), (1.0, 1.0))) == pytest.approx(1 / 6.75, rel=0.06)
    assert rounds_hz(Fixed((4.0, 2.0), (1.0, 1.0))) == pytest.approx(1 / 5.75, rel=0.06)


def test_two_processes_in_step_share_the_device_evenly():
    """What takes one 2.5 s takes each of two 5 s: 9.25 s a round; on two devices as alone."""
    pair = Fixed((4.0, 4.0), (1.0, 1.0)), Fixed((4.0, 4.0), (1.0, 1.0))
    assert rounds_hz(*pair) == pytest.approx(2 / 9.25, rel=0.06)
    assert rounds_hz(*pair, n_devices=2) == pytest.approx(2 / 6.75, rel=0.06)
    assert rounds_hz(pair[0], n_devices=2) == pytest.approx(1 / 6.75, rel=0.06)


# ------------------------------------------------------------------ workloads
def test_wrong_numbers_are_refused_together():
    """Each problem names the field, its limit and its value."""
    with pytest.raises(ConfigError) as caught:
        LeasingWorkload(n_tasks=0, seed=-1, compute_s=0.0, collect_cv=-1.0, switch_s=float("nan"))
    assert caught.value.problems == (
        "n_tasks must be a whole number in 1..1000, got 0",
        "compute_s must be a number of seconds from 0.001 to 1e7, got 0.0",
        "collect_cv must be a number from 0 to 1e9, got -1.0",
        "switch_s must be a number from 0 to 1e9, got nan",
        "seed must be a whole number >= 0, got -1",
    )


def test_the_duty_alone_is_compute_over_round():
    """Without spread 1 s of gradients and 0.02 s of update in 4 s + 0.25 s ... : the slowest of four counts."""
    one = alone(LeasingWorkload(n_tasks=1, n_slots=1, collect_cv=0.0, n_rounds=12), 0)
    assert one.d == pytest.approx(1.02 / (4.0 + 1.02 + 0.01), rel=0.02)


def test_tasks_follow_the_load():
    """T = floor(load K / d + 1/2), with d measured on a task alone."""
    quick = LeasingWorkload(n_slots=2, n_rounds=12, collect_cv=0.0)
    assert tasks_for_load(1.0, quick).n_tasks == 10
    assert tasks_for_load(0.01, quick).n_tasks == 1


def test_every_planner_has_the_same_workload_and_its_journal_replays():
    """The same tasks, bound and baselines; every machine is checked after each event, every stream replayed."""
    runs = [simulate_leasing(SMALL, hold, validate=True) for hold in ("round", "yield", "last")]
    assert len({(run.bound_frac, run.exclusive_hz, run.colocated_hz, run.d_mean) for run in runs}) == 1
    for run in runs:
        assert 0 < run.utilisation_frac <= run.held_frac <= 1 + 1e-9
        assert run.of_bound < 1.1
        assert run.inflation > 0.95
    assert runs[0].grants_per_round == pytest.approx(1.0, abs=0.1)
    assert runs[1].grants_per_round > runs[0].grants_per_round


def test_a_run_is_a_function_of_its_seed():
    """The same seed gives the same figures, another one others."""
    assert simulate_leasing(SMALL, "yield") == simulate_leasing(SMALL, "yield")
    other = LeasingWorkload(n_tasks=3, n_slots=1, n_workers=2, n_rounds=9, compute_s=0.5, seed=1)
    assert simulate_leasing(other, "yield") != simulate_leasing(SMALL, "yield")


def test_a_task_with_priority_waits_less():
    """Ten steps ahead of equal tasks its mean wait is the shortest."""
    busy = LeasingWorkload(n_tasks=4, n_slots=1, n_workers=2, n_rounds=12, compute_s=1.0)
    run = simulate_leasing(busy, "last", priorities={2: 10})
    assert run.wait_max_s[2] == min(run.wait_max_s)


def test_without_streams_nothing_is_computed_before_the_last_arrival():
    """One sweep over the whole round: `yield` holds for the compute alone, as `last` does."""
    epochs = simulate_leasing(SMALL, "yield", streams=False)
    last = simulate_leasing(SMALL, "last", streams=False)
    assert epochs.of_bound == pytest.approx(last.of_bound, abs=0.08)
    assert epochs.grants_per_round < 1.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cv", "load", "hold", "of_bound", "inflation"),
    [
        (0.2, 0.8, "round", 0.92, 1.08), (0.2, 0.8, "last", 0.85, 1.18), (0.2, 0.8, "yield", 0.95, 1.05),
        (0.2, 1.0, "round", 0.89, 1.13), (0.2, 1.0, "last", 0.84, 1.19), (0.2, 1.0, "yield", 0.93, 1.08),
        (0.5, 0.8, "round", 0.78, 1.29), (0.5, 0.8, "last", 0.84, 1.19), (0.5, 0.8, "yield", 0.95, 1.06),
        (0.5, 1.0, "round", 0.74, 1.40), (0.5, 1.0, "last", 0.85, 1.22), (0.5, 1.0, "yield", 0.94, 1.11),
    ],
)  # fmt: skip
def test_the_prototypes_table_comes_out(cv, load, hold, of_bound, inflation):
    """Over five seeds, within 0.05 in utilisation over its bound and 0.08 in inflation."""
    (runs,) = compare([hold], workloads(range(5), load, LeasingWorkload(collect_cv=cv)), simulate_leasing)
    assert runs.mean("of_bound") == pytest.approx(of_bound, abs=0.05)
    assert runs.mean("inflation") == pytest.approx(inflation, abs=0.08)


# ------------------------------------------------------------------ the command
def arguments(**changes):
    given = {
        "hold": "all", "load": None, "n_tasks": 2, "n_slots": 1, "n_workers": 2, "collect_cv": 0.2, "compute_s": 0.5,
        "collect_mean_s": 2.0, "switch_s": 0.0, "unequal_frac": 0.5, "queue": "drr", "no_stream": False, "faults": "",
        "n_rounds": 8,
        "seeds": [0, 1], "json": "-",
    }  # fmt: skip
    return argparse.Namespace(**(given | changes))


def test_the_command_prints_a_table_and_json(capsys):
    """A row for each planner and figure, beside what it is to be compared with."""
    assert main(arguments()) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["round", "yield", "last"]
    report = json.loads(last)
    assert report["bench"] == "simulate-leasing"
    assert [row["seed"] for row in report["workloads"]] == [0, 1]
    assert len(report["rows"]) == 15
    workload = LeasingWorkload(
        n_tasks=2, n_slots=1, n_workers=2, compute_s=0.5, collect_mean_s=2.0, unequal_frac=0.5, n_rounds=8
    )
    run_drr = functools.partial(simulate_leasing, settings=LeasingSettings(queue="drr"))
    (run,) = compare(["yield"], workloads([0, 1], None, workload), run_drr)
    row = next(row for row in report["rows"] if row["id"] == "yield-utilisation")
    assert row["value"] == run.mean("utilisation_frac")
    assert row["spread"] == [one.utilisation_frac for one in run.results]


@pytest.mark.thorough
def test_the_command_prints_what_faults_do(capsys):
    """Without them and with them: utilisation, inflation, rounds per second; and how many leases expired."""
    assert main(arguments(hold="yield", n_tasks=3, n_rounds=60, seeds=[0], faults="holder=60,frozen=90")) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("with faults, per hour: holder 60, frozen 90 (means per run; expired: leases;")
    assert lines[-2].split()[-5:] == ["faults", "expired", "restarts", "redone", "failed"]
    found = json.loads(last)["rows"]
    rows = {row["id"]: row["value"] for row in found}
    spared = {row["id"]: row["baseline"] for row in found if row["id"].endswith("-v-spared")}
    words = lines[-1].split()
    assert words[0] == "yield"
    assert [words[2], words[3]] == ["->", f"{rows['yield-utilisation']:.3f}"]
    assert f"{float(spared['yield-utilisation-v-spared'].removeprefix('without faults ')):.3f}" == words[1]
    assert words[10:] == [f"{rows[f'yield-{name}']:.2f}" for name in lines[-2].split()[-5:]]
    assert rows["yield-faults"] > 3
    assert rows["yield-expired"] > 0 < rows["yield-restarts"]
    assert float(words[4]) < float(words[6]) == round(rows["yield-inflation-v-spared"], 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--load", "0"], "--load must be in (0, 10], got 0.0"),
        (["--hold", "best"], "--hold must name some of round, yield, last, or be all; got 'best'"),
        (["--queue", "lifo"], "--queue must be one of fifo, drr, got 'lifo'"),
        (["--faults", "holder"], "--faults must be KIND=RATE_PER_HOUR by commas, each kind once, got 'holder'"),
        (
            ["--faults", "holder=1,holder=2"],
            "--faults must be KIND=RATE_PER_HOUR by commas, each kind once, got 'holder=2'",
        ),
        (["--faults", "node=1"], "--faults must name some of collector, executor, holder, frozen, slot, got 'node'"),
        (["--faults", "slot=-1"], "faults of slot must be in 0..3600 per hour, got -1.0"),
        (
            ["--tasks", "2", "--rounds", "20", "--unequal", "100", "--hold", "round", "--seeds", "0"],
            "sim1: fewer than 2 rounds while all tasks train; more rounds are needed",
        ),
        (["--gpus", "2000"], "--gpus must be a whole number in 1..1000, got 2000"),
        (["--holds", "round"], "unknown option --holds; did you mean '--hold'? (see: drlnb simulate leasing --help)"),
    ],
)
def test_wrong_options_are_one_clear_line(capsys, words, message):
    """Exit code 2, the limit and the value; nothing runs."""
    assert drlnb_main(["simulate", "leasing", *words]) == 2
    assert capsys.readouterr().err == f"drlnb: {message}\n"
