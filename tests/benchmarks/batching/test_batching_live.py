"""What `python -m benchmarks batching --live` reads from journals, and a short run of it for real."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from benchmarks.batching import live
from benchmarks.batching.live import Trained, gang_rows, trained
from benchmarks.benches import BENCHES
from benchmarks.efforts import BatchingLive
from benchmarks.frame.padded import GRADIENT_S
from drlnb.records import round as words
from drlnb.records.errors import TrainingFailed
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened


def _journal(n_rounds, slots):
    """Return a task's journal: rounds of 2 s, then of .5 s; their two gradients on these slots."""
    records, t = [], 0.0
    for number in range(1, n_rounds + 1):
        fence = Fence(epoch=1, token=number)
        records += [
            words.GradientComputed(t=t, collector=i, round=number, elapsed_s=0.1, fence=fence, key="", slot=slot)
            for i, slot in enumerate(slots)
        ]
        t += 2.0 if number <= 4 else 0.5
        records += [words.ParametersCommitted(t=t, version=number, fence=fence)]
        records += [words.MetricsRecorded(round=number, n_timesteps=number, metrics={})]
    header = StreamOpened(stream="a", machine="round", config={}, origin="measured", version="0")
    return Journal(streams={"a": Stream(header=header, records=tuple(records), torn=False, source="here")})


def test_the_first_rounds_do_not_count():
    """Four rounds of 2 s, then five of .5 s from the end of the fourth on: 2 rounds/s, not less."""
    assert trained(_journal(9, ("s0", "s1")), b"p", 2) == Trained(rounds_per_s=pytest.approx(2.0), parameters=b"p")


@pytest.mark.parametrize(("slots", "n_learners", "n_used"), [(("s0", "s0"), 2, 1), (("s0", "s1"), 1, 2)])
def test_another_number_of_slots_than_learners_is_no_measurement(slots, n_learners, n_used):
    """A gang that was lent one slot has the time of one: it must not stand in the row of two, nor the other way."""
    with pytest.raises(TrainingFailed, match=f"round 5 of {n_learners} learners was computed on {n_used} slots"):
        trained(_journal(6, slots), b"", n_learners)


def test_figures_by_hand():
    """Two learners 3 and 3.2 rounds/s, one 2 and 1.6: medians 3.1 and 1.8, pairs 1.5 and 2; one of four is odd."""
    one = [Trained(rounds_per_s=2.0, parameters=b"p"), Trained(rounds_per_s=1.6, parameters=b"p")]
    two = [Trained(rounds_per_s=3.0, parameters=b"p"), Trained(rounds_per_s=3.2, parameters=b"q")]
    rounds, same = gang_rows({"one": one, "two": two})
    assert rounds.ratio == pytest.approx(3.1 / 1.8)
    assert tuple(rounds.pairs) == (1.5, pytest.approx(2.0))
    assert rounds.holds
    assert (same.value, same.holds) == (3.0, False)
    slower = [Trained(rounds_per_s=2.6, parameters=b"p")] * 2
    rounds, same = gang_rows({"one": one, "two": slower})
    assert (rounds.holds, same.holds) == (False, True)


def test_both_ways_are_trained_in_turn(monkeypatch, tmp_path):
    """One learner, two, one, two: the same task of padded gradients but for its learners, on a pool of two slots."""
    asked = []

    def train(tasks, name):
        (task,) = tasks
        asked.append(task.spec)
        folder = tmp_path / name / "checkpoints" / "a"
        (folder / "v7").mkdir(parents=True)
        (folder / "LATEST").write_text("v7")
        (folder / "v7" / "model.safetensors").write_bytes(b"same")
        return _journal(7, ("s0", "s1")[: task.spec.n_learners])

    opened = []

    def stage(slots):
        opened.append(slots)
        return contextlib.nullcontext(SimpleNamespace(train=train, folder=tmp_path))

    monkeypatch.setattr(live, "open_stage", stage)
    rounds, same = live.gang(BatchingLive(repeats=2, rounds=3))
    assert opened == [2]
    assert [spec.n_learners for spec in asked] == [1, 2, 1, 2]
    assert len({str(spec.to_plain() | {"n_learners": 1}) for spec in asked}) == 1
    assert asked[0].total_timesteps == (3 + 4) * 4 * 16
    assert (rounds.ratio, same.value) == (pytest.approx(1.0), 4.0)
    assert f"{GRADIENT_S * 1000:.0f} ms" in rounds.title


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_run_for_real(tmp_path):
    """Two learners are faster than one, with the same parameters; no simulated row is measured for it."""
    words = ["--live", "--rows", "gang", "--live-repeats", "1", "--live-rounds", "8"]
    assert BENCHES["batching"].main([*words, "--json", str(tmp_path / "rows.json")]) == 0
    rows = {row["id"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    assert set(rows) == {"m10-rounds", "m10-same"}
    assert rows["m10-rounds"]["ratio"] > 1.2
    assert rows["m10-same"]["holds"]
