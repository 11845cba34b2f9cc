"""``drlnb simulate placement``, and how planners are compared."""

import json
import math

import pytest

from drlnb.cli.main import main
from drlnb.planning.placement import Cluster
from drlnb.records.columns.leasing import SlotFailed
from drlnb.records.columns.placement import GangBroken, JobFinished
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal
from drlnb.sim.placement import FaultModel, Trace, TraceJob
from drlnb.sim.placement.compare import Windows, ratio_of, side_by_side

WORDS = ["simulate", "placement", "--planner", "ect", "first", "--windows", "3", "--paths", "1", "--jobs", "20"]
AWARE = ["--mtbf-days", "2", "--checkpoint", "none", "--locality", "0.05"]


# ------------------------------------------------------------------ the command
def test_a_table(capsys):
    """A line per planner, beside the healthiest slots; then what failure awareness is worth."""
    assert main([*WORDS, *AWARE, "--lemons", "0.05", "--order", "largest"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    jobs, slots, columns, ect, first, verdict = out.splitlines()
    assert jobs.startswith("philly_sample.csv: 3 windows of 20 jobs, family gang; ")
    assert slots == (
        "8 x 8 slots, 2 days between failures of each, no checkpoints, locality 0.05, lemons 0.05, largest, greedy "
        "(simulated)"
    )
    assert columns.split()[:4] == ["planner", "makespan", "h", "v"]
    assert columns.split()[-3:] == ["GPU-h", "utilisation", "restarts"]
    assert (ect.split()[0], first.split()[0]) == ("ect", "first")
    assert float(ect.split()[2]) < float(first.split()[2])
    assert float(ect.split()[4]) <= float(ect.split()[1])
    assert verdict.startswith("at these settings failure awareness is worth ")
    assert verdict.endswith("): random v healthiest")


def test_what_is_not_as_usual_is_in_the_title(capsys):
    """Outages of nodes, lives after repairs, interference, checkpoints of each gang's own; and it is in force."""
    words = ["--node-mtbf-days", "3", "--weibull", "0.7", "--interference", "0.5", "--checkpoint", "young"]
    few = [*WORDS, "--windows", "1"]
    assert main([*few, *words, "--json"]) == 0
    _, slots, *_, line = capsys.readouterr().out.splitlines()
    assert slots == (
        "8 x 8 slots, 337 days between failures of each, checkpoints by Young's formula, locality 0, lemons 0, "
        "3 days between outages of a node, Weibull shape 0.7, interference 0.5, fifo, greedy (simulated)"
    )
    report = json.loads(line)
    assert (report["node_mtbf_days"], report["weibull_shape"]) == (3.0, 0.7)
    assert (report["interference_frac"], report["checkpoint_s"]) == (0.5, "young")
    makespans = [report["rows"][1]["value"]]
    for left_out in range(0, 8, 2):
        assert main([*few, *words[:left_out], *words[left_out + 2 :], "--json"]) == 0
        makespans.append(json.loads(capsys.readouterr().out.splitlines()[-1])["rows"][1]["value"])
    assert len(set(makespans)) == 5


def test_the_null_regime_is_named(capsys):
    """Slots that fail once in 1,000 years, and hourly checkpoints: it makes no difference which."""
    assert main([*WORDS, "--mtbf-days", "365000"]) == 0
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict == (
        "null regime: at these settings failure awareness is worth 0.0 % (0.0..0.0): random v healthiest"
    )


def test_one_window_tells_nothing_of_others(capsys):
    """No interval, and no null regime."""
    assert main([*WORDS, "--mtbf-days", "365000", "--windows", "1", "--json"]) == 0
    *_, verdict, line = capsys.readouterr().out.splitlines()
    assert verdict == "at these settings failure awareness is worth 0.0 % in one window: random v healthiest"
    report = json.loads(line, parse_constant=pytest.fail)
    assert (report["null"], report["awareness"]) == (False, {"ratio": 1.0, "spread": None})
    assert report["rows"][0]["spread"] is None


def test_json_is_the_last_line(capsys):
    """Rows in the form that every bench shares, what was simulated, and the trace's digest."""
    assert main([*WORDS, *AWARE, "--arrivals", "--backfill", "reserve", "--family", "mixed", "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["bench"], report["baseline"], report["trace"]) == (
        "simulate-placement",
        "healthiest",
        "philly_sample.csv",
    )
    assert (report["backfill"], report["arrivals"], report["family"]) == ("reserve", True, "mixed")
    assert len(report["sha256"]) == 64
    ect, first = report["rows"]
    assert (ect["id"], first["id"], ect["origin"]) == ("ect", "first", "simulated")
    assert ect["spread"]["kind"] == "95 %"
    assert ect["spread"]["n"] == 3
    assert ect["spread"]["low"] <= ect["ratio"] <= ect["spread"]["high"]
    assert ect["value"] >= ect["bound_s"] > 0
    assert ect["lost_gpu_s"] > 0


def test_journals_of_the_first_window_replay(tmp_path, capsys):
    """One of each planner, of the same faults, whose last job is over when the table's is; the rest stays as it is."""
    numbers = {"windows": 1, "paths": 1, "jobs": 5, "nodes": 2, "max-gpus": 8, "cap": 20_000, "mtbf-days": 2}
    small = [word for name, number in numbers.items() for word in (f"--{name}", str(number))]
    words = ["simulate", "placement", "--planner", "random:seed=3", "ect", *small, "--checkpoint", "none"]
    assert main([*words, "--json"]) == 0
    plain = capsys.readouterr().out
    out = tmp_path / "run"
    assert main([*words, "--json", "--out", str(out)]) == 0
    assert capsys.readouterr().out == plain
    rows = json.loads(plain.splitlines()[-1])["rows"]
    journal = Journal.read(out)
    assert list(journal.streams) == ["0-random-seed=3", "1-ect"]
    for row, stream in zip(rows, journal.streams.values(), strict=True):
        assert stream.header.origin == "simulated"
        ends = [t for t, _ in stream.timed(JobFinished)]
        assert (len(ends), max(ends)) == (5, pytest.approx(row["value"], rel=1e-9))
        assert len(stream.of(GangBroken)) == row["n_restarts"] > 0
    failures = [{each.t: each.slot for each in stream.each(SlotFailed)} for stream in journal.streams.values()]
    assert failures[0].items() & failures[1].items() == min(failures, key=len).items()
    assert main(["replay", str(out)]) == 0
    assert capsys.readouterr().out.endswith("2 streams, every decision identical\n")
    assert main([*words, "--out", str(out)]) == 2
    assert "--out must be a new or empty directory" in capsys.readouterr().err


def test_a_trace_of_ones_own(tmp_path, capsys):
    """Without tenants all jobs are of one family, which is said; jobs that are cut are counted."""
    rows = [f"{i},{i},{1 + 3 * (i % 2)},{90_000 if i == 3 else 100}" for i in range(24)]
    (tmp_path / "own.csv").write_text("\n".join(["job_id,submit_time_s,n_gpus,duration_s", *rows]))
    assert main([*WORDS, "--trace", str(tmp_path / "own.csv"), "--max-gpus", "2", "--nodes", "1", "--slots", "2"]) == 0
    head = capsys.readouterr().out.splitlines()[0]
    assert head == (
        "own.csv: 1 windows of 20 jobs, family all, for want of gang; 1 jobs cut to 86400 s and 10 to 2 slots"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--planner", "etc"], "--planner: gangs planner must be one of"),
        (["--nodes", "1"], "needs 16 slots, the cluster has 8"),
        (["--family", "gangs"], "--family must be one of gang, mixed, all, got 'gangs'"),
        (
            ["--mtbf-days", "0", "--lemons", "2"],
            "--mtbf-days must be a number from 0.001 to 1e6, got 0.0; --lemons must be",
        ),
        (["--checkpoint", "0"], "--checkpoint must be a number from 1 to 1e9, none or young, got 0"),
        (["--checkpoint", "daly"], "--checkpoint must be a number from 1 to 1e9, none or young, got 'daly'"),
        (["--node-mtbf-days", "0"], "argument --node-mtbf-days: must be a number from 0.001 to 1e6, or none, got '0'"),
        (["--weibull", "0"], "--weibull must be a number from 0.2 to 10, got 0.0"),
        (["--interference", "-1"], "--interference must be a number from 0 to 10, got -1.0"),
        (["--order", "lifo"], "--order must be one of fifo, largest, got 'lifo'"),
        (["--trace", "none.csv"], "none.csv cannot be read: No such file"),
        (["--jobs", "5000"], "has 1734 jobs of a minute or more in family gang: no window of 5000 from 0"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(capsys, words, said):
    """And nothing is simulated."""
    assert main(["simulate", "placement", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


# ------------------------------------------------------------------ windows and intervals
def trace(n):
    return Trace("made", tuple(TraceJob(f"j{i}", float(i), 1, 60.0 + i) for i in range(n)))


def test_windows_share_no_job_and_are_spread_evenly():
    """Of 100 jobs there are ten windows of ten; four of them begin at 0, 20, 50 and 70."""
    cut = Windows(family="all", n_jobs=10, n_windows=4).cut(trace(100))
    assert [window.jobs[0].job for window in cut] == ["j0", "j20", "j50", "j70"]
    cut = Windows(family="all", n_jobs=10, n_windows=99).cut(trace(109))
    assert [window.jobs[0].job for window in cut] == [f"j{i}" for i in range(0, 100, 10)]
    with pytest.raises(ConfigError, match="made has 9 jobs"):
        Windows(family="all", n_jobs=10).cut(trace(9))


def test_fewer_windows_have_more_paths_and_all_ways_the_same_faults():
    """Five windows of two paths were wanted, two are there: five paths each, under which one way is as itself."""
    windows = Windows(family="all", n_jobs=10, n_windows=5, n_paths=2)
    ways = {"a": ("random", {"checkpoint_s": None}), "b": ("random", {"checkpoint_s": None})}
    model = FaultModel(mtbf_days=0.002, spread=0.0, node_spread=0.0, mttr_s=60.0)
    played = side_by_side(trace(25), Cluster.uniform(1, 4), model, windows, ways)
    assert [len(window["a"]) for window in played] == [5, 5]
    assert all(window["a"] == window["b"] for window in played)
    assert len({outcome.lost_gpu_s for window in played for outcome in window["a"]}) == 10


def test_every_seed_that_is_taken_can_be_played():
    """The largest one, too."""
    ways, windows = {"a": ("first", {})}, Windows(family="all", n_jobs=10, n_windows=2, n_paths=2, seed=2**31 - 1)
    assert len(side_by_side(trace(20), Cluster.uniform(1, 4), FaultModel(), windows, ways)) == 2
    with pytest.raises(ConfigError, match="seed must be"):
        Windows(seed=2**31)


class Figure:
    def __init__(self, makespan_s):
        self.makespan_s = makespan_s


def test_ratios_by_hand():
    """Ratios 1/2, 2, 2 and 4 of two windows: the fourth root of 8; sums: 9 to 5."""
    played = [
        {"a": [Figure(1.0), Figure(2.0)], "b": [Figure(2.0), Figure(1.0)]},
        {"a": [Figure(2.0), Figure(4.0)], "b": [Figure(1.0), Figure(1.0)]},
    ]
    ratio = ratio_of(played, "a", "b")
    assert ratio.mean == pytest.approx(8**0.25)
    # Of four samples of two windows one is twice the first, ratio 1, and one twice the second, the root of 8.
    assert (ratio.low, ratio.high, ratio.n) == (pytest.approx(1.0), pytest.approx(8**0.5), 2)
    assert ratio_of(played, "a", "b", of_sums=True).mean == pytest.approx(9 / 5)
    alone = ratio_of(played[:1], "a", "b")
    assert (alone.mean, alone.n) == (pytest.approx(1.0), 1)
    assert math.isnan(alone.low)
