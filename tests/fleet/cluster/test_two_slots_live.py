"""A task whose lease has two slots, on real processes: both compute, and it learns bitwise as on one."""

import numpy as np
import pytest

import drlnb
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.errors import ConfigError

pytestmark = pytest.mark.cluster

#: Gradients at arrival; 8 rounds.
TASK = {"algo": "gpf", "n_envs": 4, "n_collectors": 4, "n_steps": 32, "n_epochs": 1, "total_timesteps": 8 * 4 * 32}


def model_of_two(fleet, out):
    """Train a model of two learners on the fleet, and check that it has the bits of one that learns here."""
    settings = {"n_steps": 16, "n_epochs": 1, "reward_scale": 1.0, "n_envs": 2, "n_learners": 2, "seed": 1}
    there, here = (drlnb.GPF("MlpPolicy", "CartPole-v1", **settings, fleet=fleet) for _ in range(2))
    run = there.submit(4 * 2 * 16, out=out)
    run.wait(timeout_s=120)
    here.learn(4 * 2 * 16, local=True)
    assert there.num_timesteps == here.num_timesteps == 4 * 2 * 16
    assert np.array_equal(there.parameters, here.parameters)
    lent = [lease for lease in run.journal().of(leasing.LeaseReleased) if len(lease.slots) == 2]
    assert len(lent) >= 4
    assert all(seconds > 0 for lease in lent for seconds in lease.computed_s)


def test_two_slots_learn_bitwise_as_one(tmp_path):
    """Collectors' fragments go to two slots in turn; every lease of a round had work for both of them.

    So does a model of two learners.  A task that wants three slots of the two is refused, in one line; a user's loop
    works on both, too.
    """
    parameters = {}
    with drlnb.Fleet(slots=2, n_workers=1) as fleet:
        for n_learners, name in ((1, "one"), (2, "two")):
            task = drlnb.Task("CartPole-v1", name="a", n_learners=n_learners, **TASK)
            run = fleet.train(task, out=tmp_path / name, planners={"batching": "equal"} if n_learners > 1 else None)
            run.wait(timeout_s=120)
            assert run.tasks["a"].state == "done"
            latest = (run.out / "checkpoints" / "a" / "LATEST").read_text()
            parameters[name] = (run.out / "checkpoints" / "a" / latest / "model.safetensors").read_bytes()
        with pytest.raises(ConfigError) as error:
            fleet.train(drlnb.Task("CartPole-v1", name="greedy", n_learners=3, **TASK), out=tmp_path / "greedy")
        assert str(error.value) == (
            "task greedy: n_learners = 3, but the pool has 2: ask for fewer learners, or for a fleet with more slots"
        )
        assert not (tmp_path / "greedy").exists()
        model_of_two(fleet, tmp_path / "model")
        with fleet.lease(2, name="mine") as lease:
            assert lease.run(lambda: sum(range(100_000)) > 0) == [True, True]
        (loop,) = [one for one in fleet.journal().of(leasing.LeaseReleased) if one.task.endswith("/mine")]
        assert len(loop.slots) == 2
        assert all(seconds > 0 for seconds in loop.computed_s)
        journal = run.journal()
    assert parameters["two"] == parameters["one"]
    computed = {(one.round, one.slot) for one in journal.of(words.GradientComputed)}
    assert len(computed) == 2 * 8
    rounds = [lease for lease in journal.of(leasing.LeaseReleased) if len(lease.slots) == 2]
    assert len(rounds) >= 8
    assert all(seconds > 0 for lease in rounds for seconds in lease.computed_s)
    assert [replay(stream).difference for stream in journal.streams.values()] == [None] * len(journal.streams)
