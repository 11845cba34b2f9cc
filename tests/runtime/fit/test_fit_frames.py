"""Supervised work through an executor's frames and a checkpoint's files: another process goes on with the same bits."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from safetensors.torch import load

from drlnb.records.columns.swapping import SwapOrder
from drlnb.records.errors import CheckpointError
from drlnb.records.ids import Fence
from drlnb.records.spec import FitWork, RlWork
from drlnb.rl.checkpoints.trained import State, Trained
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.same_bits import one_thread
from drlnb.runtime.children.device import Device
from drlnb.runtime.children.executor import ExecutorChild
from drlnb.runtime.ipc.frames import FrameSocket, socket_pair
from drlnb.runtime.master.checkpoint_effects import read_newest, write_trained
from tests.runtime.fit.programs import plain_loop, regression, wide

SPEC = FitWork(name="reg", program="tests.runtime.fit.programs:regression", total_timesteps=30, round_steps=10)


class Slot:
    """An executor, and what its task's master would send it."""

    def __init__(self, channel):
        self.child, self.token, self.spec = ExecutorChild(channel, Device("cpu")), 0, SPEC

    def ask(self, op, payload=b"", **header):
        fence = Fence(1, self.token)
        answer, parts = self.child.answer({"op": op, "fence": fence, "task": "r/reg", **header}, memoryview(payload))
        return answer, b"".join(bytes(part) for part in parts)

    def begin(self):
        self.token += 1
        return self.ask("initialise", spec=self.spec.to_plain())

    def round(self, number, state=None, **how):
        """Make a round under a lease of its own; `state`: the version's training state, where that is elsewhere."""
        self.token += 1
        staged = {
            "round": number,
            "version": number,
            "after_timesteps": 10 * number,
            "settings": {},
            "collector": -1,
            "fragment": Fragment({}, {}).pack()[0],
        }
        answer, _ = self.ask("stage", n_state=0, **staged)
        if answer["op"] == "need-state":
            facts, buffer = state
            more = {"n_state": len(buffer), "state": facts, "spec": self.spec.to_plain()}
            answer, _ = self.ask("stage", buffer, **staged, **more)
        assert answer["op"] == "staged"
        return self.ask("finish", round=number, collectors=(-1,), **how)


@pytest.fixture
def slots():
    """Return a function that starts another executor, in this process."""
    ends = []

    def start():
        ends.append(socket_pair())
        return Slot(FrameSocket(ends[-1][1]))

    with one_thread():
        yield start
    for pair in ends:
        for end in pair:
            end.close()


def trained(made, n_rounds):
    """Return what a master keeps of an executor's answer."""
    answer, payload = made
    n = answer["event"]["n_bytes"]
    published, buffer = (np.frombuffer(part, np.uint8) for part in (payload[:n], payload[n:]))
    state = State(published=published, facts=answer["state"], buffer=buffer)
    return Trained(state=state, n_rounds=n_rounds, n_timesteps=10 * n_rounds, elapsed_s=1.0, episodes=())


def test_what_a_checkpoint_holds_goes_on_elsewhere_with_the_same_bits(slots, tmp_path):
    """Two rounds on one executor, its checkpoint, the third round on another one: as a plain loop of 30 steps."""
    first = slots()
    first.begin()
    made = [first.round(1), first.round(2)][-1]
    assert made[0]["event"]["metrics"]["train/n_updates"] == 20
    write_trained(tmp_path, SPEC, trained(made, 2), {"settings": {}})
    restored, facts = read_newest(tmp_path, SPEC)
    assert (restored.n_rounds, restored.n_timesteps, facts["spec"]["work"]) == (2, 20, "fit")
    answer, payload = slots().round(3, (restored.state.facts, restored.state.buffer.tobytes()))
    ours, wanted = load(payload[: answer["event"]["n_bytes"]]), plain_loop(regression, 30)
    assert ours.keys() == wanted.keys()
    assert all(torch.equal(ours[name], value) for name, value in wanted.items())


def test_steps_under_a_byte_budget_have_the_same_bits(slots):
    """Everything that a step saves is swapped: six tensors, random numbers and buffers are in the midst of it."""
    slot = slots()
    slot.spec = replace(SPEC, program="tests.runtime.fit.programs:wide")
    slot.begin()
    answer, payload = slot.round(1, swap=asdict(SwapOrder("all", 2 << 20, "median")))
    (step,) = [row for row in answer["swaps"] if row["r"] == "SwapStepMeasured"]
    assert (step["n_saved"], step["swapped_bytes"]) == (6, 6 * 1024 * 128 * 4)
    assert step["peak_bytes"] <= 2 << 20
    ours, wanted = load(payload[: answer["event"]["n_bytes"]]), plain_loop(wide, 10)
    assert all(torch.equal(ours[name], value) for name, value in wanted.items())
    slot.child.models.drop("r/reg")


def test_a_checkpoint_of_other_work_is_refused(slots, tmp_path):
    """A task of the same name that is no supervised work does not go on from it."""
    write_trained(tmp_path, SPEC, trained(slots().begin(), 0), {})
    other = RlWork(name="reg", env="CartPole-v1", total_timesteps=30, n_envs=1)
    with pytest.raises(CheckpointError, match="its work is fit, this task's is rl"):
        read_newest(tmp_path, other)
