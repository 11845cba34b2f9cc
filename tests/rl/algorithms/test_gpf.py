"""The GPF learner and actor: equal to what they should be equal to, members, targets, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from drlnb.records.errors import ConfigError, NonFinite, UnsupportedSpace
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.gpf import GpfLearner, with_expectation
from drlnb.rl.algorithms.registry import learners_problem, make_actor, make_learner
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.collecting.collector import Collector, split_envs
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import PI, VF
from drlnb.rl.networks.networks import dense
from drlnb.rl.networks.trained_state import views
from drlnb.rl.objectives.gpf_losses import Samples, action_shares, log_strategy
from drlnb.rl.objectives.traces import retrace, vtrace
from drlnb.rl.settings.gpf import GpfSettings
from tests.rl import METRICS

#: A family of three: one softmax, a mixture, and one whose temperatures fall.
FAMILY = [{}, {"eps": 0.25, "tau2": 2.0}, {"tau1": [0.4, 0.2]}]
#: The mean of A over each environment's round.
SEQUENCES = {"expectation": "samples", "batch_size": None}


@pytest.fixture
def make(make_spec) -> Callable[..., RlWork]:
    """Build a small GPF task."""

    def made(env: str = "CartPole-v1", **given: Any) -> RlWork:
        return replace(make_spec(env, **{"reward_scale": 0.1, **given}), algo="gpf")

    return made


@pytest.fixture
def play(request) -> Any:
    """Train a few rounds; return learner, the metrics of each round, and the collectors."""

    def run(spec, *, rounds=2, shares=1, order=1, learner=None, collectors=None, first=1):
        learner = learner or make_learner(spec)
        if collectors is None:
            collectors = [Collector(spec, env_indices=share) for share in split_envs(spec.n_envs, shares)]
            for made in collectors:
                request.addfinalizer(made.close)
        n_steps, metrics = spec.hyperparameters["n_steps"], []
        for number in range(first, first + rounds):
            parameters, done = learner.published(), (number - 1) * n_steps * spec.n_envs
            found = [
                c.collect(parameters, version=number, round=number, n_steps=n_steps, n_timesteps=done)
                for c in collectors
            ]
            learner.begin(number, done + n_steps * spec.n_envs)
            for worker, fragment in list(enumerate(found))[::order]:
                learner.stage(worker, fragment)
            metrics.append(learner.finish())
        return learner, metrics, collectors

    return run


def bits(learner) -> bytes:
    return learner.state()[1].tobytes()


def sample(spec, learner=None, n_steps=16) -> Fragment:
    """Collect the first round with the learner's policy."""
    made = Collector(spec, env_indices=range(spec.n_envs))
    try:
        published = (learner or make_learner(spec)).published()
        return made.collect(published, version=1, round=1, n_steps=n_steps, n_timesteps=0)
    finally:
        made.close()


def staged(learner, fragment, round=1) -> list[Samples]:
    """Return the samples of each environment as the learner prepares them."""
    learner.begin(round, round * fragment.header["n_samples"])
    learner.stage(0, fragment)
    return [Samples.join([learner._staged[index]]) for index in sorted(learner._staged)]


def joined(parts: list[Samples]) -> Samples:
    return Samples.join([
        {name: getattr(part, name) for name in Samples.__slots__ if getattr(part, name) is not None} for part in parts
    ])


def moved(learner, by=0.3) -> None:
    """Move all parameters, padding too: nothing may read it."""
    learner.adam.flat += by * torch.randn(learner.layout.n_total, generator=torch.Generator().manual_seed(3))


STREAM = {"n_epochs": 1, "batch_size": None}


