"""What every declared bench has in common: its options, its groups of rows, and the words that it refuses."""

import pytest

from benchmarks.benches import BENCHES
from benchmarks.efforts import Returns, Runtime, SimulatedLeasing, Swapping
from benchmarks.frame import bench as frame
from benchmarks.frame.bench import Bench
from benchmarks.frame.rows import Row
from benchmarks.rl.returns import returns
from drlnb.records.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing_measured(monkeypatch):
    """No row is measured here."""
    monkeypatch.setattr(frame, "measure", lambda *_: pytest.fail("a row was measured"))


@pytest.mark.parametrize(
    ("name", "argv", "message"),
    [
        ("runtime", ["--rows", "hop"], r"unknown row 'hop'; did you mean 'hops'\?; known: hops, handover"),
        ("runtime", ["--rows", "hops,zzz,yyy"], "unknown row 'zzz'; known.*unknown row 'yyy'"),
        ("runtime", ["--rows", ","], "--rows names no row"),
        ("runtime", ["--repeats", "0"], "--repeats must be >= 1, got 0"),
        ("runtime", ["--repeats", "some"], "argument --repeats: invalid int value: 'some'"),
        ("runtime", ["--steps", "-5"], "--steps must be >= 1, got -5"),
        ("runtime", ["--rowz", "hops"], "benchmarks runtime: unrecognized arguments: --rowz"),
        ("runtime", ["--json", "/nowhere/at/all.json"], "/nowhere/at/all.json cannot be written"),
        ("rl", ["--pairs", "0"], "--pairs must be in 1..10, got 0"),
        ("rl", ["--pairs", "11"], "--pairs must be in 1..10, got 11"),
        ("rl", ["--steps", "-3"], "--steps must be >= 1, got -3"),
        ("rl", ["--rows", "cartpol"], "unknown row 'cartpol'; did you mean 'cartpole'"),
        ("returns", ["--seeds", "0"], "--seeds must be >= 1, got 0"),
        ("returns", ["--jobs", "0"], "--jobs must be >= 1, got 0"),
        ("returns", ["--tier", "weekly"], "invalid choice: 'weekly'"),
        ("returns", ["--rows", "ppo-cartpol"], "did you mean 'ppo-cartpole'"),
        ("leasing", ["--rounds", "5"], "--rounds must be >= 20, got 5"),
        ("leasing", ["--repeats", "6"], r"--repeats must be in 1\.\.5, got 6"),
        ("leasing", ["--rows", "utilization"], r"unknown row 'utilization'; did you mean 'utilisation'\?"),
        ("leasing", ["--rows", "grants"], "unknown row 'grants'"),
        ("leasing", ["--live-repeats", "2"], "--live-repeats needs --live"),
        ("leasing", ["--live", "--live-rounds", "7"], "--live-rounds must be >= 8, got 7"),
        ("leasing-live", ["--repeats", "0"], ">= 1, got 0"),
        ("leasing-live", ["--rounds", "7"], ">= 8, got 7"),
        ("seats", ["--repeats", "0"], ">= 1, got 0"),
        ("seats", ["--seconds", "0.5"], ">= 1, got 0.5"),
        ("seats", ["--seconds", "nan"], ">= 1, got nan"),
        ("seats", ["--rows", "smal"], "did you mean 'small'"),
        ("warmup", ["--rounds", "19"], "--rounds must be >= 20, got 19"),
        ("warmup", ["--rows", "cels"], r"unknown row 'cels'; did you mean 'cells'\?"),
        ("warmup", ["--rows", "ahead"], "unknown row 'ahead'"),
        ("warmup-live", ["--repeats", "0"], ">= 1, got 0"),
        ("warmup-live", ["--rounds", "1"], ">= 2, got 1"),
        ("batching", ["--splits", "19"], "--splits must be >= 20, got 19"),
        ("batching", ["--rows", "gang"], "unknown row 'gang'"),
        ("batching", ["--live-repeats", "2"], "--live-repeats needs --live"),
        ("batching-live", ["--rounds", "1"], "--rounds must be >= 2, got 1"),
        ("placement", ["--rows", "baseline"], "did you mean 'baselines'"),
        ("placement", ["--paths", "0"], "--paths must be >= 1, got 0"),
        ("batching", ["--rows", "burst"], r"unknown row 'burst'; did you mean 'bursts'\?"),
        ("gpu", ["--seconds", "0.5"], ">= 1, got 0.5"),
        ("swapping", ["--phase", "2"], "--phase and --mode need --device cuda"),
        ("swapping", ["--mode", "tf32"], "--phase and --mode need --device cuda"),
        ("swapping", ["--phase", "5"], r"--phase must be in 1\.\.4, got 5"),
        ("swapping", ["--device", "tpu"], "invalid choice: 'tpu'"),
        ("swapping", ["--rows", "gradient"], "did you mean 'gradients'"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(name, argv, message):
    """Each is the user's to mend, and is answered with the option, the limit and the value that was given."""
    with pytest.raises(ConfigError, match=message):
        BENCHES[name].main(argv)


def test_every_group_leads_to_a_function():
    """Each name has a function of its module; a bench's groups are those that its page documents."""
    for bench in BENCHES.values():
        assert all(map(callable, bench.groups.values()))
    assert list(BENCHES) == [
        "runtime", "rl", "returns", "patents", "leasing", "leasing-live", "seats", "warmup", "warmup-live", "batching",
        "batching-live", "placement", "placement-live", "distribution", "swapping", "gpu",
    ]  # fmt: skip
    assert set(BENCHES["leasing"].groups) == {"utilisation", "throughput", "fairness", "events"}
    groups = {"static", "bursts", "harm", "foreseen", "unseen", "steal", "patent", "trained", "ablation", "plan"}
    assert set(BENCHES["batching"].groups) == groups
    assert set(BENCHES["distribution"].groups) == {"network", "emulated", "payload", "handover", "pack", "staleness"}
    assert set(BENCHES["runtime"].groups) == {
        "hops", "handover", "overhead", "overhead-train", "startup", "reclaim", "failover", "first-step",
    }  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    """Return the groups and efforts that a bench measures, each of which gives one row."""
    calls = []

    def measure(name, group, effort):
        calls.append((name, group, effort))
        return [Row(f"{name}-row", "a row", (1.0,))]

    monkeypatch.setattr(frame, "measure", measure)
    return calls


def test_options_are_the_effort(asked):
    """Seeds are counted by --repeats."""
    assert BENCHES["leasing"].main(["--rows", "fairness", "--repeats", "2", "--rounds", "30"]) == 0
    (effort,) = (effort for _, _, effort in asked)
    assert effort == SimulatedLeasing(repeats=2, rounds=30)
    assert effort.seeds == (0, 1)
    BENCHES["runtime"].main(["--rows", "hops", "--repeats", "7", "--steps", "9", "--quick"])
    assert asked[-1][2] == Runtime(repeats=7, steps=9, quick=True)


def test_a_tier_chooses_its_rows(asked):
    """Without --rows the tier ci is measured, and nothing of nightly; --rows may name any."""
    BENCHES["returns"].main([])
    assert [name for name, _, _ in asked] == ["ppo-cartpole", "gpf-cartpole", "dqn-cartpole"]
    BENCHES["returns"].main(["--rows", "ppo-acrobot", "--seed", "5"])
    name, group, effort = asked[-1]
    assert (name, group.func, group.keywords, effort) == (
        "ppo-acrobot",
        returns,
        {"name": "ppo-acrobot"},
        Returns(seed=5),
    )


def test_a_device_chooses_its_rows(asked, monkeypatch):
    """Without --rows the CPU's; of CUDA all phases, or one."""
    BENCHES["swapping"].main([])
    names = ["gradients", "memory", "hooks", "predicted", "overlap", "squeezed", "subset", "contest", "table"]
    assert [name for name, _, _ in asked] == names
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert Swapping(device="cuda").names == ["copies", "batches", "steps", "task"]
    assert Swapping(device="cuda", phase=4).names == ["task"]
    BENCHES["swapping"].main(["--device", "cuda", "--phase", "3", "--mode", "tf32"])
    assert asked[-1][0] == "steps"
    assert asked[-1][2] == Swapping(device="cuda", phase=3, mode="tf32")


def test_live_adds_the_rows_of_real_processes(asked):
    """A name that both have means both; the live rows have counts of their own, and their defaults where not given."""
    words = ["--rows", "throughput,grants", "--rounds", "30"]
    assert BENCHES["leasing"].main([*words, "--live", "--live-rounds", "9"]) == 0
    efforts = {(group.__module__.rpartition(".")[2], name): effort for name, group, effort in asked}
    assert list(efforts) == [("simulated", "throughput"), ("live", "throughput"), ("live", "grants")]
    assert (efforts["live", "grants"].rounds, efforts["live", "grants"].repeats) == (9, 3)
    assert efforts["simulated", "throughput"].rounds == 30
    assert BENCHES["leasing"].main(["--rows", "throughput"]) == 0
    assert len(asked) == 4, "without --live nothing is started"


def test_a_bench_of_one_group_has_no_rows_to_choose(asked):
    """`--rows` is an option where there is a choice."""
    only = Bench("x", "Measure.", {"a": lambda effort: []}, Runtime)
    with pytest.raises(ConfigError, match="unrecognized arguments: --rows"):
        only.main(["--rows", "a"])
    assert only.main([]) == 0
