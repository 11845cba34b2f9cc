"""The number of seats at the door: what is wrong is told before a cluster is started."""

import pytest

import drlnb
from drlnb.cli.main import main
from drlnb.fleet.cluster import pool as module
from drlnb.fleet.cluster.pool import Wanted
from drlnb.records.errors import ConfigError


@pytest.mark.parametrize("seats", [0, -1, 5, 2.0, True, "2", "auto", None])
def test_a_wrong_number_of_seats_starts_nothing(monkeypatch, seats):
    """`Fleet(seats=...)`: one line with the limits and the value."""
    monkeypatch.setattr(module, "start_cluster", lambda n: pytest.fail("a cluster was started"))
    with pytest.raises(ConfigError) as caught:
        drlnb.Fleet(slots=1, seats=seats)
    assert str(caught.value) == f"seats must be a whole number in 1..4, got {seats!r}"


def test_other_numbers_are_checked_as_before():
    """`slots` and `n_workers` are whole numbers from 1 on; slots may be auto."""
    assert (Wanted().n_devices, Wanted().names) == (None, ())
    assert (Wanted(n_workers=2, slots=3, seats=2).n_devices, Wanted(slots=3).names) == (3, ())
    with pytest.raises(ConfigError, match=r"slots must be 'auto', a whole number in 1..1000 or a list .*, got 0"):
        Wanted(slots=0)
    with pytest.raises(ConfigError, match=r"n_workers must be a whole number in 1..256, got True"):
        Wanted(n_workers=True, slots=1)


@pytest.mark.parametrize("text", ["0", "-1", "5", "two", "1.5", "", "auto"])
def test_wrong_seats_on_the_command_line_are_one_line(capsys, monkeypatch, text):
    """Exit code 2 and one line on standard error that names the option, the limits and what was typed."""
    monkeypatch.setattr(module, "start_cluster", lambda n: pytest.fail("a cluster was started"))
    assert main(["train", "CartPole-v1", f"--seats={text}"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "--seats" in said[0]
    assert "must be a whole number in 1..4, got" in said[0]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"isolation": "thread"}, "isolation must be one of shared, process, got 'thread'"),
        ({"isolation": None}, "isolation must be one of shared, process, got None"),
    ],
)
def test_a_wrong_isolation_starts_nothing(monkeypatch, given, line):
    """`Fleet(isolation=...)`: one line with the words that there are."""
    monkeypatch.setattr(module, "start_cluster", lambda n: pytest.fail("a cluster was started"))
    with pytest.raises(ConfigError) as caught:
        drlnb.Fleet(slots=1, **given)
    assert str(caught.value) == line


def test_a_wrong_isolation_on_the_command_line_is_one_line(capsys):
    """The nearest words are told."""
    assert main(["train", "CartPole-v1", "--isolation", "proces"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert said == ["drlnb: unknown --isolation 'proces'; did you mean 'process'?"]