@pytest.mark.parametrize(
    "hyper",
    [
        {"batch_size": 24},
        STREAM,
        {"n_action_samples": 5, "batch_size": 24},
        {"n_action_samples": 5, **STREAM},
        SEQUENCES,
        {**SEQUENCES, **STREAM},
    ],
    ids=["epochs", "stream", "fresh actions", "fresh actions, stream", "sequences", "sequences, stream"],
)
def test_neither_split_nor_arrival_order_matters(hyper, make, play):
    """After two normalised rounds of a family, 1 collector, 3, and 3 staged backwards leave the same bits."""
    spec = make(normalize=True, members=FAMILY, **hyper)
    expected = bits(play(spec)[0])
    assert bits(play(spec, shares=3)[0]) == expected
    assert bits(play(spec, shares=3, order=-1)[0]) == expected


def test_same_spec_twice_gives_the_same_bits_with_poisoned_generators(make, play):
    """T20: neither numpy's nor torch's global generator plays a part."""
    spec, found = make(n_action_samples=5, members=FAMILY), []
    for poison in (1, 2):
        torch.manual_seed(poison)
        np.random.seed(poison)  # noqa: NPY002 - the global one is meant
        found.append(bits(play(spec)[0]))
    assert found[0] == found[1]


def test_resumed_equals_uninterrupted(make, play):
    """Both sides stopped after round 2 of 4 and restored in new objects: all state and metrics are equal."""
    spec = make(normalize=True, learning_rate="lin_0.001", members=FAMILY, total_timesteps=256)
    uninterrupted, metrics, _ = play(spec, rounds=4)
    learner, _, collectors = play(spec, rounds=2)
    meta, buffer = learner.state()
    state = collectors[0].state()
    fresh_learner, fresh = make_learner(spec), Collector(spec, env_indices=range(4))
    fresh_learner.restore(meta, buffer)
    assert fresh.restore(state) == 0
    resumed, later, _ = play(spec, rounds=2, first=3, learner=fresh_learner, collectors=[fresh])
    fresh.close()
    assert bits(resumed) == bits(uninterrupted)
    assert resumed.state()[0] == uninterrupted.state()[0]
    assert later == metrics[2:]


