"""Mechanism 2-2: shares that members compute apart make the gradient of the whole batch; ways that do not are found."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from drlnb.rl.algorithms.ppo import Batch
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.objectives.gpf_losses import Samples

#: Environments of each member's share; each has 16 steps.
SHARES = {"one": [4], "two unequal": [3, 1], "three unequal": [2, 1, 1]}
HYPER = {"n_epochs": 1, "batch_size": 64, "ent_coef": 0.01, "vf_coef": 0.5, "max_grad_norm": 0.02}


def fragments(spec, shares):
    """Return each member's experience, of the same environments however they are shared."""
    found, first, learner = [], 0, make_learner(spec)
    for n in shares:
        collector = Collector(spec, env_indices=range(first, first + n))
        found.append(collector.collect(learner.published(), version=1, round=1, n_steps=16))
        collector.close()
        first += n
    return found


def members(spec, shares):
    """Return a learner for each share, with what it has staged."""
    made = []
    for fragment in fragments(spec, shares):
        learner = make_learner(spec)
        learner.begin(1, 64)
        learner.stage(0, fragment)
        made.append(learner)
    return made


def gang_gradient(spec, shares, planted=None):
    """Return what the lead would step by, made of parts that travelled; `planted`: a way to get it wrong."""
    lead, first = make_learner(spec), 0
    lead.begin(1, 64)
    for learner, n in zip(members(spec, shares), shares, strict=True):
        if planted:
            planted(learner, first)
        lead.import_partial(learner.export_partial(range(first, first + n)))
        first += n
    if planted:
        lead.settings = planted.of_lead(lead.settings)
    found = []
    lead.adam.step = lambda max_norm, norm_out: found.append(lead.adam.grad.clone())
    lead.finish()
    return found[0]


def whole_gradient(spec) -> Tensor:
    """Return the gradient of the whole round by autograd, PPO's loss written out, advantages normalised over all."""
    (learner,) = members(spec, [4])
    rows = Batch.join([learner._staged[i] for i in range(4)])
    logits, values = learner.networks.both(rows.obs)
    log_p = torch.distributions.Categorical(logits=logits).log_prob(rows.action)
    advantages = (rows.advantage - rows.advantage.mean()) / (rows.advantage.std() + 1e-8)
    ratio = (log_p - rows.log_prob).exp()
    policy = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
    learner.adam.zero_grad()
    (policy + 0.5 * (rows.returns - values).square().mean() - 0.01 * entropy).backward()
    return learner.adam.grad.clone()


@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
def test_2_2_parts_of_members_make_the_gradient_of_the_whole_batch(shares, make_spec):
    """To 1e-6 of autograd on all samples at once, before anything is clipped."""
    spec = make_spec(**HYPER)
    whole = whole_gradient(spec)
    assert whole.norm() > 10 * HYPER["max_grad_norm"], "clipping would show"
    torch.testing.assert_close(gang_gradient(spec, shares), whole, atol=1e-6, rtol=1e-6)


def test_2_2_shares_of_whole_fragments_have_the_same_bits_whoever_computes_them(make_spec):
    """Three fragments on one learner, and on one each."""
    spec, shares = make_spec(**HYPER), [2, 1, 1]
    alone = make_learner(spec)
    alone.begin(1, 64)
    for worker, fragment in enumerate(fragments(spec, shares)):
        alone.stage(worker, fragment)
    found = []
    alone.adam.step = lambda max_norm, norm_out: found.append(alone.adam.grad.clone())
    alone.finish()
    assert found[0].numpy().tobytes() == gang_gradient(spec, shares).numpy().tobytes()


@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
def test_means_over_sequences_are_whole_in_each_share(shares, make_spec):
    """GPF's `expectation="samples"`: shares that members compute apart make autograd's gradient of the whole round."""
    spec = make_spec(n_epochs=1, batch_size=None, reward_scale=0.1, expectation="samples", max_grad_norm=1e-3)
    spec = replace(spec, algo="gpf")
    (learner,) = members(spec, [4])
    loss = 0.0
    for index in range(4):
        rows = Samples.join([learner._staged[index]])
        advantages, values = learner.networks.both(rows.obs)
        taken = advantages.gather(1, rows.action[:, None])[:, 0]
        q = taken - taken.mean() + values.detach()
        loss = loss + 0.5 * ((rows.q_target - q).square() + (rows.v_target - values).square()).sum() / 64
    learner.adam.zero_grad()
    loss.backward()
    whole = learner.adam.grad.clone()
    assert whole[: learner.layout.n_policy].norm() > 1e-3
    torch.testing.assert_close(gang_gradient(spec, shares), whole, atol=1e-6, rtol=1e-6)


class PerShare:
    """A wrong way: something that belongs to the batch is done to each share."""

    @staticmethod
    def of_lead(settings):
        return settings


class Normalised(PerShare):
    """Advantages are normalised over the share."""

    def __call__(self, learner, first):
        column, rows = learner._staged[first], Batch.join(list(learner._staged.values()))
        mean, spread = rows.advantage.mean(), rows.advantage.std() + 1e-8
        column["raw"] = (column["raw"] - mean * column["unit"]) / spread

    @staticmethod
    def of_lead(settings):
        return replace(settings, normalize_advantage=False)


class Clipped(PerShare):
    """The norm is clipped share by share."""

    def __call__(self, learner, first):
        column = learner._staged[first]
        for name in ("raw", "unit", "rest"):
            column[name] = column[name] * min(1.0, HYPER["max_grad_norm"] / float(column[name].norm()))


class Unweighted(PerShare):
    """Every share counts alike."""

    def __call__(self, learner, first):
        learner._staged[first]["n_samples"] = torch.tensor(1)


@pytest.mark.parametrize("planted", [Normalised(), Clipped(), Unweighted()], ids=lambda it: type(it).__name__)
def test_trap_3_what_is_done_to_each_share_is_found(planted, make_spec):
    """Each planted way is off by far more than mechanism 2-2 allows, so its test would find it."""
    spec = make_spec(**HYPER)
    wrong = gang_gradient(spec, SHARES["two unequal"], planted)
    assert (wrong - whole_gradient(spec)).abs().max() > 1e-3


def test_trap_16_rows_in_other_shares_have_other_bits(make_spec):
    """The sum over two halves of a fragment is near that over the whole, and not its bits: shares stay whole."""
    spec = make_spec(**HYPER)
    (learner,) = members(spec, [4])
    rows, out = Batch.join([learner._staged[i] for i in range(4)]), torch.zeros(len(learner.columns))
    advantages = torch.ones(len(rows))
    learner.gradient(rows, out, advantages)
    whole, summed = learner.adam.grad.clone(), torch.zeros_like(learner.adam.grad)
    for part in (slice(0, 21), slice(21, 64)):
        learner.gradient(rows.part(part), out, advantages[part])
        summed += learner.adam.grad * (len(advantages[part]) / 64)
    torch.testing.assert_close(summed, whole, atol=1e-6, rtol=1e-6)
    assert np.any(summed.numpy() != whole.numpy())
