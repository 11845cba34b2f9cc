"""What a change would come to, told of real runs."""

import pytest

import drlnb
from drlnb.records.errors import ConfigError

pytestmark = pytest.mark.cluster

N_ROUNDS = 16


def test_a_real_runs_starts_are_played_again(tmp_path):
    """Forked at the parameters' arrival, each round waits for its start; kept, none would, and each collector idles.

    Of spawned starts, of which the run holds none, nothing is made up.
    """
    task = drlnb.Task("CartPole-v1", algo="gpf", name="a", n_envs=2, n_collectors=2, n_steps=32,
                      total_timesteps=N_ROUNDS * 64, n_epochs=1, batch_size=64)  # fmt: skip
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train(
            [task], out=tmp_path / "r", planners={"warmup": "cold"},
            settings={"warmup.collector_mode": "respawn", "warmup.start_mode": "zygote"},
        )  # fmt: skip
        run.wait(timeout_s=120)
        assert {one.state for one in run.tasks.values()} == {"done"}
        found = run.preview("warmup.planner", "keep")
        with pytest.raises(ConfigError, match=r"a has no start by spawn in the journal; there are some by zygote"):
            run.preview("warmup.start_mode", "spawn")
        saa = run.preview("warmup.planner", "saa", "a")
    (row,) = found.rows()
    assert row["late_s then"] == 0.0 == row["early_s now"]
    assert row["late_s recorded"] > 0.0
    # What the command took to the node and the answer back is in the record, not in a start's duration.
    assert 0.5 * row["late_s recorded"] < row["late_s now"] < 1.5 * row["late_s recorded"]
    assert row["early_s then"] > 0.0
    assert saa.then.starts["a"][0] > 0.0


def test_what_was_set_while_it_trained_is_where_a_preview_starts(tmp_path):
    """Queue, hold rule, switch limit and priority of a real run, each changed once, are in force at its end."""
    tasks = [
        drlnb.Task(
            "CartPole-v1",
            algo="gpf",
            name=name,
            n_envs=2,
            n_collectors=2,
            n_steps=32,
            total_timesteps=40 * 64,
            n_epochs=1,
            batch_size=64,
        )
        for name in ("a", "b")
    ]
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train(tasks, out=tmp_path / "r", planners={"hold": "round"})
        fleet.set("leasing.queue", "drr")
        run.set("leasing.hold", "last", task="a")
        run.set("task.priority", 3, task="b")
        run.wait(timeout_s=120)
        assert {one.state for one in run.tasks.values()} == {"done"}
        same = [
            run.preview("leasing.queue", "drr"),
            run.preview("leasing.hold", "last", "a"),
            run.preview("leasing.hold", "round", "b"),
            run.preview("task.priority", 3, "b"),
        ]
        with pytest.raises(ConfigError, match="the queue 'drr' does not age"):
            run.preview("leasing.age_quantum_s", 5.0)
        with pytest.raises(ConfigError, match="ttl_s cannot be tried out: it is about holders that fall silent"):
            run.preview("leasing.ttl_s", 20.0)
        other = run.preview("leasing.hold", "round", "a")
    assert all(one.now == one.then == other.now for one in same)
    assert other.then != other.now