@pytest.mark.parametrize("sizes", [[64], [40, 24], [30, 3, 17, 1, 13]], ids=["1", "2", "5 unequal"])
@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "autograd"])
def test_serial_gradients_equal_the_concatenated_batch(sizes, by_hand, make):
    """Computed worker after worker, the gradient and the loss are those of all samples at once, to 1e-6."""
    spec = make(members=FAMILY, pg_coef=0.5)
    learner = GpfLearner(spec, by_hand=by_hand)
    batch = joined(staged(learner, sample(spec)))
    moved(learner)
    whole_told, whole = learner.gradient(batch), learner.adam.grad.clone()
    ends = np.cumsum([0, *sizes])
    parts = [batch.part(slice(start, stop)) for start, stop in pairwise(ends)]
    told, summed = torch.zeros_like(whole_told), torch.zeros_like(whole)
    for part in parts:
        told += learner.gradient(part, len(batch))
        summed += learner.adam.grad
    assert whole.abs().max() > 1e-3
    torch.testing.assert_close(summed, whole, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(told, whole_told, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("hyper", [{"members": FAMILY}, SEQUENCES], ids=["family", "sequences"])
def test_streaming_equals_one_epoch_over_the_whole_round(hyper, make, play):
    """The gradient summed at arrival, workers of 2, 1 and 1 environments, takes the same step as the batch: to 1e-6."""

    class AllAtOnce(GpfLearner):
        compute = "epochs"

    spec = make(learning_rate=0.01, **{**hyper, **STREAM})
    assert make_learner(spec).compute == "stream"
    assert make_learner(make(n_epochs=2, batch_size=None)).compute == "epochs"
    assert make_learner(make(n_epochs=1, batch_size=32)).compute == "epochs"
    streamed, metrics, _ = play(spec, shares=3)
    at_once, expected, _ = play(spec, shares=3, learner=AllAtOnce(spec))
    assert (streamed.adam.flat - make_learner(spec).adam.flat).abs().max() > 0.01
    torch.testing.assert_close(streamed.adam.flat, at_once.adam.flat, atol=1e-6, rtol=0)
    assert metrics[1] == pytest.approx(expected[1], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    "hyper",
    [{}, {"pg_coef": 0.7, "q_coef": 2.0}, {"members": FAMILY, "pg_coef": 0.7}, {"n_action_samples": 7}, SEQUENCES],
    ids=["defaults", "policy gradient", "family", "fresh actions", "sequences"],
)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_gradients_by_hand_equal_autograd(hyper, activation, make):
    """For a policy that has moved off the acting one, both ways give the same gradient and statistics, to 1e-6."""
    kwargs = {"net_arch": {"pi": [8, 6], "vf": [7]}, "activation_fn": activation}
    spec = make(policy_kwargs=kwargs, **hyper)
    fragment, found = sample(spec), []
    for by_hand in (True, False):
        learner = GpfLearner(spec, by_hand=by_hand)
        batch = joined(staged(learner, fragment))
        moved(learner)
        batch = with_expectation(learner, batch, dict.fromkeys(range(4), 16), 0)
        found.append((learner.gradient(batch).clone(), learner.adam.grad.clone()))
    scale = max(1.0, found[1][1].abs().max().item())
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-6 * scale, rtol=1e-4)
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("members", [None, FAMILY], ids=["one member", "family"])
def test_the_first_gradient_has_ratio_one(members, make):
    """For a trained policy, normalised, the learner's log-probabilities are those of acting: ratios to 1e-5, KL 0."""
    spec = make(members=members, n_epochs=1, batch_size=64, normalize=True, learning_rate=0.01, tau1=[0.1, 0.02])
    learner = make_learner(spec)
    moved(learner)
    batch = joined(staged(learner, sample(spec, learner)))
    advantages = dense(views(learner.adam.flat, learner.layout), PI, batch.obs, torch.tanh)
    log_p = log_strategy(advantages, batch.strategy).gather(1, batch.action[:, None])[:, 0]
    assert advantages.std() > 0.02
    assert (torch.exp(log_p - batch.log_prob) - 1).abs().max() < 1e-5
    assert abs(learner.finish()["train/approx_kl"]) < 1e-7


def test_member_i_mod_m_acts_in_environment_i(make):
    """Five environments, three members, at half the budget: ids and eps, tau1, tau2 ride in the fragment."""
    spec = make(n_envs=5, members=FAMILY, tau1=0.1, tau2=1.0, batch_size=None)
    learner, made = make_learner(spec), Collector(spec, env_indices=[1, 2, 4])
    learner.begin(1, 500)
    fragment = made.collect(learner.published(), version=2, round=2, n_steps=4)
    made.close()
    assert fragment.arrays["member"].tolist() == [1, 2, 1]
    expected = [[0.25, 0.1, 2.0], [1.0, 0.3, 1.0], [0.25, 0.1, 2.0]]
    np.testing.assert_allclose(fragment.arrays["strategy"], expected, rtol=1e-6)


def test_members_act_by_their_own_probabilities(make):
    """A = log(1, 3): the members' shares of action 1 are 3/4 and 33/40, their log-probabilities the logarithms."""
    members = [{"tau1": 1.0}, {"eps": 0.5, "tau1": 1.0, "tau2": 0.5}]
    actor = make_actor(make(n_envs=2, members=members, batch_size=None))
    outputs = np.log(np.array([[1.0, 3.0], [1.0, 3.0]], np.float32))
    noise = np.random.default_rng(0).gumbel(size=(4000, 2, 2)).astype(np.float32)
    chosen = np.array([actor.choose(outputs, row) for row in noise])
    np.testing.assert_allclose(chosen.mean(axis=0), [0.75, 0.825], atol=0.02)
    log_p = actor.log_prob(np.stack([outputs, outputs]), np.array([[0, 0], [1, 1]]))
    np.testing.assert_allclose(np.exp(log_p), [[0.25, 0.175], [0.75, 0.825]], rtol=1e-6)


def test_outside_of_training_the_first_member_plays_as_published(make):
    """Half of the budget later tau1 is .3: A = (0, .3) gives e/(1 + e); without noise the largest A is taken."""
    spec = make(tau1=[0.4, 0.2], members=[{}, {"tau1": 9.0}])
    learner, actor = make_learner(spec), make_actor(spec)
    learner.begin(1, 500)
    actor.load(learner.published())
    outputs = np.tile(np.array([0.0, 0.3], np.float32), (2000, 1))
    noise = np.random.default_rng(0).gumbel(size=outputs.shape).astype(np.float32)
    assert actor.sample(outputs, noise).mean() == pytest.approx(0.731, abs=0.02)
    assert actor.sample(-outputs[:3], 0 * noise[:3]).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("env", "cut"), [("rl/Cut-v0", True), ("rl/Clock-v0", False)])
