"""The Python door on real clusters."""

import asyncio

import numpy as np
import psutil
import pytest

import drlnb
from drlnb.records.errors import ConfigError, EnvError, RunLocked
from drlnb.records.journal import Journal
from drlnb.records.round import EvaluationFinished
from tests.runtime.laws import check_laws
from tests.runtime.live import wait_until

pytestmark = pytest.mark.cluster


_BESIDE = """
import gymnasium
gymnasium.register("Beside-v0", lambda: gymnasium.make("CartPole-v1"))
"""


@pytest.fixture
def module_beside(tmp_path_factory, monkeypatch):
    """Put a module with an environment into a folder that only this process looks into; return its file."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "beside_the_script.py").write_text(_BESIDE)
    monkeypatch.syspath_prepend(str(folder))
    return folder / "beside_the_script.py"


@pytest.fixture
def fleet(module_beside):
    """Open a fleet with one slot on a cluster of its own."""
    with drlnb.Fleet(slots=1) as fleet:
        yield fleet


def _listening():
    """Return the addresses where processes below this one listen."""
    family = psutil.Process().children(recursive=True)
    found = {row.laddr.ip for process in family for row in process.net_connections("inet") if row.status == "LISTEN"}
    assert len(family) > 5
    return found


def _tasks(steps, n=2):
    return [drlnb.Task("CartPole-v1", total_timesteps=steps, seed=seed, group="CartPole") for seed in range(n)]


def test_a_script_trains_waits_loads_and_predicts(fleet, tmp_path):
    """`train` returns at once; after `wait` statuses, journal, summary and the trained policies are there."""
    run = fleet.train(_tasks(8192), out=tmp_path / "r")
    assert run.status
    wait_until(lambda: run.tasks["CartPole-v1-s0"].n_timesteps, "every process is up")
    assert {host.partition(".")[0] for host in _listening()} == {"127"}, "nothing listens beyond this machine"
    run.wait(timeout_s=90)
    assert {task.state for task in run.tasks.values()} == {"done"}
    assert list(run.tasks) == ["CartPole-v1-s0", "CartPole-v1-s1"]
    model = run.load("CartPole-v1-s0")
    action, state = model.predict(np.zeros(4, dtype=np.float32), deterministic=True)
    assert int(action) in (0, 1)
    assert state is None
    rewards = [record.mean_reward for record in run.journal().of(EvaluationFinished)]
    shown = [task["eval_mean_reward"] for task in run.watch.summary()["tasks"]]
    assert sorted(rewards) == sorted(shown)
    headers = {name: stream.header.config for name, stream in run.journal().streams.items()}
    assert [headers[f"task-{name}-a1"]["number"] for name in run.tasks] == [0, 1], "letter and colour in every picture"
    assert (tmp_path / "r" / "metrics" / "CartPole-v1-s0.csv").read_text().count("\n") == 1 + 32 + 1
    check_laws(tmp_path / "r")


def test_await_pause_resume_stop_and_go_on(fleet, tmp_path):
    """A training is awaitable; paused it makes no step; stopped it can be resumed to its end on the same fleet."""
    run = fleet.train(_tasks(60_000, n=1), out=tmp_path / "r")
    wait_until(lambda: run.tasks["CartPole-v1"].n_timesteps > 1000, "steps")
    run.pause()
    wait_until(lambda: run.tasks["CartPole-v1"].state == "paused", "pause")
    run.resume()
    wait_until(lambda: run.tasks["CartPole-v1"].state == "running", "going on")
    with pytest.raises(RunLocked):
        fleet.go_on(tmp_path / "r")
    run.stop()
    run.wait(timeout_s=60)
    assert run.tasks["CartPole-v1"].state == "stopped"
    again = fleet.train(_tasks(30_000, n=1), out=tmp_path / "r", on_existing="resume")

    async def wait():
        await again

    asyncio.run(wait())
    assert again.tasks["CartPole-v1"].state == "done"
    check_laws(tmp_path / "r")
    assert len([name for name in Journal.read(tmp_path / "r").streams if name.startswith("broker")]) == 2


def test_what_is_wrong_is_told_before_anything_is_made(fleet, tmp_path):
    """A wrong environment or setting raises, names what would be right, and leaves no run directory."""
    with pytest.raises(EnvError, match="CartPole-v1"):
        fleet.train(drlnb.Task("CartPole-v9"), out=tmp_path / "r")
    with pytest.raises(ConfigError, match="n_steps"):
        fleet.train(drlnb.Task("CartPole-v1", n_stps=3), out=tmp_path / "r")
    with pytest.raises((ConfigError, ValueError), match="round"):
        fleet.train("CartPole-v1", out=tmp_path / "r", planners={"hold": "yields"})
    assert fleet.pool.link.probe_env("beside_the_script:Beside-v0")["action_space"]["n"] == 2, (
        "modules beside the script are found"
    )
    with pytest.raises(EnvError, match=r"nowhere.*its folder must be on sys\.path before drlnb\.Fleet\(\) starts"):
        fleet.pool.link.probe_env("nowhere:Mine-v0")
    assert not (tmp_path / "r").exists()


def test_closing_a_fleet_on_a_foreign_cluster_stops_nothing(foreign_cluster, module_beside, tmp_path):
    """On somebody else's cluster a run outlives the fleet that launched it; another fleet finds and waits for it.

    A module beside the script is not there until it is sent.
    """
    fleet = drlnb.Fleet(foreign_cluster, slots=1)
    with pytest.raises(EnvError, match=r"beside_the_script.*client\.upload_file"):
        fleet.pool.link.probe_env("beside_the_script:Beside-v0")
    fleet.pool.link.client.upload_file(str(module_beside))
    assert fleet.pool.link.probe_env("beside_the_script:Beside-v0")["action_space"]["n"] == 2
    run = fleet.train(_tasks(30_000, n=1), out=tmp_path / "r")
    wait_until(lambda: run.tasks["CartPole-v1"].n_timesteps > 1000, "steps")
    fleet.close()
    with drlnb.Fleet(foreign_cluster, slots=1) as other:
        (row,) = other.runs()
        assert row["state"] == "running"
        attached = other.attach(row["run"])
        attached.wait(timeout_s=90)
        assert attached.tasks["CartPole-v1"].state == "done"
    check_laws(tmp_path / "r")


def test_resume_takes_a_run_to_its_end_on_a_new_cluster(tmp_path):
    """`drlnb.resume` goes on with a stopped run on a cluster of its own."""
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train(_tasks(12_288, n=1), out=tmp_path / "r")
        wait_until(lambda: run.tasks["CartPole-v1"].n_timesteps > 1000, "steps")
        run.set("leasing.hold", "last")
        run.stop()
        run.wait(timeout_s=60)
    again = drlnb.resume(tmp_path / "r")
    again.wait(timeout_s=90)
    again.fleet.close()
    assert again.tasks["CartPole-v1"].state == "done"
    journal = check_laws(tmp_path / "r")
    assert len(journal.streams) == 4
    (second,) = [one for name, one in journal.streams.items() if name == "task-CartPole-v1-a2"]
    assert second.header.config["planners"]["hold"] == "last", "what was changed while it ran is there again"
    assert second.header.config["number"] == 0, "its letter and colour are"
