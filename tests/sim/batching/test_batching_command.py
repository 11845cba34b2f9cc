"""``drlnb simulate batching``."""

import json

import pytest

from drlnb.cli.main import main

WORDS = ["simulate", "batching", "--splits", "40", "--planners", "equal,static"]


def test_a_table(capsys):
    """One line per planner, beside who knows each split's speeds before it."""
    assert main(WORDS) == 0
    out, err = capsys.readouterr()
    assert err == ""
    head, columns, equal, static = out.splitlines()
    assert head == "8 members, 512 samples a split, static, quorum 1.0, late cut, 40 splits, seeds 0 (simulated)"
    assert columns.split() == ["planner", "split", "s", "v", "clairvoyant", "samples/s", "of", "best", "lost"]
    assert equal.split()[0] == "equal"
    assert float(equal.split()[2]) == pytest.approx(2.63, abs=0.05)
    assert float(static.split()[2]) == pytest.approx(1.06, abs=0.02)
    assert static.split()[-1] == "0.00%"


def test_json_is_the_last_line(capsys):
    """Rows in the form that every bench shares, and what was simulated."""
    words = ["--family", "memoryless", "--dwell", "5", "--quorum", "6", "--seeds", "0-1", "--batch", "100", "--json"]
    assert main([*WORDS, *words]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["bench"], report["seeds"], report["baseline"]) == ("simulate-batching", [0, 1], "clairvoyant")
    assert (report["contention"]["family"], report["contention"]["dwell"]) == ("memoryless", 5.0)
    assert report["gang"] == {"n_units": 100, "quorum": 6, "late": "cut", "steal": False}
    equal, static = report["rows"]
    assert (equal["id"], static["id"], static["origin"]) == ("equal", "static", "simulated")
    assert static["spread"]["n"] == 2
    assert static["ratio"] > 1.0
    assert 0 < static["lost_frac"] < 0.2


def test_members_are_those_of_the_option(capsys):
    """One member alone takes everything: nobody could split better."""
    assert main([*WORDS, "--speeds", "50", "--family", "periodic", "--periods", "5,7"]) == 0
    head, _, equal, _ = capsys.readouterr().out.splitlines()
    assert head.startswith("1 member, 512 samples a split, periodic periods 5,7, quorum 1.0")
    assert equal.split()[2] == "1.000"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--planners", "statik"], "--planners must name some of equal, "),
        (["--family", "bursty"], "--family must be one of static, memoryless, periodic, correlated, got 'bursty'"),
        (["--speeds", "100,x"], "argument --speeds: must be numbers by comma, got '100,x'"),
        (["--speeds", "100,-1"], "--speeds must be 1 to 64 speeds > 0 in samples per second, got (100.0, -1.0)"),
        (["--periods", "2"], "--periods must be 1 to 64 whole numbers > 2, got (2,)"),
        (["--late", "carry"], "--late must be one of cut, drop, got 'carry'"),
        (["--quorum", "1"], "--quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 to 8, got 1"),
        (["--quorum", "0"], "--quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 to 8, got 0"),
        (["--quorum", "9"], "--quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 to 8, got 9"),
        (
            ["--quorum", "nan"],
            "--quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 to 8, got nan",
        ),
        (["--splits", "0"], "argument --splits: must be a whole number >= 1, got '0'"),
        (["--splits", "5"], "--splits must be a whole number in 10..100000, got 5"),
    ],
)
def test_wrong_words_are_answered_in_one_line(words, message, capsys):
    """Exit code 2, nothing simulated."""
    assert main([*WORDS, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"drlnb: {message}")
    assert err.count("\n") == 1