@pytest.mark.parametrize("expectation", ["behavior", "target"])
def test_only_time_limits_are_bootstrapped(env, cut, expectation, make):
    """Critic fixed at V = 10, gamma .5, lambda 0, rewards doubled: targets 2 + 5; at the end only if cut."""
    spec = make(
        env, n_envs=1, gamma=0.5, gae_lambda=0.0, n_steps=3, batch_size=None, reward_scale=2.0, expectation=expectation
    )
    learner = make_learner(spec)
    tensors = views(learner.adam.flat, learner.layout)
    tensors["value.weight"].zero_()
    tensors["value.bias"].fill_(10.0)
    samples = staged(learner, sample(spec, learner, n_steps=3))[0]
    last = 7.0 if cut else 2.0
    assert samples.q_target.tolist() == pytest.approx([7.0, 7.0, last])
    assert samples.v_target.tolist() == pytest.approx([7.0, 7.0, last])


@pytest.mark.parametrize("case", ["target", "late", "samples"])
def test_off_policy_samples_get_vtrace_and_retrace(case, make):
    """Judged by member 0, or late by a round: ratios and Q are those of the network now, for the judging member."""
    expectation = "behavior" if case == "late" else case
    spec = make(members=FAMILY, expectation=expectation, tau1=0.1, gae_lambda=0.9, batch_size=None)
    learner = GpfLearner(spec)
    fragment = sample(spec, learner)
    moved(learner)
    found = staged(learner, fragment, round=1 if case == "target" else 2)[1]  # environment 1 is member 1's
    assert found.strategy[0].tolist() == pytest.approx([1.0, 0.1, 1.0] if case == "target" else [0.25, 0.1, 2.0])
    tensors, arrays = views(learner.adam.flat, learner.layout), fragment.arrays
    advantages = dense(tensors, PI, found.obs, torch.tanh).double()
    eps, tau1, tau2 = found.strategy[0].tolist()
    pi = eps * torch.softmax(advantages / tau1, 1) + (1 - eps) * torch.softmax(advantages / tau2, 1)
    ratios = pi.gather(1, found.action[:, None])[:, 0] / found.log_prob.double().exp()
    assert ratios.min() < 0.9
    values = dense(tensors, VF, found.obs, torch.tanh)[:, 0]
    taken = advantages.gather(1, found.action[:, None])[:, 0]
    q = taken - (taken.mean() if case == "samples" else (pi * advantages).sum(1)) + values
    last = torch.from_numpy(arrays["last_obs"][1][None])
    following = np.append(values[1:].numpy(), dense(tensors, VF, last, torch.tanh).numpy())
    rest = ratios.numpy(), arrays["terminated"][:, 1], arrays["truncated"][:, 1]
    rewards, numbers = 0.1 * arrays["reward"][:, 1], {"gamma": 0.99, "gae_lambda": 0.9}
    v_target, _ = vtrace(rewards, values.numpy(), following, *rest, **numbers)
    np.testing.assert_allclose(found.v_target, v_target, atol=1e-4)
    np.testing.assert_allclose(found.q_target, retrace(rewards, following, q.numpy(), *rest, **numbers), atol=1e-4)


