"""``drlnb simulate distribution``: a table, JSON, and what a sweep and a failure add."""

import json

import pytest

from drlnb.cli.main import main


def run(capsys, *words):
    """Return the lines that a command prints."""
    assert main(["simulate", "distribution", *words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.thorough
def test_the_table_has_every_plan_beside_the_bound(capsys):
    """At the figures of the patent's larger experiment: nothing is below the bound, the learner sends one version.

    By hand, `multitree:m=7,c=8`: three of its trees have 42 inner hosts, which serve ceil(297 / 42) = 8 each.  The loop
    of such a host takes 7 * 8 messages in and sends 8 * 8: 120 of 150 us.  Each of 3 levels costs 8 chunks of L / 56,
    the learner 7 before them, and 4 messages their latency and loop: 18 + 31 * .305 + 4 * .45 = 29.3 ms.
    """
    title, _, *lines = run(capsys)
    assert title.startswith("298 hosts, 20 MB, 10 Gbit/s, latency 300 us, 150 us per message")
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert list(rows) == ["star", "tree", "binomial", "chain", "relay", "multitree", "auto"]
    assert all(float(ratio) >= 1.0 for _, _, _, ratio, *_ in rows.values())
    assert float(rows["multitree"][2]) == pytest.approx(1 / 0.0293, rel=0.06), "versions per second"
    assert [rows[name][5] for name in ("star", "relay", "multitree")] == ["298.00", "1.00", "1.00"]


def test_json_has_a_row_per_plan_and_number_of_relays(capsys):
    """A sweep tries as many relays as there are hosts."""
    report = json.loads(run(capsys, "--hosts", "12", "--plan", "star", "--sweep", "relay", "--json")[-1])
    assert [row["id"] for row in report["rows"]] == ["star", *(f"relay:m={m}" for m in (1, 2, 3, 5, 7, 10))]
    assert (report["bench"], report["hosts"], report["model_bytes"]) == ("simulate-distribution", 12, 20_000_000)
    star = report["rows"][0]
    assert star["value"] == pytest.approx(12 * 20 / 1170, rel=0.01)
    assert star["origin"] == "simulated"
    assert star["ratio"] == star["value"] / report["bound_s"]


def test_a_file_that_cannot_be_written_is_named(capsys, tmp_path):
    """In one line, with the option and the reason."""
    assert main(["simulate", "distribution", "--hosts", "2", "--plan", "star", "--json", str(tmp_path)]) == 2
    assert f"--json {tmp_path} cannot be written: Is a directory" in capsys.readouterr().err


def test_a_host_that_fails_is_named(capsys):
    """The others get the version, somewhat later."""
    words = ("--hosts", "8", "--plan", "relay:m=8", "chain:c=1")
    quiet, disturbed = run(capsys, *words), run(capsys, *words, "--fail", "3@0.001")
    assert [line.split()[-1] for line in quiet[2:]] == ["-", "-"]
    assert [line.split()[-1] for line in disturbed[2:]] == ["h3", "h3"]


def test_the_network_changes_the_choice(capsys):
    """Where messages cost much, `auto` takes a plan with fewer of them."""
    cheap, dear = (
        json.loads(
            run(capsys, "--hosts", "16", "--plan", "auto", "--overhead-us", us, "--latency-us", "0", "--json")[-1]
        )
        for us in ("10", "100000")
    )
    assert cheap["rows"][0]["n_messages"] > dear["rows"][0]["n_messages"]
