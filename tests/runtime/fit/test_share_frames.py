"""Shared steps through executors' frames: what is brought, what is held, what is asked for, what is refused."""

import time
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load
from torch import nn
from torch.utils.data import TensorDataset

from drlnb.records.columns.batching import ApplyGradients, ComputeShare
from drlnb.records.columns.swapping import SwapOrder
from drlnb.records.ids import Fence
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.same_bits import one_thread
from drlnb.runtime.children import padding
from drlnb.runtime.children.device import Device
from drlnb.runtime.children.executor import ExecutorChild
from drlnb.runtime.children.shares import frames
from drlnb.runtime.ipc.frames import FrameSocket, socket_pair
from drlnb.runtime.ipc.training_state import without_optimizer
from drlnb.runtime.protocol import fields_of
from tests.runtime.fit.shared import plain_steps, written

N, SIZES = 96, (80, 16)


def normed_loss(outputs, targets):
    return nn.functional.mse_loss(outputs, targets)


class Slot:
    """An executor, and what its agent would send it."""

    def __init__(self, channels, spec):
        self.spec, self.agent = spec, FrameSocket(channels[0])
        self.child = ExecutorChild(FrameSocket(channels[1]), Device("cpu"))

    def ask(self, op, fence, payload=b"", **header):
        answer, parts = self.child.answer({"op": op, "fence": fence, "task": "r/fit", **header}, memoryview(payload))
        return answer, b"".join(bytes(part) for part in parts)


