"""What a master does with what executors answer to shares: which training state it sends, and when a lease is lost."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from drlnb.records.columns.batching import ApplyGradients, ComputeShare, ShareComputed
from drlnb.records.ids import Fence
from drlnb.records.round import FinishRound
from drlnb.runtime.master.share_effects import ShareEffects
from drlnb.runtime.master.slot_effects import SlotEffects

FENCE = Fence(1, 4)
DONE = {"n_done": 8, "denominator": 8.0, "loss": 0.5, "norm_sq": 1.0, "compute_s": 0.1, "age_s": 0.1}


class Played:
    """A master and its slot, whose executor gives some answers, one after the other."""

    def __init__(self, *answers):
        self.answers, self.sent, self.fed, self.lost = list(answers), [], [], []
        self.in_order = defaultdict(asyncio.Lock)
        self.slots = {"n0/a": "here", "n1/b": "there"}
        self.host = SimpleNamespace(feed=lambda kind, **values: self.fed.append(kind(t=0.0, **values)))
        self.leases = SimpleNamespace(lost=lambda fence, reason: self.lost.append((fence, reason)))
        self.effects = ShareEffects(self, self)

    async def with_state(self, op, command, payload, more, settings):
        del command, payload, settings
        self.sent.append((op, dict(more)))
        return self.answers.pop(0)


def share(parameters):
    samples = {"split": 9, "step": 20, "first": 16, "n": 8, "chunk": 0, "lead": "n0/a", "parameters": parameters}
    return ComputeShare(fence=FENCE, slot="n1/b", round=3, version=3, after_timesteps=25, **samples)


def test_parameters_of_a_former_round_are_those_of_the_version():
    """A member whose node has them no more is asked once more, for the version: then the training state goes along."""
    played = Played({"op": "need-parameters"}, {"op": "shared", "event": DONE})
    asyncio.run(played.effects.compute(share("2/8/made/3")))
    (_, first), (_, second) = played.sent
    assert (first["needs"], second["needs"], second["parameters"]) == (["2/8/made/3"], [], "")
    assert first["to"] == second["to"] == ["here"]
    (computed,) = played.fed
    assert isinstance(computed, ShareComputed)
    assert (computed.key, computed.n_planned, computed.n_done) == ("3/9/16/4", 8, 8)


@pytest.mark.parametrize("answer", ["need-parameters", "need-state"])
def test_a_lease_is_lost_where_the_parameters_of_its_own_steps_are(answer):
    played = Played({"op": answer})
    asyncio.run(played.effects.compute(share("3/8/made/4")))
    assert played.lost == [(FENCE, f"a slot cannot share the step: {answer}")]
    assert not played.fed


@pytest.mark.parametrize(("lead", "is_bare"), [("n0/a", True), ("n1/b", False)])
def test_who_makes_no_step_gets_nothing_of_the_optimisers(lead, is_bare):
    """Its training state: a module of 8 bytes, moments of 16; the lead gets all of it."""
    state = safetensors.torch.save({"module/w": torch.zeros(1).double(), "optimizer/0/m": torch.zeros(2).double()})
    answers, sent = [{"op": "need-state"}, {"op": "shared", "event": DONE}], []

    async def call(where, op, **message):
        sent.append((message["header"], message["payload"]))
        return answers.pop(0)

    async def unless_lost(fence, work):
        return await work

    facts = {"n_steps": 3, "numbers": {"0/step": 1}}
    settings = SimpleNamespace(compute_timeout_s=60.0)
    master = SimpleNamespace(
        leases=SimpleNamespace(unless_lost=unless_lost, settings=settings),
        link=SimpleNamespace(address="here", call=call),
        host=SimpleNamespace(feed=lambda kind, **_: None),
        slots={"n0/a": "here", "n1/b": "there"},
        committed=SimpleNamespace(facts=facts, state=state),
        spec_plain={}, pool_name="r/a", attempt=1,
    )  # fmt: skip
    asyncio.run(ShareEffects(master, SlotEffects(master)).compute(replace(share(""), lead=lead)))
    (_, nothing), (header, payload) = sent
    assert nothing == b""
    assert header["bare"] is is_bare
    assert header["state"] == (facts | {"numbers": {}} if is_bare else facts)
    assert header["n_state"] == len(payload)
    assert safetensors.torch.load(bytes(payload)).keys() == {"module/w", *([] if is_bare else ["optimizer/0/m"])}


def test_a_lead_without_a_share_is_told_of_which_version_the_step_is():
    """It may have to get the training state: commands of steps do not say of which version."""
    played = Played({"op": "shared", "event": DONE}, {"op": "applied", "event": {"cosines": [1.0, 0.5]}})
    apply = ApplyGradients(
        fence=FENCE,
        slot="n0/a",
        round=3,
        split=9,
        step=20,
        keys=("3/9/16/4",),
        denominators=(8.0,),
        others=("n1/b", "n1/b"),
    )

    async def both():
        await played.effects.compute(share(""))
        await played.effects.apply(apply)

    asyncio.run(both())
    _, (op, header) = played.sent
    assert (op, header["version"], header["after_timesteps"], header["to"]) == ("apply", 3, 25, ["there"])
    assert (played.fed[1].key, played.fed[1].cosines) == ("3/9/made/4", (1.0, 0.5))


def test_a_lead_that_is_behind_has_no_parameters_to_go_on_from():
    """That is its answer: no lease is lost for it."""
    played = Played({"op": "shared", "event": DONE}, {"op": "behind"})
    made = {
        "round": 3,
        "split": 0,
        "step": 19,
        "keys": (),
        "denominators": (),
        "others": (),
        "parameters": "3/8/made/2",
    }

    async def both():
        await played.effects.compute(share(""))
        await played.effects.apply(ApplyGradients(fence=FENCE, slot="n0/a", **made))

    asyncio.run(both())
    assert (played.fed[1].split, played.fed[1].key, played.fed[1].cosines) == (0, "", ())
    assert not played.lost


@pytest.mark.parametrize(("is_held", "fed"), [(True, ["ExecutorDied"]), (False, [])])
def test_work_under_a_lease_that_is_over_is_no_death(is_held, fed):
    """A member that was late is still at work when the round is made, and its lease is given back."""
    told = []

    async def unless_lost(fence, work):
        work.close()
        raise ConnectionError("the lease was lost")

    async def call(*_, **__):
        pass

    leases = SimpleNamespace(
        unless_lost=unless_lost, holds=lambda fence: is_held, settings=SimpleNamespace(compute_timeout_s=60.0)
    )
    host = SimpleNamespace(feed=lambda kind, **_: told.append(kind.__name__))
    link = SimpleNamespace(address="here", call=call)
    master = SimpleNamespace(leases=leases, link=link, host=host, slots={}, pool_name="r/a", attempt=1)
    command = FinishRound(fence=Fence(epoch=1, token=1), slot="n/cpu0", round=1, collectors=())
    asyncio.run(SlotEffects(master).finish_round(command))
    assert told == fed
