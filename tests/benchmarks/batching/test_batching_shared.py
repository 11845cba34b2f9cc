"""What is measured of steps that two slots share: figures by hand, and members that take their time."""

import json
import time
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from torch import nn

from benchmarks.batching import emulated, shared, work
from benchmarks.batching.emulated import Emulated
from benchmarks.batching.shared import Split
from benchmarks.benches import BENCHES
from drlnb.records import round as words
from drlnb.records.columns.batching import ApplyGradients, GradientsApplied, ShareComputed, SplitClosed, SplitPlanned
from drlnb.records.errors import TrainingFailed
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.sim.batching.traces import Contention

FENCE = Fence(1, 1)


def share(t, split, slot, n, loss):
    return ShareComputed(
        t=t, round=1, split=split, slot=slot, fence=FENCE, first=0, n_planned=n, n_done=n, denominator=float(n),
        loss=loss, norm_sq=1.0, compute_s=0.1, elapsed_s=0.1, age_s=0.1, key="k",
    )  # fmt: skip


def closed(split, duration_s):
    return SplitClosed(round=1, split=split, n_used=4, lost={}, duration_s=duration_s, wait_s=0.0, cause="all")


def applied(t, split):
    return GradientsApplied(t=t, round=1, split=split, fence=FENCE, elapsed_s=0.01, key="k")


def journal(*records):
    header = StreamOpened(stream="a", machine="round", config={}, origin="measured", version="0")
    return Journal(streams={"a": Stream(header=header, records=records, torn=False, source="here")})


def test_a_step_has_the_mean_loss_of_its_shares_and_the_time_at_which_it_was_made():
    """Losses 1 and 5 of 3 samples and 1: 2.  Planned at 1 s, made at 1.5 s; the second one at 2 s."""
    planned = SplitPlanned(round=1, planner="equal", members=("x", "y"), sizes=(3, 1), split=1)
    opened = words.LeaseReceived(t=1.0, request_id="r", fence=FENCE, slots=("x", "y"), waited_s=0.0)
    first = (share(1.2, 1, "x", 3, 1.0), share(1.4, 1, "y", 1, 5.0), closed(1, 0.4), applied(1.5, 1))
    second = (share(1.7, 2, "x", 3, 1.0), share(1.9, 2, "y", 1, 1.0), closed(2, 0.4), applied(2.0, 2))
    began_t, splits = shared.splits_of(journal(opened, planned, *first, *second))
    assert began_t == 1.0
    assert splits == (Split(duration_s=0.4, made_t=1.5, loss=2.0), Split(duration_s=0.4, made_t=2.0, loss=1.0))


def test_a_loss_is_reached_with_an_epoch(monkeypatch):
    """Epochs of two steps with the means 3 and 1.5: the second one is the first that is at most 2."""
    monkeypatch.setattr(work, "N_SAMPLES", 2 * work.BATCH)
    losses = zip((2.0, 3.0, 4.0, 5.0), (5.0, 1.0, 2.0, 1.0), strict=True)
    splits = [Split(duration_s=0.1, made_t=t, loss=loss) for t, loss in losses]
    assert shared.reached_s(1.5, splits, 2.0) == 3.5
    assert shared.reached_s(1.5, splits, 3.0) == 1.5
    with pytest.raises(TrainingFailed, match=r"no epoch's mean loss was 1 or less"):
        shared.reached_s(1.5, splits, 1.0)


def test_steps_that_were_made_again_are_counted():
    """By hand: of round 1 step 0 twice; both steps of round 2, which one slot makes alone; step 4 of round 3 stays."""

    def step(round, split, step, slot="x"):
        order = ApplyGradients(
            fence=FENCE, slot=slot, round=round, split=split, step=step, keys=(), denominators=(), others=()
        )
        return order, replace(applied(1.0, split), round=round)

    alone = words.ComputeGradient(
        collector=-1, round=2, key="", fence=FENCE, slot="x", version=2, after_timesteps=4
    )  # fmt: skip
    steps = [step(1, 1, 0), step(1, 2, 0), step(1, 3, 1), step(2, 4, 2), step(2, 5, 3), step(3, 6, 4), step(3, 0, 4)]
    assert shared.made_again(journal(*[record for each in steps for record in each], alone)) == 3