def test_the_gradient_reaches_the_advantage_network(make):
    """T1: a round's gradient on the policy tower is not 0, with the exact sum and with 5 fresh actions alike."""
    for n_action_samples in (None, 5):
        spec = make(n_action_samples=n_action_samples)
        learner = GpfLearner(spec)
        batch = joined(staged(learner, sample(spec)))
        learner.gradient(with_expectation(learner, batch, dict.fromkeys(range(4), 16), 0))
        assert learner.adam.grad[: learner.layout.n_policy].abs().max() > 1e-5


def test_fresh_actions_are_drawn_from_the_policy_and_anew_each_epoch(make):
    """2000 states of A = log(1, 3), 5 actions each: action 1's mean share is 3/4; epochs and environments differ."""
    learner = GpfLearner(make(n_action_samples=5))
    rows = Samples(*(torch.zeros(2000, 1) for _ in Samples.__slots__))
    drawn = [with_expectation(learner, rows, {index: 2000}, epoch).fresh for index, epoch in ((0, 0), (0, 1), (1, 0))]
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    log_pi = torch.log(torch.tensor([[0.25, 0.75]])).expand(2000, 2)
    shares = action_shares(log_pi, drawn[0])
    torch.testing.assert_close(shares.sum(1), torch.ones(2000))
    assert shares[:, 1].mean().item() == pytest.approx(0.75, abs=0.015)
    assert shares.std() > 0.1


def test_a_nan_is_refused_and_nothing_changes(make):
    """A NaN in the rewards raises NonFinite with the round; parameters, moments and counters keep their bits."""
    for hyper in ({}, STREAM):
        spec = make(**hyper)
        learner = make_learner(spec)
        fragment = sample(spec)
        fragment.arrays["reward"][3, 1] = np.nan
        learner.begin(7, 64)
        before = bits(learner)
        learner.stage(0, fragment)
        with pytest.raises(NonFinite, match="nan at gradient step 0 of round 7"):
            learner.finish()
        assert bits(learner) == before


@pytest.mark.parametrize("hyper", [{}, STREAM], ids=["epochs", "stream"])
def test_a_round_that_was_broken_off_can_be_finished_again(hyper, make):
    """A callback that raises in the first step undoes the update; finishing again gives the undisturbed bits."""
    spec = make(**hyper)
    fragment, results = sample(spec), []

    def revoke(step: int, of: int) -> None:
        raise KeyboardInterrupt(f"{step} of {of}")

    for disturbed in (False, True):
        learner = make_learner(spec)
        learner.begin(1, 64)
        learner.stage(0, fragment)
        if disturbed:
            with pytest.raises(KeyboardInterrupt, match="1 of"):
                learner.finish(revoke)
        learner.finish()
        results.append(bits(learner))
    assert results[0] == results[1]


def test_staging_twice_and_an_empty_round_are_refused(make):
    """Both name the round."""
    learner, fragment = make_learner(make()), sample(make())
    learner.begin(4, 64)
    with pytest.raises(ValueError, match="round 4 has nothing staged"):
        learner.finish()
    learner.stage(0, fragment)
    with pytest.raises(ValueError, match=r"worker 1 staged environments \[0, 1, 2, 3\] again in round 4"):
        learner.stage(1, fragment)


def test_a_fragment_may_travel_as_read_only_bytes(make):
    """Staging a fragment unpacked from bytes gives the same bits as staging the original."""
    spec, results = make(normalize=True, members=FAMILY), []
    fragment = sample(spec)
    header, buffer = fragment.pack()
    for one in (fragment, Fragment.unpack(header, bytes(buffer))):
        learner = make_learner(spec)
        learner.begin(1, 64)
        learner.stage(0, one)
        learner.finish()
        results.append(bits(learner))
    assert results[0] == results[1]


