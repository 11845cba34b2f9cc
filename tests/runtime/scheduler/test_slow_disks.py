"""A disk that hangs holds its own run, and nobody else: played brokers, real files, calls that do not come back."""

import asyncio
import json
import threading

import pytest

from drlnb.records.errors import ConfigError
from drlnb.runtime.scheduler import run as run_module
from drlnb.runtime.scheduler.run import LiveRun
from tests.runtime.scheduler.test_generations import play


@pytest.fixture
def hang(monkeypatch):
    """Return what makes a function or method hang for the directory ``slow`` until the test is over."""
    released = threading.Event()

    def make(owner, name, folder_of):
        real = getattr(owner, name)

        def hangs(this, *rest):
            if folder_of(this).name == "slow":
                released.wait(20.0)
            return real(this, *rest)

        monkeypatch.setattr(owner, name, hangs)

    yield make
    released.set()


def spec(folder, name):
    return {"out": str(folder / name), "tasks": [{"name": "a"}]}


def test_a_directory_that_does_not_answer_is_refused_and_others_are_served(tmp_path, hang, monkeypatch):
    """However many wait for it: they have threads of their own."""
    hang(run_module, "journalled", lambda out: out)

    async def scene(cluster):
        (tmp_path / "quick").mkdir()
        hanging = [asyncio.create_task(cluster.runs.run_create(f"s{n}", spec(tmp_path, "slow"))) for n in range(40)]
        await asyncio.sleep(0)
        await asyncio.wait_for(cluster.runs.run_create("q", spec(tmp_path, "quick")), 2.0)
        assert not any(one.done() for one in hanging)
        for one in hanging:
            one.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        monkeypatch.setattr(run_module, "_DISK_S", 0.01)
        with pytest.raises(ConfigError, match="slow cannot be read here: its disk does not answer"):
            await cluster.runs.run_create("s", spec(tmp_path, "slow"))
        return cluster.runs.live["q"].state

    assert play(scene, tmp_path, "n0") == "running"


def test_a_status_that_is_not_written_holds_nobody(tmp_path, hang, monkeypatch):
    """The task ends all the same, a little later; another run's status is there meanwhile."""
    hang(LiveRun, "_replace_status", lambda live: live.out)
    monkeypatch.setattr(run_module, "_SAID_S", 0.05)

    async def scene(cluster):
        for name in ("slow", "quick"):
            (tmp_path / name).mkdir()
            await cluster.runs.run_create(name, spec(tmp_path, name))
            await cluster.runs.task_attach(name, "a", "n0", name)
        for name in ("slow", "quick"):
            await asyncio.wait_for(cluster.runs.task_end(name, "a", 1, "done", ""), 2.0)
        return [cluster.runs.live[name].state for name in ("slow", "quick")]

    assert play(scene, tmp_path, "n0") == ["done", "done"]
    assert json.loads((tmp_path / "quick/status.json").read_text())["state"] == "done"
    assert not (tmp_path / "slow/status.json").exists()
