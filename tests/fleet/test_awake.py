"""A kernel whose run trains counts as busy for its server, whoever looks at it."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from drlnb.fleet import faces
from drlnb.fleet.follower import Follower
from drlnb.records.spec import RlWork
from drlnb.runtime.files.run_directory import RunDir
from tests.fleet.conftest import FakeLink, ended, header, opened


@pytest.fixture
def published(monkeypatch):
    """Return what a kernel publishes."""
    found = []
    session = SimpleNamespace(send=lambda *words, **named: found.append((*words[1:], named)))
    monkeypatch.setattr(faces, "kernel", lambda: SimpleNamespace(session=session, iopub_socket=None))
    return found


def test_a_run_gives_signs_of_life_until_it_ends(published, monkeypatch, tmp_path):
    """They belong to no cell and to no widget; after the end there are none."""
    monkeypatch.setattr(faces, "_AWAKE_S", 0.0)
    link = FakeLink()
    link.known = [{"run": "r1", "state": "running", "tasks": {}}]
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": []})
    watch = Follower(link, "r1", (RlWork(name="a", env="E-v0", total_timesteps=10, n_envs=1),), folder)
    link.say(header("a"), opened("a"))
    assert _until(lambda: len(published) >= 1)
    assert published[0] == ("comm_msg", {"comm_id": "drlnb", "data": {}}, {"parent": {}})
    link.say(ended("a"))
    assert watch.settle(5)
    watch.close()
    assert not watch._thread.is_alive(), "nobody is left to give one"


def test_without_a_kernel_nothing_is_published():
    """A script has no server."""
    assert faces.kernel() is None
    assert faces.awake(float("-inf")) == float("-inf")


def _until(look, patience_s=5.0):
    end = time.monotonic() + patience_s
    while not (seen := look()) and time.monotonic() < end:
        time.sleep(0.005)
    return seen


#: What a kernel runs: a sign of life twice a second for five seconds, by a thread.
_BEATS = """
import threading, time
from drlnb.fleet import faces
def beat():
    for _ in range(10):
        faces.awake(float("-inf"))
        time.sleep(0.5)
threading.Thread(target=beat, daemon=True).start()
"""


@pytest.mark.slow
def test_a_server_does_not_end_a_kernel_that_gives_signs_of_life():
    """A culler that waits two seconds leaves it alone for five; without signs it is gone soon after."""

    async def scene():
        from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

        manager = AsyncMappingKernelManager(
            cull_idle_timeout=2, cull_interval=1, cull_connected=True, root_dir="/tmp", connection_dir="/tmp"
        )
        kernel_id = await manager.start_kernel()
        client = manager.get_kernel(kernel_id).client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=60)
            client.execute(_BEATS)
            began = time.monotonic()
            while kernel_id in manager and time.monotonic() - began < 30:
                await asyncio.sleep(0.1)
            return time.monotonic() - began
        finally:
            client.stop_channels()
            client.context.destroy()
            await manager.shutdown_all()
            manager.context.destroy()

    assert 5.0 < asyncio.run(scene()) < 25.0
