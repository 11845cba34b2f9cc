"""`drlnb bench seats`: wrong words are refused before anything starts; each regime is compared by its own name."""

import pytest

from drlnb.bench import seats, sharing
from drlnb.bench.seats import GROUPS, Effort
from drlnb.bench.sharing import REGIMES, Shared
from drlnb.records.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--repeats", "0"], ">= 1, got 0"),
        (["--seconds", "0.5"], ">= 1, got 0.5"),
        (["--seconds", "nan"], ">= 1, got nan"),
        (["--rows", "smal"], "did you mean small"),
    ],
)
def test_wrong_words_are_refused(monkeypatch, words, message):
    """Before anything starts."""
    monkeypatch.setattr(seats, "go_through", lambda *_: pytest.fail("it began"))
    with pytest.raises(ConfigError, match=message):
        seats.main(words)


def test_isolation_is_measured_in_turn_with_two_tasks(monkeypatch):
    """Shared and process interleaved; the price is the ratio of the same turn."""
    asked = []

    def leased(regime, seconds, n_seats, *, isolation):
        asked.append((regime.name, regime.n_tasks, seconds, n_seats, isolation))
        return Shared(rounds_per_s=8.0 if isolation == "shared" else 6.0, n_rounds=9)

    monkeypatch.setattr(sharing, "leased", leased)
    shared, process = seats.isolation(Effort(repeats=2, seconds=5.0))
    assert asked == [("short", 2, 5.0, 1, way) for way in ("shared", "process")] * 2
    assert (shared.id, shared.samples) == ("isolation-shared", (8.0, 8.0))
    assert (process.id, process.against, process.ratio) == ("isolation-process", "isolation shared", 0.75)


@pytest.mark.parametrize("name", REGIMES)
def test_each_group_compares_its_regime(monkeypatch, name):
    """With the seconds and turns that were asked for."""
    asked = []
    ways = ("exclusive", "co-located", "lease, seats auto")

    def compare(regime, seconds, repeats):
        asked.append((regime, seconds, repeats))
        return {way: [Shared(rounds_per_s=2.0, n_rounds=9)] * repeats for way in ways}

    monkeypatch.setattr(seats, "compare", compare)
    made = getattr(seats, GROUPS[name][1])(Effort(repeats=2, seconds=5.0))
    assert asked == [(REGIMES[name], 5.0, 2)]
    assert {row.id for row in made if row.bar is not None} == {f"sharing-{name}-auto"}
