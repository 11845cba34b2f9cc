"""The task of ``benchmarks swapping --device cuda --phase 4``: rows of played trainings, and a real one on the CPU."""

import contextlib
from types import SimpleNamespace

import pytest

from benchmarks.efforts import Swapping
from benchmarks.frame.stage import open_stage
from benchmarks.swapping import training
from drlnb.records.columns.swapping import SwapStepMeasured


def steps(*each):
    """Return reports of steps: (bytes, seconds) of each round."""
    return [SwapStepMeasured(t=0.0, plan_key="p", step_s=step_s, peak_bytes=peak) for peak, step_s in each]


def test_a_task_has_six_tenths_of_what_it_takes_with_room_enough(monkeypatch):
    """1000 bytes at most with room: 600 are the budget; nothing counts of the first rounds, which try plans out."""
    asked = []
    rounds = {
        "roomy": [(9000, 9.0), (900, 2.0), (1000, 2.0), (900, 2.0), (900, 2.0)],
        "tight": [(9000, 9.0), (590, 3.0), (600, 2.5), (590, 2.5), (590, 2.0)],
    }

    def train(tasks, name):
        (task,) = tasks
        asked.append((name, task.spec.memory_budget_bytes, task.spec.total_timesteps))
        return SimpleNamespace(of=lambda kind: steps(*rounds[name.partition("-")[0]]))

    @contextlib.contextmanager
    def stage(cuda):
        assert cuda
        yield SimpleNamespace(train=train)

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(training, "open_stage", stage)
    monkeypatch.setattr(training, "_BATCHES", (64,))
    peak, step = training.task(Swapping(device="cuda", phase=4))
    assert asked == [("roomy-64", 64 << 30, 2048), ("tight-64", 600, 2048)]
    assert (peak.samples, peak.baseline, peak.holds) == ([590.0, 600.0, 590.0, 590.0], 600.0, True)
    assert step.ratio == pytest.approx(2.5 / 2.0)


@pytest.mark.slow
def test_a_task_on_a_virtual_slot_keeps_its_budget(monkeypatch):
    """IMPALA's network on minibatches of 24: the peaks of its last rounds are within six tenths of those with room."""
    monkeypatch.setattr(training, "_ROUNDS", 10)
    with open_stage() as stage:
        peak, step = training.trained(stage, 24, 1)
    assert peak.holds
    assert peak.ratio > 0.5, "the budget binds"
    assert min(step.samples) > 0.0
