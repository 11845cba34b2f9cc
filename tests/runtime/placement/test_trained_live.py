"""The placement patent's agent learns from gangs of real processes while they run."""

import functools
import logging
import time

import numpy as np
import pytest

from drlnb.learned.placement.network import Policy, load
from drlnb.placement import FaultModel, Job, place, train
from drlnb.placement.live import LiveBatches
from drlnb.records.errors import ConfigError
from tests.runtime.placement.conftest import N_WORKERS


def rests(m, seconds):
    """Take so long, or until it is to stop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not m.should_stop():
        time.sleep(0.01)


def raises(m):
    raise ValueError("no")


def last_free(part, groups):
    """Answer with the last slot that is not taken."""
    return [int(np.flatnonzero(rows[0, 2:] == 0.0)[-1]) for rows in groups], [-1.5] * len(groups)


@pytest.mark.cluster
def test_a_batch_of_real_gangs_is_samples_and_two_times(placing, caplog):
    """Three slots were asked for, of what was free then; nothing failed, so that the reference takes about as long."""
    placing()  # its workers are up
    caplog.set_level(logging.WARNING, "drlnb")
    jobs = [Job(functools.partial(rests, seconds=0.5), n_slots=2, work_s=5.0), Job(raises)]
    how = {"model": None, "hold_s": None, "longest_s": 60.0, "seed": 0}
    live = LiveBatches([[jobs[0], Job(functools.partial(rests, seconds=0.25))], jobs], placing.client, **how)
    assert len(live.slots) == N_WORKERS
    (played,) = live(last_free)
    states = [sample.question.rows[0] for sample in played.samples]
    assert sorted(state[0] for state in states) == [1.0, 1.0, 2.0]
    assert [sample.log_p for sample in played.samples] == [-1.5] * 3
    assert [sample.chosen for sample in played.samples] == [3, 2, 1]  # by the order of their names
    assert 0.5 <= played.makespan_s < 5.0
    assert played.reference_s == pytest.approx(played.makespan_s, rel=0.05)
    assert live(last_free) == []
    (said,) = [text for text in caplog.messages if text.startswith("batch")]
    assert said == "batch 1 teaches nothing: job job-1 has failed: no"


@pytest.mark.cluster
def test_what_does_not_fit_on_the_cluster_is_refused_before_the_first_batch(placing, tmp_path):
    """The largest job of all batches is looked at; nothing was placed or written."""
    placing()
    jobs = [[Job(rests)], [Job(rests, n_slots=N_WORKERS + 1, name="wide")]]
    with pytest.raises(ConfigError, match="job 'wide' needs 5 slots, the cluster has 4"):
        train(out=tmp_path / "p.npz", net="patent", source="live", jobs=jobs, client=placing.client)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.cluster
def test_gangs_are_killed_and_the_agent_learns_of_it(mortal, tmp_path):
    """Its file is of the cluster's slots, rounds that met a failure have less reward; what was run is a history."""
    mortal()
    model = FaultModel(mtbf_days=0.002, spread=0.0, node_spread=0.0, lemons=0.25, lemon_factor=600.0, mttr_s=0.3)
    jobs = [Job(functools.partial(rests, seconds=1.0), work_s=1.0, name=f"j{i}") for i in range(3)]
    how = {"net": "patent", "client": mortal.client, "hold_s": 0.2}
    rewards = train(out=tmp_path / "p.npz", source="live", jobs=[jobs] * 6, model=model, n_rounds=5, **how)
    assert len(rewards) == 5
    assert min(rewards) < -0.1
    network = load(tmp_path / "p.npz", Policy)
    assert len(network.slots) == network.n_slots == N_WORKERS
    mortal.client.wait_for_workers(N_WORKERS, 30)
    with place(jobs, mortal.client, planner=f"patent:weights={tmp_path / 'p.npz'}") as placing:
        assert placing.wait(30.0)
    assert not placing.failures
    how = {"net": "patent", "source": "history", "history": placing, "weights": tmp_path / "p.npz"}
    assert len(train(out=tmp_path / "q.npz", n_rounds=1, **how)) == 1
