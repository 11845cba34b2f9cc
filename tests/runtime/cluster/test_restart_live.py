"""A task that failed is started again on a real cluster."""

import pytest

import drlnb
from drlnb.records.columns.placement import TaskRestarted
from drlnb.records.journal import Journal
from drlnb.records.round import ExperienceArrived, MetricsRecorded, TaskOpened
from tests.runtime.laws import check_laws
from tests.runtime.live import wait_until

pytestmark = pytest.mark.cluster

#: An environment that raises in its seventh step while a file is there.
FRAGILE = """
import os
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Fragile(CartPoleEnv):
    n = 0

    def step(self, action):
        self.n += 1
        if self.n >= 7 and os.path.exists({broken!r}):
            raise ValueError("the pole is made of glass")
        return super().step(action)


gymnasium.register("Fragile-v0", Fragile, max_episode_steps=500)
"""


def _journal(out, kind, stream):
    return Journal.read(out).streams[stream].of(kind)


@pytest.fixture
def fragile(tmp_path, monkeypatch):
    """Return the file that breaks the environment."""
    broken = tmp_path / "broken"
    (tmp_path / "fragile.py").write_text(FRAGILE.format(broken=str(broken)), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return broken


def _task(steps):
    sizes = {"n_steps": 64, "n_envs": 1, "n_collectors": 1, "batch_size": 64}
    return drlnb.Task("fragile:Fragile-v0", name="glass", total_timesteps=steps, **sizes)


def test_a_failed_task_is_started_again_from_its_checkpoint_while_another_trains(fragile, tmp_path):
    """The error is the environment's; attempt 2 goes on from the checkpoint's round; every stream replays."""
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train([_task(1_600), drlnb.Task("CartPole-v1", total_timesteps=10**7)], out=tmp_path / "r")
        wait_until(lambda: run.tasks["glass"].n_timesteps, "a round")
        run.pause("glass")  # with a checkpoint
        wait_until(lambda: run.tasks["glass"].state == "paused", "the pause")
        run.set("leasing.hold", "last", task="glass")
        fragile.touch()
        run.resume("glass")
        wait_until(lambda: run.tasks["glass"].state == "failed", "the failure")
        assert "the pole is made of glass" in run.tasks["glass"].failure
        assert "fragile.py" in run.tasks["glass"].failure
        fragile.unlink()
        before = run.tasks["CartPole-v1"].n_timesteps
        run.restart("glass")
        wait_until(lambda: run.tasks["glass"].state == "done", "the end of the second attempt")
        assert run.tasks["CartPole-v1"].state == "running"
        wait_until(lambda: run.tasks["CartPole-v1"].n_timesteps > before, "the other task's steps")
        run.stop()
        run.wait(60)
    check_laws(tmp_path / "r")
    (again,) = _journal(tmp_path / "r", TaskOpened, "task-glass-a2")
    assert again.n_rounds >= 1
    journal = Journal.read(tmp_path / "r")
    holds = {
        name: stream.header.config["planners"]["hold"] for name, stream in journal.streams.items() if "task" in name
    }
    assert holds["task-glass-a1"] != "last"
    assert holds["task-glass-a2"] == "last"  # what was set while it ran is not forgotten
    first = [row.round for row in _journal(tmp_path / "r", MetricsRecorded, "task-glass-a2")]
    assert first == list(range(again.n_rounds + 1, 26))
    (asked,) = Journal.read(tmp_path / "r").of(TaskRestarted)
    assert (asked.task, asked.attempt) == (f"{run.id}/glass", 2)


def test_a_run_that_has_ended_goes_on_for_the_failed_task_alone(fragile, tmp_path):
    """The done task makes no further step; a second failure and a third attempt are possible, too."""
    fragile.touch()
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train([_task(128), drlnb.Task("CartPole-v1", total_timesteps=1024)], out=tmp_path / "r")
        assert run.watch.settle(90)
        assert {name: task.state for name, task in run.tasks.items()} == {"glass": "failed", "CartPole-v1": "done"}
        run.restart()
        assert run.watch.settle(90)
        assert run.tasks["glass"].state == "failed"
        fragile.unlink()
        run.restart("glass")
        assert {task.state for task in run.wait(90).values()} == {"done"}
        assert [row["state"] for row in fleet.runs()] == ["done"]
    journal = check_laws(tmp_path / "r")
    names = sorted(name for name in journal.streams if name.startswith("task-"))
    assert names == ["task-CartPole-v1-a1", "task-glass-a1", "task-glass-a2", "task-glass-a3"]
    assert len([name for name in journal.streams if name.startswith("broker-")]) == 3
    assert len(journal.streams["task-glass-a3"].of(ExperienceArrived)) == 2