@pytest.fixture
def gang(tmp_path):
    """Return a lead and a member, in this process."""
    inputs = torch.randn(N, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    spec = written(tmp_path, module, data, normed_loss, torch.optim.Adam, N, {"lr": 0.01})
    pairs = [socket_pair() for _ in SIZES]
    with one_thread():
        made = Gang([Slot(pair, spec) for pair in pairs], spec)
        made.wanted = lambda n_steps: plain_steps(
            module, data, normed_loss, n_steps, torch.optim.Adam, N, {"lr": 0.01}
        ).state_dict()
        yield made
    for pair in pairs:
        for end in pair:
            end.close()


class Gang:
    """What a master and two agents do with two executors."""

    def __init__(self, slots, spec):
        self.slots, self.spec, self.token, self.round = slots, spec, 1, 1
        answer, payload = slots[0].ask("initialise", self.fence, spec=spec.to_plain())
        self.committed(answer, payload)
        self.version, self.key, self.packed, self.n_asked = 1, "", b"", 0
        self.step, self.until = 0, 3

    @property
    def fence(self):
        return Fence(1, self.token)

    def committed(self, answer, payload):
        n = answer["event"]["n_bytes"]
        self.published, self.state, self.facts = payload[:n], payload[n:], answer["state"]

    def share(self, k, *, with_state=False, bare=False, n=None, chunk=0, **other):
        """Ask a slot for its share; its training state comes along if it asked for it before."""
        command = ComputeShare(
            fence=self.fence,
            slot=str(k),
            round=self.round,
            version=self.version,
            after_timesteps=self.until,
            split=self.step,
            step=self.step,
            first=sum(SIZES[:k]),
            n=n or SIZES[k],
            chunk=chunk,
            lead="0",
            parameters=self.key,
        )
        parts = [self.packed] * bool(self.key)
        return self._ask(self.slots[k], "share", replace(command, **other), with_state, parts, bare=bare)

    def apply(self, parts, denominators, *, with_state=False, **other):
        command = ApplyGradients(
            fence=self.fence,
            slot="0",
            round=self.round,
            split=self.step,
            step=self.step,
            keys=tuple(map(str, range(len(denominators)))),
            denominators=tuple(denominators),
            others=("1",),
        )
        round_ = {"version": self.version, "after_timesteps": self.until, "settings": {}}
        return self._ask(self.slots[0], "apply", replace(command, **other), with_state, parts, **round_)

    def _ask(self, slot, op, command, with_state, parts, **more):
        header = {**more, **fields_of(command), "key": f"{self.step}/{op}", "n_state": 0}
        header["parts"] = [["", 0, len(part)] for part in parts]
        header.pop("fence")
        payload = b"".join(parts)
        if with_state:
            header |= {"n_state": len(self.state), "state": self.facts, "spec": self.spec.to_plain()}
            payload = self.state + payload
        return slot.ask(op, self.fence, payload, **header)

    def answered(self, ask, *arguments, **more):
        """Ask as a master does: with the training state if it is asked for."""
        answer, payload = ask(*arguments, **more)
        if answer["op"] == "need-state":
            self.n_asked += 1
            answer, payload = ask(*arguments, **more, with_state=True)
        return answer, payload

    def make_step(self):
        shares = [self.answered(self.share, k) for k in range(len(SIZES))]
        assert [answer["op"] for answer, _ in shares] == ["shared", "shared"]
        denominators = [answer["event"]["denominator"] for answer, _ in shares]
        answer, self.packed = self.answered(self.apply, [part for _, part in shares], denominators)
        assert answer["op"] == "applied"
        self.key = f"{self.step}/apply"
        self.step += 1

    def make_round(self, n_steps):
        self.until = self.step + n_steps
        for _ in range(n_steps):
            self.make_step()
        return self.finish()

    def finish(self):
        """End the round, and commit what it made."""
        answer, payload = self.slots[0].ask("finish", self.fence, round=self.round, collectors=(-1,))
        assert answer["op"] == "made"
        self.committed(answer, payload)
        self.round, self.version, self.token = self.round + 1, self.version + 1, self.token + 1
        return answer["event"]["metrics"]


def assert_close(published, wanted):
    ours = load(published)
    assert ours.keys() == wanted.keys()
    assert all((ours[name] - wanted[name]).abs().max() < 1e-12 for name in wanted)


def test_two_rounds_of_steps_are_a_plain_loop_and_state_travels_once(gang):
    """The member asks for the training state at its first share alone: later it gets parameters."""
    assert gang.make_round(3)["train/n_updates"] == 3
    gang.make_round(3)
    assert gang.n_asked == 1
    assert_close(gang.published, gang.wanted(6))


def test_the_lead_may_be_another_slot_in_the_next_round(gang):
    """The former member has only parameters: it gets what the optimiser keeps; the former lead computes on."""
    gang.make_round(3)
    gang.slots.reverse()
    gang.make_round(2)
    assert gang.n_asked == 2
    assert_close(gang.published, gang.wanted(5))


def test_a_round_that_is_lost_in_its_midst_begins_again_with_its_version(gang):
    """Whoever has made steps, or taken over what they made, is at no version: both ask for it."""
    gang.make_step()
    gang.make_step()
    asked, gang.n_asked = gang.n_asked, 0
    gang.token, gang.step, gang.key = gang.token + 1, 0, ""
    gang.make_round(3)
    assert (asked, gang.n_asked) == (1, 2)
    assert_close(gang.published, gang.wanted(3))


def test_the_lead_goes_on_from_the_steps_that_it_made_under_a_lost_lease(gang):
    """It is asked for them under another fence, gives their parameters once more, and the round's loss is of all."""
    gang.make_step()
    gang.make_step()
    asked, packed, gang.token = gang.n_asked, gang.packed, gang.token + 1
    answer, gang.packed = gang.apply([], (), split=0, step=1, parameters=gang.key)
    assert (answer["op"], answer["event"]["cosines"]) == ("applied", [])
    assert gang.packed == packed, "no step was made"
    gang.key = "2/apply"
    assert gang.slots[0].child.models["r/fit"].holds == gang.key
    gang.make_step()
    learner = gang.slots[0].child.models["r/fit"].learner
    losses = [float(loss) for loss in learner._losses]
    metrics = gang.finish()
    assert gang.n_asked == asked, "nobody needed the version's state"
    assert (metrics["train/n_updates"], metrics["train/loss"]) == (3, pytest.approx(sum(losses) / 3))
    assert len(losses) == 3
    assert_close(gang.published, gang.wanted(3))


@pytest.mark.parametrize("how", ["dropped", "a step further", "another lead", "finished"])
def test_a_lead_that_does_not_have_those_steps_says_so(gang, how):
    """Whatever it has instead: it is given the version, and the round begins again."""
    gang.make_step()
    key = gang.key
    if how == "dropped":
        gang.slots[0].child.models.drop("r/fit")
    elif how == "another lead":
        gang.share(1)  # the member holds these parameters, and nothing of the optimiser's
        gang.slots.reverse()
    else:
        gang.make_step()
        if how == "finished":
            key = gang.key
            gang.slots[0].ask("finish", gang.fence, round=gang.round, collectors=(-1,))
    gang.token += 1
    asked, gang.n_asked = gang.n_asked, 0
    assert gang.answered(gang.apply, [], (), split=0, step=gang.step - 1, parameters=key)[0] == {"op": "behind"}
    assert (asked, gang.n_asked) == (1, 1)
    gang.step, gang.key = 0, ""
    gang.make_round(3)
    assert_close(gang.published, gang.wanted(3))


def test_a_step_that_failed_half_way_is_nothing_to_go_on_from(gang, monkeypatch):
    """What it left behind is no parameters of anybody, under this lease or the next."""
    gang.make_step()
    learner = gang.slots[0].child.models["r/fit"].learner
    shares = [gang.answered(gang.share, k) for k in range(2)]
    monkeypatch.setattr(learner.optimizer, "step", lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        gang.apply([part for _, part in shares], (80.0, 16.0))
    gang.token += 1
    assert gang.apply([part for _, part in shares], (80.0, 16.0))[0] == {"op": "need-state"}
    assert gang.apply([], (), split=0, step=0, parameters=gang.key)[0] == {"op": "need-state"}


def test_one_slot_goes_on_after_two_and_two_after_one(gang):
    """The parameters that the two had last are none of a round that one slot has made: nobody computes with them."""
    gang.make_round(2)
    what = {"version": gang.version, "after_timesteps": 3, "settings": {}, "n_state": 0, "swap": None}
    batch = {"round": gang.round, "collector": -1, "fragment": Fragment({}, {}).pack()[0]}
    assert gang.slots[0].ask("stage", gang.fence, **what, **batch)[0]["op"] == "staged"
    gang.finish()
    assert gang.slots[0].child.models["r/fit"].holds == ""
    gang.step, gang.key, gang.n_asked = 3, "", 0
    gang.make_round(1)
    assert gang.n_asked == 1
    assert_close(gang.published, gang.wanted(4))


def bare(gang):
    """Return a gang whose master sends members the training state without the optimiser's part, and its whole."""
    gang.make_round(2)  # Adam has its moments
    gang.key, whole = "", (gang.facts, gang.state)
    gang.facts, gang.state = without_optimizer(gang.facts, gang.state)
    gang.slots[1].child.models.drop("r/fit")
    return whole


def test_a_member_gets_and_keeps_nothing_of_the_optimiser(gang):
    """A third of the bytes with Adam; its gradient is the same, also for a second share of the same version."""
    facts, state = bare(gang)
    _, wanted = gang.answered(gang.share, 1)  # what a whole one computes
    gang.slots[1].child.models.drop("r/fit")
    answer, part = gang.share(1, with_state=True, bare=True)
    assert (answer["op"], part) == ("shared", wanted)
    learner = gang.slots[1].child.models["r/fit"].learner
    assert not learner.optimizer.state
    assert len(state) - len(gang.state) > 2 * sum(each.nbytes for each in learner.module.parameters())
    answer, part = gang.share(1, bare=True)
    assert (answer["op"], part) == ("shared", wanted)
    assert facts["n_steps"] == learner.n_steps == 2


def test_what_a_hook_of_the_optimiser_switches_is_followed_by_all_and_saved(gang):
    """A part that goes into evaluation mode at the second step, and a parameter that is trained from then on."""
    frozen, steps = "2.bias", []
    for slot in gang.slots:
        gang.answered(gang.share, gang.slots.index(slot))
        slot.child.models["r/fit"].learner.module.get_parameter(frozen).requires_grad_(False)
    lead, member = (slot.child.models["r/fit"].learner for slot in gang.slots)

    def switch(*_):
        steps.append(1)
        if len(steps) == 2:
            lead.module[1].eval()
            lead.module.get_parameter(frozen).requires_grad_(True)

    lead.optimizer.register_step_post_hook(switch)
    gang.make_step()
    gang.share(1)
    assert (member.module[1].training, member.module.get_parameter(frozen).requires_grad) == (True, False)
    gang.make_step()
    gang.share(1)
    assert (member.module[1].training, member.module.get_parameter(frozen).requires_grad) == (False, True)
    assert (member.module.training, member.module[0].training) == (True, True)
    gang.make_step()
    gang.finish()
    gang.slots[1].child.models.drop("r/fit")
    gang.key = ""
    gang.answered(gang.share, 1)
    module = gang.slots[1].child.models["r/fit"].learner.module
    assert (module[1].training, module[0].training, module.get_parameter(frozen).requires_grad) == (False, True, True)


def test_a_member_without_the_optimisers_state_makes_no_step(gang):
    """As a lead, or alone, it asks for all of it."""
    whole = bare(gang)
    gang.share(1, with_state=True, bare=True)
    gang.slots.reverse()
    shares = [gang.answered(gang.share, k) for k in range(2)]
    denominators = [answer["event"]["denominator"] for answer, _ in shares]
    parts = [part for _, part in shares]
    assert gang.apply(parts, denominators)[0] == {"op": "need-state"}
    gang.facts, gang.state = whole
    assert gang.answered(gang.apply, parts, denominators)[0]["op"] == "applied"


def test_parameters_that_nobody_has_any_more_are_asked_for(gang):
    """A member that holds other ones, and whose agent found none, says so, and computes with nothing else."""
    gang.make_step()
    assert gang.share(1, parameters="1/9/made/1")[0]["op"] == "shared", "they came along"
    gang.key = "1/8/made/1"
    answer, _ = gang._ask(gang.slots[1], "share", ComputeShare(**share_fields(gang)), with_state=False, parts=[])
    assert answer == {"op": "need-parameters"}


def share_fields(gang):
    sizes = {"split": 1, "step": 1, "first": 80, "n": 16, "chunk": 0, "lead": "0", "parameters": gang.key}
    return {"fence": gang.fence, "slot": "1", "round": 1, "version": 1, "after_timesteps": 3, **sizes}


def test_a_step_that_cannot_follow_is_refused(gang):
    """The lease is lost then, and the round computed anew: not all gradients, or not the step that is next."""
    shares = [gang.answered(gang.share, k) for k in range(2)]
    parts = [part for _, part in shares]
    refused = {"op": "refused", "reason": "not all gradients of step 0 are here"}
    assert gang.apply([], (80.0, 16.0))[0] == refused
    assert gang.apply(parts, (80.0, 16.0), step=4)[0]["reason"] == "step 4 cannot follow 0 steps"
    assert gang.apply(parts, (80.0, 16.0))[0]["op"] == "applied"
    assert gang.apply(parts, (80.0, 16.0))[0]["reason"] == "step 0 cannot follow 1 steps"


def test_a_share_is_cut_before_or_in_its_midst(gang):
    """One chunk at least is made of a share that is cut before it begins; a cut of another split does nothing."""
    gang.answered(gang.share, 0)
    slot = gang.slots[0]
    cut = {"op": "cut", "slot": "0", "fence": gang.fence}
    slot.child.answer({**cut, "split": 0}, memoryview(b""))
    answer, _ = gang.share(0, chunk=30)
    assert (answer["event"]["n_done"], answer["event"]["denominator"]) == (30, 30.0)
    slot.child.answer({**cut, "split": 7}, memoryview(b""))
    assert gang.share(0, chunk=30)[0]["event"]["n_done"] == 80
    slot.agent.send({**cut, "split": 0})  # it is read between two chunks
    assert gang.share(0, chunk=30)[0]["event"]["n_done"] == 30
    slot.agent.send({"op": "revoked", "fence": gang.fence})
    assert gang.share(0, chunk=30)[0]["op"] == "refused"


def test_a_loss_that_is_not_finite_names_the_member_s_samples(gang, monkeypatch):
    gang.answered(gang.share, 1)
    learner = gang.slots[1].child.models["r/fit"].learner
    monkeypatch.setattr(learner, "loss", lambda outputs, targets: (outputs * float("nan")).mean())
    answer, _ = gang.share(1)
    assert (answer["kind"], answer["detail"]) == ("NonFinite", "")
    assert answer["message"] == "loss is nan at step 0 (epoch 1, samples 80 to 95 of its order); update refused"


def test_a_share_that_runs_out_of_memory_once_is_made_once(gang, monkeypatch):
    """It is tried again with all other models gone: its gradient is that of one try."""
    _, wanted = gang.answered(gang.share, 1)
    learner = gang.slots[1].child.models["r/fit"].learner
    loss, failures = learner.loss, [1]

    def scarce(outputs, targets):
        if failures:
            failures.pop()
            loss(outputs, targets).backward()  # half of it is there
            raise torch.OutOfMemoryError("too much")
        return loss(outputs, targets)

    monkeypatch.setattr(learner, "loss", scarce)
    answer, part = gang.share(1)
    assert answer["op"] == "shared"
    assert part == wanted


def test_a_share_under_a_byte_budget_has_the_same_bits(gang):
    """What its forward pass saves is swapped; that is reported as of any gradient step."""
    _, wanted = gang.answered(gang.share, 1)
    learner = gang.slots[1].child.models["r/fit"].learner
    assert all(parameter.grad is None for parameter in learner.module.parameters())
    answer, part = gang.share(1, swap=asdict(SwapOrder("all", 1 << 20, "median")))
    assert part == wanted
    assert [row["r"] for row in answer["swaps"]] == ["SwapStepMeasured"]
    assert gang.share(1, swap=asdict(SwapOrder("other", 1 << 20, "median")))[0] == {"op": "need-plan"}
    gang.slots[1].child.models.drop("r/fit")


def test_a_slow_member_sleeps_and_its_gradient_is_the_same(gang, monkeypatch):
    """A share of four chunks at thrice its time: it sleeps after each one, and its seconds have the sleep in them."""
    slept = []
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + sum(slept), sleep=slept.append)
    for module in (padding, frames):
        monkeypatch.setattr(module, "time", clock)
    usual, part = gang.answered(gang.share, 0, chunk=20)
    assert slept == []
    answer, slow_part = gang.share(0, chunk=20, slowed=3.0)
    assert slow_part == part
    assert answer["event"]["n_done"] == usual["event"]["n_done"] == 80
    assert len(slept) >= 4
    assert sum(slept) == pytest.approx(answer["event"]["compute_s"] * 2 / 3, rel=0.1)
