"""Rounds per second while all are at work, by hand; the rows that compare; one real process, and one real lease."""

import os
import time

import pytest

from benchmarks.efforts import Seats
from benchmarks.frame.journals import rate
from benchmarks.frame.processes import Trained
from benchmarks.frame.stage import virtual_devices
from benchmarks.seats import sharing
from benchmarks.seats.sharing import REGIMES, Regime, Shared, regime_rows
from drlnb.records.errors import TrainingFailed

TINY = Regime(name="tiny", settings={"n_steps": 8, "batch_size": 16, "n_epochs": 1}, n_envs=2, n_tasks=2)


def test_only_time_in_which_all_are_at_work_counts():
    """Ends 1 2 3 4 and 1.5 2.5 3.5: from 1.5 to 3.5 four rounds end, 2 per second."""
    assert rate([[1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5]]) == (2.0, 4)
    assert rate([[1.0, 2.0, 3.0, 4.0, 5.0], [1.5, 2.5, 3.5, 4.5]], since=2.2) == (pytest.approx(2.0), 3)


@pytest.mark.parametrize("ends", [[[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0, 4.0]], []])
def test_too_few_rounds_are_refused(ends):
    """One round is no rate, nor are two that never ran together."""
    with pytest.raises(TrainingFailed, match="more"):
        rate(ends)


def test_tasks_in_sequence_take_the_sum_of_their_times(monkeypatch):
    """Rounds of .5 s and of 1 s, one after the other: 2 rounds in 1.5 s."""
    times = iter([[0.0, 0.5, 1.0], [0.0, 1.0, 2.0, 3.0]])
    asked = []
    monkeypatch.setattr(
        sharing,
        "train_all",
        lambda works: asked.append([one["seconds"] for one in works]) or [Trained(1, ends=next(times))],
    )
    found = sharing.exclusive(TINY, 10.0)
    assert found == Shared(rounds_per_s=pytest.approx(2 / 1.5), n_rounds=5)
    assert asked == [[5.0], [5.0]]


def test_each_lease_is_compared_with_the_better_of_the_same_turn():
    """Turn 1: 2 beats 1; turn 2: 3 beats 1; two seats do 2 and 3: 1.0 x."""

    def of(*values):
        return [Shared(rounds_per_s=value, n_rounds=9) for value in values]

    found = {"exclusive": of(1.0, 3.0), "co-located": of(2.0, 1.0), "lease, seats 1": of(1.0, 1.0)}
    found["lease, seats 2"] = of(2.0, 3.0)
    exclusive, together, one, two = regime_rows(TINY, found)
    assert (exclusive.samples, together.samples) == ([1.0, 3.0], [2.0, 1.0]), "both baselines are shown"
    assert (one.id, two.id) == ("sharing-tiny-1", "sharing-tiny-2")
    assert one.pairs == (0.5, pytest.approx(1 / 3))
    assert two.pairs == (1.0, 1.0)
    assert two.bar is None


def test_regimes_differ_in_the_size_of_their_kernels_only():
    """Same seeds, as many tasks; each task's spec can be trained without a cluster."""
    small, large = REGIMES["small"], REGIMES["large"]
    assert (small.n_tasks, small.n_envs) == (large.n_tasks, large.n_envs)
    specs = [work["spec"] for work in large.works(1.0)]
    assert [spec["seed"] for spec in specs] == [0, 1, 2, 3]
    assert specs[0]["hyperparameters"]["policy_kwargs"]["net_arch"] == [512, 512]


def test_isolation_is_measured_in_turn_with_two_tasks(monkeypatch):
    """Shared and process interleaved; the price is the ratio of the same turn."""
    asked = []

    def leased(regime, seconds, n_seats, *, isolation):
        asked.append((regime.name, regime.n_tasks, seconds, n_seats, isolation))
        return Shared(rounds_per_s=8.0 if isolation == "shared" else 6.0, n_rounds=9)

    monkeypatch.setattr(sharing, "leased", leased)
    shared, process = sharing.isolation(Seats(repeats=2, seconds=5.0))
    assert asked == [("short", 2, 5.0, 1, way) for way in ("shared", "process")] * 2
    assert (shared.id, shared.samples) == ("isolation-shared", [8.0, 8.0])
    assert (process.id, process.against, process.ratio) == ("isolation-process", "isolation shared", 0.75)


@pytest.mark.parametrize("name", REGIMES)
def test_each_group_compares_its_regime(monkeypatch, name):
    """With the seconds and turns that were asked for, every way in turn."""
    asked = []

    def way(word):
        def measure(regime, seconds, *n_seats):
            asked.append((word, *n_seats, regime, seconds))
            return Shared(rounds_per_s=2.0, n_rounds=9)

        return measure

    for word in ("exclusive", "co_located", "leased"):
        monkeypatch.setattr(sharing, word, way(word))
    made = list(sharing.regime(Seats(repeats=2, seconds=5.0), name))
    ways = [("exclusive",), ("co_located",), *(("leased", n_seats) for n_seats in REGIMES[name].seats)]
    assert asked == [(*words, REGIMES[name], 5.0) for words in ways] * 2
    assert [row.id for row in made] == [f"sharing-{name}-{way}" for way in ("exclusive", "co-located", "1", "2")]


def test_processes_compute_on_the_device_of_their_regime():
    """On CUDA the children are told so, and see the device; a slot is not virtual there."""
    assert {work.get("device") for work in REGIMES["cnn"].works(1.0)} == {"cuda"}
    assert {work.get("device") for work in REGIMES["small"].works(1.0)} == {None}
    with virtual_devices(cuda=True):
        assert os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    with virtual_devices():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.slow
@pytest.mark.cluster
def test_processes_and_a_lease_really_train():
    """Ordinary processes and a lease with two seats all do rounds; nothing is left of them."""
    began_t = time.monotonic()
    found = sharing.co_located(TINY, 2.0)
    assert found.n_rounds >= 2
    assert found.rounds_per_s > 0
    leased = sharing.leased(TINY, 1.0, 1)
    assert leased.n_seats == 1
    assert leased.n_rounds >= 2
    assert time.monotonic() - began_t < 110