def test_metrics_are_in_the_glossary_and_schedules_are_read_where_they_hold(make, play):
    """Round 2 of 1000 steps in rounds of 64: tau of acting, .4 - .2 * .064; the rate after collecting, .128 in."""
    spec = make(learning_rate="lin_0.001", tau1=[0.4, 0.2], pg_coef=0.1)
    _, metrics, _ = play(spec)
    assert metrics[1]["train/tau"] == pytest.approx(0.4 - 0.2 * 0.064)
    assert metrics[1]["train/learning_rate"] == pytest.approx(0.001 * (1 - 0.128))
    assert metrics[1]["train/n_updates"] == 4
    assert metrics[1]["train/entropy_loss"] == -metrics[1]["train/entropy"]
    assert {"train/q_loss", "train/tau", "train/q_gap", "train/value_loss", "train/entropy"} <= set(metrics[1])
    assert set(metrics[1]) <= METRICS.keys()


def test_a_round_that_is_begun_again_is_judged_by_the_temperatures_it_was_acted_with(make):
    """Staged a second time after a lost lease: tau is that of the version that acted, .4, both times."""
    spec = make(tau1=[0.4, 0.2], members=[{}, {}], expectation="target")
    learner = make_learner(spec)
    fragment = sample(spec, learner)
    found = [staged(learner, fragment)[1].strategy[0, 0].item() for _ in range(2)]
    assert found == pytest.approx([0.4, 0.4])
    learner.finish()
    assert staged(learner, fragment, round=2)[1].strategy[0, 0].item() == pytest.approx(0.4 - 0.2 * 0.064)


def test_target_kl_ends_the_epochs(make, play):
    """With a tiny target and a large rate fewer than 50 epochs are counted; without, all 50."""
    hyper = {"n_epochs": 50, "learning_rate": 0.05}
    assert play(make(**hyper), rounds=1)[1][0]["train/n_updates"] == 50
    assert play(make(target_kl=1e-6, **hyper), rounds=1)[1][0]["train/n_updates"] < 50


def test_temperatures_may_change_while_training(make, play):
    """Set after round 1: told from round 2 on, acted with from the version after, by actors that know only the spec."""
    spec = make(tau1=0.1, members=[{}, {"tau1": 2.0}])
    learner, metrics, collectors = play(spec, rounds=1)
    learner.set("tau1", 0.5)
    _, later, _ = play(spec, rounds=2, first=2, learner=learner, collectors=collectors)
    assert [row["train/tau"] for row in (*metrics, *later)] == pytest.approx([0.1, 0.5, 0.5])
    fragment = collectors[0].collect(learner.published(), version=4, round=4, n_steps=2)
    assert fragment.arrays["strategy"][:, 1].tolist() == pytest.approx([0.5, 2.0, 0.5, 2.0])
    again = make_learner(spec)
    again.restore(*learner.state())
    assert again.published().tobytes() == learner.published().tobytes()
    with pytest.raises(ConfigError, match="gamma cannot change while training; these can: eps, learning_rate"):
        learner.set("gamma", 0.5)
    with pytest.raises(ConfigError, match="tau1 must be a number > 0"):
        learner.set("tau1", 0)


def test_an_early_collapse_is_told(make, play):
    """T36: at tau 1e-6 the entropy is below .01: a warning and a mark in the first tenth of the budget, none later."""
    with pytest.warns(UserWarning, match="the policy has collapsed; raise tau1"):
        _, metrics, _ = play(make(tau1=1e-6, total_timesteps=1000), rounds=1)
    assert metrics[0]["train/collapsed"] == 1.0
    _, metrics, _ = play(make(tau1=1e-6, total_timesteps=100), rounds=1)
    assert metrics[0]["train/collapsed"] == 0.0
    _, metrics, _ = play(make(), rounds=1)
    assert metrics[0]["train/collapsed"] == 0.0


