"""Planners with weights in the rounds of a task: for learners and collectors, and in a replay."""

import pytest

from drlnb.learned.batching import Auto, Ddqn, Patent
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns.batching import BatchPlanned, SplitPlanned
from drlnb.sim.costs import Costs
from drlnb.sim.training.fleet import run_tasks

COSTS = Costs(collect_s=0.5, compute_s=4.0, finish_s=0.1, publish_s=0.001, collect_cv=0.3, service_cv=0.3)


def _run(name):
    config = {"n_learners": 2, "planners": {"hold": "round", "batching": name, "collect": name}}
    _, (task,) = run_tasks(
        range(1), n_slots=2, n_rounds=8, n_collectors=6, hold="round", seed=1, costs=COSTS, validate=True, config=config
    )
    assert task.end.state == "done"
    return task.streams[0]


@pytest.mark.parametrize("name", ["ddqn", "auto", "patent"])
def test_rounds_are_planned_by_name(name):
    """Slots get whole shares, collectors steps; every round is complete."""
    stream = _run(name)
    splits, rounds = stream.of(SplitPlanned), stream.of(BatchPlanned)
    assert {record.planner for record in (*splits, *rounds)} == {name}
    assert {sum(split.sizes) for split in splits} == {6}
    assert len(rounds) >= 8
    assert len(stream.of(words.FinishRound)) == 8


def test_a_replay_reads_plans_that_depend_on_the_processor(monkeypatch):
    """No member's share hangs on the network again: with another one the plans are those of the journal.

    What planners remember is made again, as checkpoints hold it.
    """
    for kind in (Ddqn, Auto, Patent):
        stream = _run(kind.name)
        assert stream.of(words.WriteCheckpoint)[-1].memories[f"batching:{kind.name}"]
        with monkeypatch.context() as patched:
            patched.setattr(kind, "plan", lambda self, view: pytest.fail("asked again"))
            assert replay(stream).difference is None
