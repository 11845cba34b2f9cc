"""What `fleet.fit` costs: figures by hand, and both ways in turn."""

import contextlib
import copy
import json
from types import SimpleNamespace

import pytest
import torch

from benchmarks.batching import fitted as bench
from benchmarks.batching import work
from benchmarks.batching.fitted import Fitted
from benchmarks.benches import BENCHES
from benchmarks.efforts import BatchingLive
from drlnb.records import round as words
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal, Stream, StreamOpened


def _journal(*ends):
    """Return the journal of a task whose rounds ended at (seconds, steps)."""
    records = []
    for number, (t, n) in enumerate(ends, 1):
        records.append(words.ParametersCommitted(t=t, version=number, fence=(1, 1)))
        records.append(words.MetricsRecorded(round=number, n_timesteps=n, metrics={}))
    header = StreamOpened(stream="a", machine="round", config={}, origin="measured", version="0")
    return Journal(streams={"a": Stream(header=header, records=tuple(records), torn=False, source="here")})


def test_seconds_of_a_step_are_those_after_the_first_round():
    """The first round's 5 s had the start of the process in it; 18 steps took 1.8 s after it."""
    assert bench.step_s(_journal((5.0, 2), (6.0, 12), (6.8, 20))) == pytest.approx(0.1)
    with pytest.raises(TrainingFailed, match="a training had 1 rounds: ask for more steps"):
        bench.step_s(_journal((5.0, 2)))


def test_figures_by_hand():
    """Medians 105 and 100 ms, pairs 1.1 and 1; three of four have the first plain loop's parameters."""
    plain = [Fitted(step_s=0.1, whole_s=4.0, parameters=b"p")] * 2
    fit = [Fitted(step_s=0.11, whole_s=2.0, parameters=b"p"), Fitted(step_s=0.1, whole_s=2.0, parameters=b"q")]
    step, whole, same = bench.plain_rows({"fit": fit, "plain": plain})
    assert (step.ratio, step.holds) == (pytest.approx(1.05), True)
    assert tuple(step.pairs) == (pytest.approx(1.1), pytest.approx(1.0))
    assert (whole.ratio, whole.bar) == (0.5, None)
    assert (same.value, same.holds) == (3.0, False)
    slower = [Fitted(step_s=0.12, whole_s=2.0, parameters=b"p")] * 2
    step, _, same = bench.plain_rows({"fit": slower, "plain": plain})
    assert (step.holds, same.holds) == (False, True)


def test_both_ways_are_trained_in_turn(monkeypatch, tmp_path):
    """`fit`, the loop, `fit`, the loop: whole epochs of at least as many steps as were asked for."""
    asked = []

    def fit(stage, name, n_epochs):
        asked.append(("fit", n_epochs))
        return Fitted(step_s=0.1, whole_s=1.0, parameters=b"same"), None

    def train(works, module):
        (given,) = works
        asked.append((module, given["n_steps"]))
        (tmp_path / given["out"]).write_bytes(b"same")
        return [SimpleNamespace(ends=[9.0, 9.5, 10.0, 10.25, 10.5])]

    monkeypatch.setattr(bench, "open_stage", lambda: contextlib.nullcontext(SimpleNamespace(folder=tmp_path)))
    monkeypatch.setattr(bench, "fitted", fit)
    monkeypatch.setattr(bench, "train_all", train)
    step, _, same = bench.fit_plain(BatchingLive(repeats=2, steps=41))
    assert asked == [("fit", 6), ("benchmarks.batching.plain_child", 48)] * 2, "an epoch has eight steps"
    assert step.baseline == pytest.approx(0.25), "three steps are warm"
    assert same.holds


def test_the_loop_is_that_of_the_page(monkeypatch):
    """Each epoch goes through all samples once, in steps of one batch, and the loss falls."""
    monkeypatch.setattr(work, "N_SAMPLES", 64)
    monkeypatch.setattr(work, "BATCH", 16)
    monkeypatch.setattr(work, "_WIDTH", 16)
    data, module = work.data_set(), work.module()
    before, n_steps = copy.deepcopy(module), []
    work.plain_loop(module, data, 8, lambda loss: n_steps.append(1))
    assert len(n_steps) == 8
    inputs, targets = data.tensors
    with torch.no_grad():
        assert work.loss(module(inputs), targets) < work.loss(before(inputs), targets)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_run_for_real(tmp_path):
    """The parameters are those of the loop, bit by bit."""
    words = ["--rows", "fit-plain", "--repeats", "1", "--steps", "40", "--json", str(tmp_path / "rows.json")]
    assert BENCHES["batching-live"].main(words) == 0
    rows = {row["id"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    assert set(rows) == {"m9-step", "m9-whole", "m9-same"}
    assert rows["m9-same"]["holds"]