def test_a_box_of_actions_is_refused(make):
    """GPF needs discrete actions; the message says which algorithm takes others."""
    for build in (make_learner, make_actor):
        with pytest.raises(UnsupportedSpace, match=r"gpf needs discrete actions, .* takes box ones: choose ppo"):
            build(make("Pendulum-v1"))


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"tau1": 0}, "tau1 must be a number > 0, or a path"),
        ({"tau2": [1, 2, 3]}, "tau2 must be a number > 0, or a path"),
        ({"eps": [0.5, 1.5]}, r"eps must be a number from 0 to 1, or a path"),
        ({"tau1": "lin_0.1"}, "tau1 must be a number > 0, or a path"),
        ({"members": []}, "members must be a list of at least one mapping"),
        ({"members": [{"tau": 1}]}, r"members\[0\] takes the keys eps, tau1, tau2, not tau"),
        ({"members": [{}, {"tau1": -1}]}, r"members\[1\]: tau1 must be a number > 0"),
        ({"expectation": "mean"}, "expectation must be one of behavior, target, samples, got 'mean'"),
        ({"n_action_samples": 1}, "n_action_samples must be a whole number >= 5"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1, or none"),
        ({"reward_scale": 0}, "reward_scale must be a number > 0, or none"),
        ({"q_coef": 0}, "q_coef must be a number > 0"),
    ],
)
def test_wrong_settings_are_told(hyper, message):
    """One line says which setting, what it takes, and the value."""
    with pytest.raises(ConfigError, match=message):
        GpfSettings.from_mapping(hyper)


def test_settings_that_do_not_fit_together_are_told():
    """A batch above the round, and more members than environments: both in one error."""
    with pytest.raises(ConfigError) as caught:
        resolve("CartPole-v1", "gpf", overrides={"batch_size": 1000, "members": [{}] * 9}, n_envs=8)
    assert "batch_size must be <= n_steps * n_envs = 32 * 8 = 256, got 1000" in str(caught.value)
    assert "members must be at most n_envs = 8 (member i mod M acts in env i), got 9" in str(caught.value)


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"batch_size": 64}, "batch_size must be None with expectation='samples': .*, got 64"),
        ({"n_steps": 1}, "n_steps must be >= 2 with expectation='samples': .*, got 1"),
        ({"n_action_samples": 5}, "n_action_samples draws fresh actions, .*: leave one of them out"),
    ],
)
def test_what_leaves_no_mean_over_a_sequence_is_told(hyper, message):
    """Minibatches, sequences of one sample, and another kind of mean beside it."""
    given = {"expectation": "samples", "reward_scale": 0.1, **hyper}
    with pytest.raises(ConfigError, match=message):
        resolve("CartPole-v1", "gpf", overrides=given, n_envs=8)


def test_learners_share_means_over_sequences_at_arrival_alone(make):
    """Two learners take whole environments; a minibatch that they shared would cut sequences."""
    for deterministic in (True, False):
        two = {"n_learners": 2, "n_collectors": 2, "deterministic": deterministic}
        streamed = replace(make(**{**SEQUENCES, **STREAM}), **two)
        assert learners_problem(streamed) == ""
        assert learners_problem(replace(make(batch_size=None, n_epochs=2), **two)) == "" or deterministic
        problem = learners_problem(replace(make(**SEQUENCES, n_epochs=2), **two))
        assert problem.endswith("gradients are computed at arrival with n_epochs=1")
        assert learners_problem(streamed, n_epochs=2)


def test_rewards_of_unknown_size_are_warned_about():
    """Neither reward_scale nor norm_reward: temperatures have no unit; each of the two, also 1, silences it."""
    with pytest.warns(UserWarning, match="neither reward_scale nor norm_reward is set"):
        resolve("MountainCar-v0", "gpf")
    resolve("MountainCar-v0", "gpf", overrides={"reward_scale": 1})
    resolve("MountainCar-v0", "gpf", overrides={"normalize": {"norm_obs": False, "norm_reward": True}})
    with pytest.warns(UserWarning, match="neither reward_scale nor norm_reward is set"):
        resolve("MountainCar-v0", "gpf", overrides={"normalize": {"norm_reward": False}})


def test_settings_survive_a_journey_as_plain_data(make):
    """Defaults hold paths as lists, so a spec equals itself after JSON."""
    spec = make(**GpfSettings().to_plain())
    assert RlWork.from_plain(spec.to_plain()) == spec
