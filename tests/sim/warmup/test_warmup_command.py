"""``drlnb simulate warmup``."""

import json

import pytest

from drlnb.cli.main import main
from drlnb.records.columns.warmup import WarmupMeasured
from drlnb.records.journal import Journal

KNOWN = "--planners must name some of cold, keep, patent, saa, or be all; got "
COUNT = "must be a whole number >= 1"
WORDS = ["simulate", "warmup", "--rounds", "20", "--workers", "2", "--planners", "cold,keep"]


def test_a_table_for_a_person(capsys):
    """One line per planner, compared with cold."""
    assert main(WORDS) == 0
    out, err = capsys.readouterr()
    assert err == ""
    head, columns, cold, keep = out.splitlines()
    assert head == "2 collectors, gap 6 s, jitter 0.1, jitter, spawn, rho 1, 20 rounds, seeds 0 (simulated)"
    assert columns.split() == ["planner", "wait", "s", "idle", "s", "cost", "s", "v", "cold", "in", "time"]
    assert cold.split()[0] == "cold"
    assert cold.split()[4:] == ["1.00", "0%"]
    assert keep.split()[0] == "keep"
    assert keep.split()[5] == "100%"


def test_json_is_the_last_line(capsys):
    """Rows in the form that every bench shares, and what was simulated."""
    assert main([*WORDS, "--json", "--seeds", "0-1", "--rho", "10"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["bench"], report["rho"], report["seeds"], report["baseline"]) == (
        "simulate-warmup",
        10,
        [0, 1],
        "cold",
    )
    assert report["workload"]["n_workers"] == 2
    cold, keep = report["rows"]
    assert cold["id"] == "cold"
    assert cold["ratio"] == 1.0
    assert cold["spread"]["n"] == 2
    assert cold["value"] == pytest.approx(10 * cold["wait_s"] + cold["idle_s"])
    assert keep["origin"] == "simulated"
    assert keep["baseline"] == f"cold {cold['value']:.6f}"


def test_all_planners_are_compared_by_default(capsys):
    """In the order of the settings' page."""
    assert main(["simulate", "warmup", "--rounds", "12", "--workers", "1"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert names == ["cold", "keep", "patent", "saa"]


def test_without_cold_the_first_one_is_the_yardstick(capsys):
    """The column says so."""
    assert main([*WORDS[:-1], "keep,patent"]) == 0
    assert "v keep" in capsys.readouterr().out


def test_journals_are_written(tmp_path, capsys):
    """One stream per planner and seed; a directory that holds something is refused before the work."""
    out = tmp_path / "run"
    assert main([*WORDS, "--out", str(out)]) == 0
    journal = Journal.read(out)
    assert sorted(journal.streams) == ["cold-seed0", "keep-seed0"]
    assert len(journal.of(WarmupMeasured)) == 2 * 20
    capsys.readouterr()
    assert main([*WORDS, "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"drlnb: --out must be a new or empty directory, got {out}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--planners", "sa"], KNOWN + "'sa'"),
        (["--planners", ","], KNOWN + "','"),
        (["--shape", "x", "--rho", "-1"],
         "--shape must be one of jitter, outliers, shifts, got 'x'; --rho must be a number from 1e-9 to 1e9, got -1.0"),
        (["--rounds", "0"], f"argument --rounds: {COUNT}, got '0' (see: drlnb simulate warmup --help)"),
        (["--rounds", "5"], "--rounds must be a whole number in 10..100000, got 5"),
        (["--sahpe", "x"], "unknown option --sahpe; did you mean '--shape'? (see: drlnb simulate warmup --help)"),
        (["--seeds", "a"],
         "argument --seeds: seeds must be whole numbers >= 0, as 0 or 0-4 or 0, 3, got 'a' "
         "(see: drlnb simulate warmup --help)"),
    ],
)  # fmt: skip
def test_wrong_words_are_answered_in_one_line(words, message, capsys):
    """Exit code 2, nothing simulated."""
    assert main(["simulate", "warmup", *words]) == 2
    assert capsys.readouterr() == ("", f"drlnb: {message}\n")


def test_what_can_be_simulated_is_listed(capsys):
    """Without a word, and with one that is nearly right."""
    assert main(["simulate"]) == 2
    assert "the following arguments are required: WHAT" in capsys.readouterr().err
    assert main(["simulate", "warmpu"]) == 2
    assert "unknown WHAT 'warmpu'; did you mean 'warmup'?" in capsys.readouterr().err
