"""How a collector's process ends: its environments are closed, and nothing that they started is left."""

import asyncio

import psutil
import pytest

from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.envs.make import probe
from drlnb.runtime.ipc.host_store import HostStore
from drlnb.runtime.ipc.start_modes import Zygote, signal_pid
from drlnb.runtime.node.collector_host import CollectorHost
from tests.survivors import survivors

pytestmark = pytest.mark.cluster

#: A simulator with a process of its own, which its `close` forgets; it hangs where it is told.
MODULE = """
import pathlib, subprocess, time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Simulator(CartPoleEnv):
    def __init__(self, folder, hangs):
        super().__init__()
        self.folder, self.hangs = pathlib.Path(folder), hangs
        self.say("pid", subprocess.Popen(["sleep", "1000"]).pid)

    def say(self, word, value=""):
        written = self.folder / (word + ".tmp")
        written.write_text(str(value))
        written.rename(self.folder / word)

    def step(self, action):
        if self.hangs == "step":
            self.say("stepping")
            time.sleep(1e6)
        return super().step(action)

    def close(self):
        if self.hangs == "close":
            time.sleep(1e6)
        self.say("closed")

gymnasium.register("Simulator-v0", Simulator)
"""


class Scene:
    """A node's host, and the collectors that it started, by name."""

    def __init__(self, root, mode):
        self.root, self.mode = root, mode
        self.zygote = Zygote(root / "zygote.log")
        self.host = CollectorHost(self.zygote)
        self.helpers = {}

    async def start(self, name, hangs=""):
        """Start a collector with one environment; return its key."""
        key, folder = ("r", name, 0), self.root / name
        folder.mkdir()
        spec = RlWork(
            name=name, env="simulators:Simulator-v0", env_kwargs={"folder": str(folder), "hangs": hangs},
            total_timesteps=100, n_envs=1, can_snapshot=False, hyperparameters={"n_steps": 8}, **probe("CartPole-v1"),
        )  # fmt: skip
        configuration = {"spec": spec.to_plain(), "collector": 0, "env_indices": [0]}
        await self.host.start(key, attempt=1, configuration=configuration, log=folder / "log", mode=self.mode)
        self.helpers[name] = psutil.Process(int((folder / "pid").read_text()))
        return key, spec

    async def step(self, key, spec):
        """Have a collector act, and wait until its environment is inside a step."""
        published = make_learner(spec).published()
        store = HostStore(len(published))
        store.write(1, published)
        header = {"op": "wake", "version": 1, "round": 1, "n_steps": 8, "n_timesteps": 0, "store": store.path}
        acting = asyncio.ensure_future(self.host.ask(key, header))
        while not (self.root / key[1] / "stepping").exists():
            await asyncio.sleep(0.01)
        store.close()
        return acting


async def _ends(scene):
    if scene.mode == "zygote":
        await scene.zygote.start()
    idle, _ = await scene.start("idle")
    stuck, _ = await scene.start("stuck", hangs="close")
    killed, _ = await scene.start("killed")
    busy, spec = await scene.start("busy", hangs="step")
    acting = await scene.step(busy, spec)
    gone = psutil.Process(scene.host.live[killed].pid)
    signal_pid(gone.pid, "SIGKILL")
    await asyncio.gather(*(scene.host.stop(key) for key in (idle, stuck, busy)))
    with pytest.raises(ConnectionError):
        await acting
    left, _ = await scene.start("left")
    if scene.mode == "zygote":  # as when the worker is killed: the life lines end, and nobody asks anything
        live = scene.host.live.pop(left)
        live.ended = True
        await asyncio.gather(live.channel.aclose(), scene.zygote.end())
    await scene.host.stop_all()


@pytest.mark.parametrize("mode", ["zygote", "spawn"])
def test_environments_are_closed_and_what_they_started_is_gone(tmp_path, monkeypatch, mode):
    """Idle, or interrupted inside a step; one that hangs in `close` has a time, one that is killed has none."""
    (tmp_path / "simulators.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    scene = Scene(tmp_path, mode)
    asyncio.run(_ends(scene))
    assert survivors(scene.helpers.values(), 5.0) == []
    closed = {name: (tmp_path / name / "closed").exists() for name in scene.helpers}
    assert closed == {"idle": True, "stuck": False, "killed": False, "busy": True, "left": True}
