"""What dies, who notices, what then: each kill is a real SIGKILL while a real task trains."""

import os
import signal

import pytest
from distributed import Client

from drlnb.records import round as words
from drlnb.records.columns import leasing, placement, warmup
from drlnb.runtime.client.link import Link
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until
from tests.survivors import survivors

pytestmark = pytest.mark.cluster


def _kill(bench, title):
    bench.note()
    victim = titled(title, bench.handle.pid)[0]
    victim.kill()
    bench.note()
    return victim


def _trained(out, task):
    """Return the round of a task's last checkpoint, and what it has learnt."""
    newest = (out / "checkpoints" / task / "LATEST").read_text()
    names = ("model.safetensors", "optimizer.safetensors", "normaliser.safetensors")
    return newest, [(out / "checkpoints" / task / newest / name).read_bytes() for name in names]


@pytest.mark.parametrize(
    ("title", "loss"),
    [
        pytest.param("drlnb collector a#1", warmup.CollectorLost, marks=pytest.mark.slow),
        ("drlnb executor 0/cpu0", leasing.SlotFailed),
        ("drlnb worker", placement.NodeLost),
        pytest.param("drlnb zygote", None, marks=pytest.mark.slow),
    ],
)
def test_training_survives_the_death_of_any_process(make_bench, title, loss):
    """Both tasks reach their budget after one SIGKILL; the journal shows what was lost and replays."""
    bench = make_bench()
    run = bench.start([bench.spec("a", steps=8192), bench.spec("b", steps=8192)])
    run.round(5, "a")
    _kill(bench, title)
    assert {row["state"] for row in run.end().values()} == {"done"}
    journal = check_laws(run.out)
    if loss is not None:
        assert journal.of(loss)
    if title == "drlnb worker":
        assert {record.attempt for record in journal.of(words.TaskOpened)} == {1, 2}


def test_a_node_and_a_collector_die_and_the_bits_stay(make_bench):
    """Collectors move or come back with their environments: the parameters are those of a run where nothing died."""
    bench = make_bench(n_workers=2, n_slots=2)
    tasks = [bench.spec(name, steps=8192, n_collectors=4) for name in ("a", "b")]
    run = bench.start(tasks)
    run.round(5, "a")
    _kill(bench, "drlnb collector a#1")
    run.round(12, "a")
    _kill(bench, "drlnb worker")
    assert {row["state"] for row in run.end().values()} == {"done"}
    journal = check_laws(run.out)
    assert journal.of(placement.NodeLost)
    assert journal.of(warmup.CollectorLost)
    assert not journal.of(words.EpisodesLost)
    calm = bench.start(tasks, run="r2")
    calm.end()
    for name in ("a", "b"):
        assert _trained(run.out, name) == _trained(calm.out, name)


def test_everything_ends_with_the_supervisor(make_bench):
    """SIGKILL of the supervisor leaves no process of ours five seconds later."""
    bench = make_bench()
    run = bench.start([bench.spec("a", steps=200_000)])
    run.round(3)
    bench.note()
    os.kill(bench.handle.pid, signal.SIGKILL)
    alive = survivors(bench.seen.values(), 5.0)
    assert not alive
    bench.client.close(timeout=1)


def test_resume_after_the_whole_cluster_was_killed(make_bench):
    """A run whose whole cluster was killed goes on from its last checkpoint on a new cluster."""
    bench = make_bench()
    task = bench.spec("a", steps=16384)
    run = bench.start([task], settings={"checkpoint_min_s": 0.0, "checkpoint_every": 5})
    newest = run.out / "checkpoints" / "a" / "LATEST"
    wait_until(lambda: newest.is_file() and int(newest.read_text()) >= 10, "a checkpoint of round 10")
    bench.handle.kill()
    bench.client.close(timeout=1)
    latest = int(newest.read_text())  # it was killed some time after round 10
    again = make_bench()
    rerun = again.start([task], resume=True, attempts={"a": 1})
    assert rerun.end()["a"]["state"] == "done"
    journal = check_laws(run.out)
    opened = {record.attempt: record.n_rounds for record in journal.of(words.TaskOpened)}
    assert opened == {1: 0, 2: latest}
    fresh = again.start([task], run="r2")
    fresh.end()
    assert _trained(run.out, "a") == _trained(fresh.out, "a")


def test_an_environment_that_raises_fails_its_task_and_no_other(make_bench, tmp_path, monkeypatch):
    """A task whose environment raises in `step` ends as failed with the environment's own message; others go on."""
    (tmp_path / "brokenenv.py").write_text(
        "import gymnasium, numpy as np\n"
        "class Broken(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    n = 0\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return np.zeros(2, np.float32), {}\n"
        "    def step(self, action):\n"
        "        self.n += 1\n"
        "        if self.n > 100:\n"
        "            raise RuntimeError('the rope snapped at step 101')\n"
        "        return np.zeros(2, np.float32), 0.0, False, False, {}\n"
        "gymnasium.register('Broken-v0', entry_point=Broken, max_episode_steps=1000)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bench = make_bench()
    broken = bench.spec("x", env="brokenenv:Broken-v0", n_collectors=1, n_steps=64)
    run = bench.start([bench.spec("a"), broken])
    tasks = run.end()
    assert tasks["a"]["state"] == "done"
    assert tasks["x"]["state"] == "failed"
    assert "the rope snapped at step 101" in tasks["x"]["reason"]
    check_laws(run.out)


def test_a_foreign_cluster_trains_on_after_its_client_is_gone(foreign_cluster, tmp_path):
    """On a cluster that somebody else started, a run goes on and ends when the client that launched it has closed."""
    from drlnb.records.spec import RlWork
    from drlnb.rl.algorithms.resolve import resolve

    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text("{}")
    resolved = resolve("CartPole-v1")
    with Client(scheduler_file=foreign_cluster) as client:
        wait_until(lambda: len(client.scheduler_info()["workers"]) == 2, "workers", 30.0)
        link = Link(client)
        link.open_pool(1)
        task = RlWork(
            name="a",
            env="CartPole-v1",
            total_timesteps=8192,
            n_envs=8,
            n_collectors=2,
            hyperparameters=resolved.hyperparameters,
            **link.probe_env("CartPole-v1"),
        )
        row = {"run": "r", "out": str(out), "tasks": [task.to_plain()], "planners": {}, "settings": {}, "resume": False}
        link.create_run(row)
        link.submit_anchors("r", ["a"])
        with pytest.raises(Exception, match="in use by run r"):
            link.create_run({**row, "run": "other"})
    with Client(scheduler_file=foreign_cluster) as client:
        link = Link(client)
        link.open_pool(1)
        wait_until(lambda: link.runs()[0]["state"] == "done", "end of the run")
    check_laws(out)