def made(*times, parameter=1.0, n_lost=0, n_again=0, whole_s=9.0):
    splits = tuple([Split(duration_s=0.1, made_t=t, loss=1.0) for t in times])
    held = safetensors.torch.save({"body.w": torch.tensor([parameter])})
    return shared._Shared(0.0, splits, whole_s, n_lost=n_lost, n_again=n_again, parameters=held)


def test_figures_by_hand(monkeypatch):
    """An epoch is one step here; half of equal's time holds; the largest difference counts, of whoever it is."""
    monkeypatch.setattr(work, "N_SAMPLES", work.BATCH)
    wanted = {"w": torch.tensor([1.0])}
    found = {"jump-reset": [made(1.0), made(1.0)], "equal": [made(2.0), made(2.0, parameter=1.5)]}
    loss, same = shared.unequal_rows(found, wanted, 1.0)
    assert (loss.ratio, loss.holds, same.value, same.holds) == (0.5, True, 0.5, False)
    killed = {"killed": [made(1.0, n_lost=1, n_again=2, whole_s=6.0)], "spared": [made(1.0, whole_s=4.0)]}
    whole, again, same = shared.killed_rows(killed, wanted, 8)
    assert (whole.ratio, again.value, same.value, same.holds) == (1.5, 2.0, 0.0, True)
    with pytest.raises(TrainingFailed, match="lost no lease"):
        list(shared.killed_rows({"killed": [made(1.0)]}, wanted, 8))


def test_a_trace_is_played_live_and_simulated():
    """The simulator's split without noise: 410 and 102 of 512 samples, 10 ms of overhead, 20 of messages."""
    trace = Contention(family="static", speeds=(2500.0, 625.0), n_splits=20, noise=0.0)
    simulated = 410 / 2500 + 0.030
    off, median, mean = shared.simulated_rows([made(0.0, 0.2, 0.4, 0.7)], trace)
    assert median.baseline == pytest.approx(simulated, abs=1e-3)
    assert mean.baseline == pytest.approx(simulated, abs=1e-3)
    assert (median.value, mean.value) == (pytest.approx(0.2), pytest.approx(0.7 / 3))
    assert off.value == pytest.approx(0.2 / median.baseline - 1.0)
    assert off.holds


def test_an_emulated_member_takes_the_time_of_its_slot(monkeypatch):
    """In an executor and in training; its speed is that of the share's number, the last one's from there on."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "perf_counter", lambda: 5.0)
    monkeypatch.setattr(emulated, "_n_shares", emulated.Counter())
    module = Emulated(nn.Identity(), [(100.0, 10.0), (100.0, 20.0)], "w")
    rows = torch.zeros(4, 1)
    module(rows)
    assert not slept, "this process is no executor"
    monkeypatch.setattr(emulated, "getproctitle", lambda: "drlnb executor 0/cpu1 r/fit")
    module.eval()(rows)
    assert not slept
    module.train()
    for _ in range(3):
        assert module(rows) is rows
    assert slept == pytest.approx([0.41, 0.21, 0.21])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_short_run_for_real(tmp_path):
    """Shares that follow speeds are faster than equal ones, with the same parameters, a killed member or not."""
    asked = ["--rows", "fit-unequal,fit-killed", "--repeats", "1", "--steps", "40"]
    assert BENCHES["batching-live"].main([*asked, "--json", str(tmp_path / "rows.json")]) == 0
    rows = {row["id"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    assert rows["m5-loss"]["ratio"] < 0.8
    assert rows["m5-same"]["holds"]
    assert rows["m11-same"]["holds"]
