"""What `python -m benchmarks leasing-live` reads from a journal, and a short run of it for real."""

import json

import pytest

from benchmarks.benches import BENCHES
from benchmarks.frame.padded import GRADIENT_S, STEP_S
from benchmarks.leasing.live import MODELLED_S, Held, Turn, held, throughput_rows
from drlnb.records.columns import leasing
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened


def _journal(*leases):
    """Return a pool's stream of leases (task, round, second of its end, seconds computed), in order of their ends."""
    records = []
    for token, (task, round_, t, computed_s) in enumerate(leases, 1):
        fence = Fence(epoch=1, token=token)
        granted = leasing.LeaseGranted(
            fence=fence, request_id=f"q{token}", task=task, attempt=1, round=round_, slots=("s",), waited_s=0.0
        )
        released = leasing.LeaseReleased(
            fence=fence, task=task, slots=("s",), held_s=1.0, computed_s=(computed_s,), reason="returned"
        )
        records += [leasing.RequestPolled(t=t - 0.5, request_id="q"), granted]
        records += [leasing.RequestPolled(t=t, request_id="q"), released]
    header = StreamOpened(stream="p", machine="pool", config={}, origin="measured", version="0")
    return Journal(streams={"p": Stream(header=header, records=tuple(records), torn=False, source="here")})


def test_rounds_are_counted_while_all_are_at_work():
    """A ends rounds at 10, 12, 14, 16; b at 11, 13, 15: between 11 and 15 s are a, b, a, b, each .5 s of compute."""
    ends = [("a", 10), ("b", 11), ("a", 12), ("b", 13), ("a", 14), ("b", 15), ("a", 16)]
    numbers = {"a": iter(range(1, 9)), "b": iter(range(1, 9))}
    found = held(_journal(*((task, next(numbers[task]), float(t), 0.5) for task, t in ends)), n_warm=0)
    assert (found.rounds_per_s, found.busy, found.compute_s) == (1.0, 0.5, 0.5)


def test_a_round_in_two_leases_is_one_round():
    """Given away after .1 s and taken up again for .2 s, the round ends with the second lease and computed .3 s."""
    found = held(
        _journal(("a", 1, 1.0, 0.3), ("a", 2, 1.5, 0.1), ("a", 2, 2.0, 0.2), ("a", 3, 3.0, 0.3), ("a", 4, 4.0, 0.3)),
        n_warm=0,
    )
    assert found.rounds_per_s == pytest.approx(1.0)
    assert found.compute_s == pytest.approx(0.3)


def test_figures_of_a_turn_by_hand():
    """Alone .2 s of 1 s: d = .2, bound .8, in sequence 1 round/s; leased 3.4 rounds/s of .2 s: busy .68, .85 of it."""
    alone = (Held(rounds_per_s=1.0, busy=0.2, compute_s=0.2),) * 4
    leased = Held(rounds_per_s=3.4, busy=0.68, compute_s=0.2)
    turn = Turn(leased=leased, alone=alone, co_located=4.0, real=0.1, n_same=4)
    rows = {row.id: row for row in throughput_rows([turn])}
    assert rows["b5-bound"].ratio == pytest.approx(0.85)
    assert rows["b5-exclusive"].ratio == pytest.approx(3.4)
    assert rows["b5-co-located"].ratio == pytest.approx(0.85)
    assert rows["b5-same"].holds
    assert rows["b5-real"].holds
    assert "expects 0.86" in rows["b5-bound"].against
    spoilt = {
        row.id: row for row in throughput_rows([Turn(leased=leased, alone=alone, co_located=4.0, real=0.4, n_same=3)])
    }
    assert "INVALID" in spoilt["b5-bound"].title
    assert [spoilt[name].holds for name in ("b5-same", "b5-real")] == [False, False]


def test_a_modelled_round_is_a_fifth_on_the_slot():
    """Sixteen steps of 30 ms, one gradient of 120 ms: .6 s."""
    assert pytest.approx(0.6) == MODELLED_S
    assert pytest.approx(0.2) == GRADIENT_S / MODELLED_S
    assert STEP_S == 0.03


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_short_run_for_real(tmp_path):
    """Four tasks share the slot, each with the parameters of the task alone; grants are measured both ways."""
    assert (
        BENCHES["leasing-live"].main(["--repeats", "1", "--rounds", "12", "--json", str(tmp_path / "rows.json")]) == 0
    )
    rows = {row["id"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    assert rows["b5-same"]["value"] == 4
    assert rows["b5-exclusive"]["ratio"] > 1.5, "together they are faster than one after the other, on any machine"
    assert 0 < rows["b6-near"]["value"] < rows["b6-far"]["value"]
