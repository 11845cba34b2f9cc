"""A node agent that is played: a real master of a task of two rounds' past, with everybody around it in one loop."""

import asyncio
import time
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.round import collectors
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.checkpoints.trained import State, Trained
from drlnb.runtime.distribution.outbox import Way
from drlnb.runtime.link import Link
from drlnb.runtime.master.master import Master
from drlnb.runtime.node.masters import Masters

__all__ = ["SPEC", "Agent", "played_link", "rows", "until"]

SPEC = RlWork(
    name="a",
    env="CartPole-v1",
    total_timesteps=10**6,
    n_envs=2,
    n_collectors=2,
    hyperparameters=resolve("CartPole-v1", overrides={"n_envs": 2, "batch_size": 64}).hyperparameters,
    observation_space={"kind": "box", "shape": [4], "dtype": "float32"},
    action_space={"kind": "discrete", "n": 2},
).to_plain()


def _trained(envs):
    nothing = np.zeros(8, np.uint8)
    state = State(published=nothing, facts={}, buffer=nothing)
    return Trained(state=state, n_rounds=2, n_timesteps=64, envs=envs), {}


def played_link(folder=None, node="n0", address="here", **messages):
    """Return a node's link without a wire; `messages` are what sends instead: ``call``, ``ask_broker``."""
    link = Link(SimpleNamespace(name=node, local_directory=str(folder), address=address))
    for name, send in messages.items():
        setattr(link, name, send)
    return link


class Agent:
    """The agent of node n0 and, for its master, all others: collectors live on n1, slots are never free."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "run.json").write_text("{}")
        self.link = played_link(folder, address="there", ask_broker=self._ask_broker, call=self.call)
        #: (run, task) -> who hears what came of its versions.
        self.senders = {}
        self._hosting = Masters(self.link, self.senders)
        self.masters, self.control = self._hosting.live, self._hosting.control
        self.collector_lost, self.node_lost = self._hosting.collector_lost, self._hosting.node_lost
        #: What others were told: (operation, message).
        self.said = []
        #: What a person wished before, as the broker remembers it, and settings of the algorithm that were changed.
        self.wanted, self.live = "", {}
        #: Set while a checkpoint is read: nothing goes on before it is done.
        self.restored = None
        #: Collector -> what answers its wakes, in order; then nothing does.
        self.answers = {}
        #: Collector -> what its first starts are refused with, in order; and what each start brought along.
        self.refusals, self.brought = {}, []
        #: States of the environments in the checkpoint.
        self.envs = None

    def told(self, op):
        """Return the messages of one operation so far."""
        return [message for name, message in self.said if name == op]

    async def _ask_broker(self, op, /, **message):
        return await self.ask_broker(op, **message)

    async def ask_broker(self, op, /, *, timeout_s=0.0, **message):
        self.said.append((op, message))
        await asyncio.sleep(0)
        if op == "drlnb_task_attach":
            return self.attached()
        if op == "drlnb_hello":
            return {"epoch": 1, "t": 0.0}
        if op == "drlnb_place":
            return {"collector_nodes": ["n1", "n1"], "addresses": {"n0": "here", "n1": "there"}}
        if op == "drlnb_acquire":
            await asyncio.Event().wait()
        return {"ok": True}

    def attached(self):
        """Return the broker's answer to a master."""
        plain = {"attempt": 2, "spec": SPEC, "out": str(self.folder), "settings": {}, "planners": {}, "resume": True}
        more = {"number": 0, "wanted": self.wanted, "live": self.live, "leasing": asdict(LeasingSettings()), "epoch": 7}
        return {**plain, **more}

    async def call(self, address, op, /, *, timeout_s=None, payload=b"", **message):
        assert address == "there"
        self.said.append((op, message))
        await asyncio.sleep(0)
        if op == "drlnb_collector_start":
            self.brought.append((message["key"][2], payload))
            if refusals := self.refusals.get(message["key"][2]):
                return {"refused": refusals.pop(0)}
            event = {"start_s": 0.0, "n_starting": 1, "start_mode": "zygote", "episodes_lost": 0}
            return {"event": event}
        if op == "drlnb_chunk":
            chunk, (host, *_) = message["chunk"], Way(message["hosts"], message["edges"], "").names
            sender = self.senders[message["task"]]
            asyncio.get_running_loop().call_soon(sender.arrived, chunk["version"], host, 0.0)
            return {"ok": True}
        if op == "drlnb_collector_ask" and (answers := self.answers.get(message["key"][2])):
            return answers.pop(0)()
        if op == "drlnb_collector_ask":
            await asyncio.Event().wait()
        return {"ok": True}

    async def run(self, monkeypatch, scene=None):
        """Host a master, while a scene is played with it if there is one; return how it ended."""

        def restore(master):
            while self.restored is not None and not self.restored.is_set():
                time.sleep(0.001)  # the loop goes on meanwhile
            return _trained(self.envs)

        monkeypatch.setattr(Master, "_restore", restore)
        monkeypatch.setattr(collectors, "BACKOFF_S", 0.0)
        running = asyncio.ensure_future(self._hosting.run("r", "a"))
        if scene is None:
            return await asyncio.wait_for(running, 10.0)
        playing = asyncio.ensure_future(scene())
        try:
            await asyncio.wait({playing, running}, timeout=10.0, return_when=asyncio.FIRST_COMPLETED)
            playing.cancel()
            await asyncio.gather(playing)
        finally:
            if (master := self.masters.get(("r", "a"))) is not None and master.is_up:
                await master.abort("the scene is over")
            if self.restored is not None:
                self.restored.set()
        return await asyncio.wait_for(running, 10.0)


def rows(agent, kind):
    """Return the rows of one record class that the broker was sent, and those that are on their way."""
    sent = [row for message in agent.told("drlnb_task_rows") for row in message["rows"]]
    master = agent.masters.get(("r", "a"))
    return [row for row in [*sent, *(master.rows.waiting if master else [])] if row["r"] == kind]


async def until(holds):
    """Let the others go on until something holds."""
    while not holds():
        await asyncio.sleep(0.001)
