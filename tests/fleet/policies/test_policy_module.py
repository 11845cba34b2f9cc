"""A model's policy is one module: what is changed in it counts, and it shows what the model learns."""

import copy
import gc
import pickle

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import drlnb
from drlnb.records.errors import ConfigError
from drlnb.rl.algorithms.gpf_actor import log_strategy, unpack_family
from tests.fleet.compatibility.worlds import NET, ROUND, Anything, Pictures, dqn, ppo

FOUR = Box(-1.0, 1.0, (4,), np.float32)
#: A step of this size changes nothing that is looked at.
STILL = 1e-12


def gpf(**given):
    return drlnb.GPF("MlpPolicy", "CartPole-v1", **{**ROUND, "reward_scale": 1.0, **given})


def fill(policy, value=1.0):
    for parameter in policy.parameters():
        parameter.data.fill_(value)


def values(model):
    """Every number of a model's parameters."""
    return torch.cat([tensor.ravel() for tensor in model.get_parameters()["policy"].values()])


def by_vector(policy):
    vector_to_parameters(torch.ones_like(parameters_to_vector(policy.parameters())), policy.parameters())


def by_optimizer(policy):
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    sum(((parameter - 1.0) ** 2 / 2).sum() for parameter in policy.parameters()).backward()
    optimizer.step()


def by_new_parameters(policy):
    for module in list(policy.modules()):
        for name, parameter in list(module._parameters.items()):
            setattr(module, name, torch.nn.Parameter(torch.ones_like(parameter)))


WAYS = {
    "in place": fill,
    "a dictionary": lambda policy: policy.load_state_dict({
        name: torch.ones_like(tensor) for name, tensor in policy.state_dict().items()
    }),
    "a vector": by_vector,
    "an optimizer": by_optimizer,
    "new parameters": by_new_parameters,
}


# -------------------------------------------------------------------- what is changed counts
@pytest.mark.parametrize("way", WAYS)
def test_what_is_changed_counts_at_once(tmp_path, way):
    """In what the model holds, predicts, saves and copies."""
    model = ppo("Pendulum-v1")
    policy = model.policy
    assert model.policy is policy
    WAYS[way](policy)
    obs = np.full((1, 3), 0.1, np.float32)
    hidden = 8 * np.tanh(1.3) + 1.0
    assert model.policy is policy
    assert (values(model) - 1.0).abs().max() < 1e-6
    assert policy.predict(obs, deterministic=True)[0] == model.predict(obs, deterministic=True)[0] == min(hidden, 2.0)
    loaded = drlnb.PPO.load(model.save(tmp_path / "m"))
    for other in (loaded, copy.deepcopy(model)):
        assert torch.equal(values(other), values(model))
        assert other.policy is not policy


@pytest.mark.parametrize("make", [ppo, dqn, gpf], ids=["ppo", "dqn", "gpf"])
@pytest.mark.parametrize("before", [0, 64])
def test_learning_goes_on_from_what_was_changed(make, before):
    """A model that has learnt nothing yet, too; the module shows the outcome."""
    model = make(learning_rate=STILL)
    policy = model.policy
    if before:
        model.learn(before, local=True)
    fill(policy, 0.5)
    model.learn(64, local=True)
    assert (values(model) - 0.5).abs().max() < 1e-6
    assert model.policy is policy
    assert torch.equal(parameters_to_vector(policy.parameters()).sort().values, values(model).sort().values)


def test_what_is_set_is_learnt_on_from(tmp_path):
    """By `set_parameters` or in the policy, before the first round, and after a file; settings may change meanwhile."""
    model = ppo(learning_rate=STILL)
    model.set_parameters({name: torch.full_like(tensor, 0.25) for name, tensor in model.policy.state_dict().items()})
    model.gamma = 0.5
    for each in (drlnb.PPO.load(model.save(tmp_path / "m")), model):
        assert (values(each.learn(32, local=True)) - 0.25).abs().max() < 1e-6
    untouched = ppo()
    assert untouched.policy.value_net.weight.shape == (1, 8)
    assert np.array_equal(untouched.learn(32, local=True).parameters, ppo().learn(32, local=True).parameters)


def test_a_ring_that_is_loaded_first_is_learnt_from(tmp_path):
    """By a model that has made no step: its first rows are there."""
    ring = dqn().learn(40, local=True)
    ring.save_replay_buffer(tmp_path / "ring")
    other = dqn(learning_starts=0)
    other.load_replay_buffer(tmp_path / "ring")
    other.learn(8, local=True)
    assert other.trained.replay.arrays["put"].tolist() == [48]


def test_what_was_cloned_is_learnt_on_from():
    """Behaviour is cloned by an optimizer of one's own or by the policy's; the model then prefers it, and learns on."""
    for own in (True, False):
        model = ppo(policy_kwargs={"net_arch": [16]}, learning_rate=1e-5 if own else 0.03)
        policy, obs = model.policy, torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        expert = (obs[:, 0] > 0).long()
        optimizer = torch.optim.Adam(policy.parameters(), lr=0.03) if own else policy.optimizer
        for _ in range(30):
            _, log_prob, entropy = policy.evaluate_actions(obs, expert)
            optimizer.zero_grad()
            (-log_prob.mean() - 1e-3 * entropy.mean()).backward()
            optimizer.step()
        assert (model.predict(obs.numpy(), deterministic=True)[0] == expert.numpy()).mean() > 0.9
        model.learning_rate = 1e-5
        model.learn(32, local=True)
        assert (model.predict(obs.numpy(), deterministic=True)[0] == expert.numpy()).mean() > 0.9


def test_a_part_is_loaded_by_name():
    """As evolution scripts do; the rest stays. What the model has not is told by torch."""
    model = ppo()
    head = {name: tensor + 1 for name, tensor in model.policy.state_dict().items() if "action" in name}
    before = model.get_parameters()["policy"]
    model.policy.load_state_dict(head, strict=False)
    after = model.get_parameters()["policy"]
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"action.weight", "action.bias"}
    with pytest.raises(RuntimeError, match=r"size mismatch for action\.bias"):
        model.policy.load_state_dict({"action.bias": torch.zeros(3)}, strict=False)


def test_another_shape_is_told():
    """And the policy is as it was."""
    model = ppo()
    model.policy.action_net.bias.data = torch.zeros(5)
    with pytest.raises(ConfigError, match=r"parameter action.bias must have the shape \(2,\), got \(5,\)"):
        model.predict(np.zeros(4, np.float32))


def test_observations_come_in_batches():
    """One alone is told; `obs_to_tensor` makes a batch of it."""
    policy = ppo().policy
    with pytest.raises(ValueError, match=r"a policy takes observations \(B, 4\), got \(4,\); obs_to_tensor makes them"):
        policy(torch.zeros(4))
    assert policy(policy.obs_to_tensor(np.zeros(4, np.float32))[0])[0].shape == (1,)


def test_a_model_that_has_predicted_is_pickled():
    """With its policy's parameters."""
    model = ppo()
    fill(model.policy)
    model.predict(np.zeros(4, np.float32))
    again = pickle.loads(pickle.dumps(model))
    assert (values(again) == 1.0).all()
    assert again.predict(np.zeros(4, np.float32), deterministic=True)[0] == 0


def test_action_values_predict_as_their_policy():
    """And are saved as it."""
    model = dqn()
    obs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    found = model.q_net.predict(obs, deterministic=True)[0]
    np.testing.assert_array_equal(found, model.predict(obs, deterministic=True)[0])
    np.testing.assert_array_equal(found, model.q_net(torch.from_numpy(obs)).argmax(1))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = model.q_net.nothing


def test_a_dqns_target_follows_what_is_changed():
    """As `set_parameters` has it."""
    model = dqn()
    fill(model.q_net, 0.5)
    rows = model.trained.state.buffer[: 16 * model.policy.layout.n_total].view(np.float32).reshape(4, -1)
    assert (rows[3] == rows[0]).all()
    assert set(rows[0].tolist()) <= {0.0, 0.5}


# -------------------------------------------------------------------- while it learns
class Looks(drlnb.BaseCallback):
    """Compares what the policy shows with what the model acts with, and changes a tensor in it once."""

    def __init__(self, when):
        super().__init__()
        self.when, self.seen, self.changed = when, [], False

    def change(self, when):
        if self.when == when and not self.changed:
            self.changed = True
            self.model.policy.log_std.data.fill_(-3.0)
            assert self.model.get_parameters()["policy"]["log_std"] == -3.0

    def _on_training_start(self):
        self.change("start")

    def _on_step(self):
        self.change("step")

    def on_round_end(self, metrics):
        policy = self.model.policy
        actor = self.model.predict(np.ones(3, np.float32), deterministic=True)[0]
        assert policy.greedy(torch.ones(1, 3))[0].detach().numpy() == pytest.approx(actor, abs=1e-5)
        self.seen.append(policy.log_std.item())
        self.change("round")

    def _on_training_end(self):
        self.change("end")


@pytest.mark.parametrize("when", ["start", "step", "round", "end"])
def test_what_a_callback_changes_is_learnt_on_from(when):
    """Before the first round, in a round, after one and at the end."""
    model = ppo("Pendulum-v1", learning_rate=STILL)
    policy = model.policy
    looks = Looks(when)
    model.learn(48, looks, local=True)
    assert looks.changed
    wanted = {"round": [0.0, -3.0, -3.0], "end": [0.0] * 3}.get(when, [-3.0] * 3)
    assert looks.seen == pytest.approx(wanted, abs=1e-6)
    assert model.get_parameters()["policy"]["log_std"].item() == policy.log_std.item() == pytest.approx(-3.0, abs=1e-6)


def test_what_learns_is_shown_after_each_round():
    """To a module that was taken before."""
    model, seen = ppo(learning_rate=0.01), []
    policy = model.policy
    model.learn(64, lambda *_: seen.append(policy.value_net.weight.sum().item()), local=True)
    assert len(set(seen)) >= 3
    assert policy.optimizer.param_groups[0]["lr"] == 0.01


# -------------------------------------------------------------------- what cannot be
def test_a_frozen_parameter_is_told_when_learning_begins():
    """It would be trained all the same; one that its network froze is not."""
    model = ppo()
    policy = model.policy
    policy.action_net.weight.requires_grad = False
    with pytest.raises(
        ConfigError, match=r"action.weight of model.policy is frozen, and would be trained all the same"
    ):
        model.learn(16, local=True)
    policy.requires_grad_(True)
    assert model.learn(16, local=True).num_timesteps == 16


class Own(torch.nn.Module):
    """A network of its author's, a part of it frozen."""

    def __init__(self, observation_space, action_space, **kwargs):
        super().__init__()
        self.trunk, self.a, self.v = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2), torch.nn.Linear(8, 1)
        self.trunk.requires_grad_(False)

    def actor(self, obs):
        return self.a(self.trunk(obs))

    def critic(self, obs):
        return self.v(self.trunk(obs))[:, 0]


def test_a_network_of_its_authors_is_a_policy():
    """Under `net`; it has no parts of ours, and what it froze stays."""
    model = ppo(policy=Own)
    policy, obs = model.policy, torch.randn(5, 4)
    trunk = policy.net.trunk.weight.clone()
    assert policy.predict_values(obs).shape == (5, 1)
    model.learn(32, local=True)
    assert torch.equal(policy.net.trunk.weight, trunk)
    with pytest.raises(AttributeError, match="this policy has no action_net: its network is a module of its author's"):
        _ = policy.action_net


def test_what_a_policy_has_not_is_told():
    """In a line with the way; nothing is put in its place without effect."""
    policy = ppo().policy
    for name in ("reset_noise", "net_arch", "action_dist", "q_net_target", "lr_schedule"):
        with pytest.raises(AttributeError, match=rf"a policy has no {name} here: \w+"):
            getattr(policy, name)
    with pytest.raises(AttributeError, match="this policy has no value_net: a DQN has action values, q_net"):
        _ = dqn().policy.value_net
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = policy.nothing
    for name in ("action_net", "optimizer", "mlp_extractor"):
        with pytest.raises(AttributeError, match=f"{name} of a policy cannot be replaced"):
            setattr(policy, name, torch.nn.Linear(8, 2))
    policy, obs = dqn().policy, torch.zeros(2, 4)
    for ask in (policy.get_distribution, policy.predict_values, lambda obs: policy.evaluate_actions(obs, obs)):
        with pytest.raises(AttributeError, match=r"a DQN has no \w+: its action values are q_net\(obs\)"):
            ask(obs)


def test_another_seed_is_shown():
    """Of a model that has learnt nothing; what was changed before stays, whatever the seed is."""
    model = ppo()
    policy = model.policy
    model.seed = 5
    assert model.policy is policy
    assert torch.equal(policy.action_net.weight, ppo(seed=5).policy.action_net.weight)
    fill(policy)
    model.seed = 6
    assert (values(model) == 1.0).all()


# -------------------------------------------------------------------- what it answers
def test_what_is_answered_has_their_shapes():
    """Actions, values and log-probabilities; modes for training and evaluation; the device, spaces and rate."""
    model = ppo("Pendulum-v1", learning_rate=0.002)
    policy = model.policy
    obs, batch = policy.obs_to_tensor(np.zeros(3, np.float32))
    assert (obs.shape, batch, policy.obs_to_tensor(np.zeros((2, 3), np.float32))[1]) == ((1, 3), False, True)
    with torch.no_grad():
        actions, worth, log_prob = policy(obs)
    assert (actions.shape, worth.shape, log_prob.shape) == ((1, 1), (1, 1), (1,))
    assert not policy.training
    policy.set_training_mode(True)
    assert policy.training
    assert policy.optimizer.param_groups[0]["lr"] == 0.002
    assert (policy.observation_space, policy.action_space) == (model.observation_space, model.action_space)
    assert policy.mlp_extractor(policy.extract_features(obs))[0].shape == (1, 8)
    assert policy.action_net(policy.mlp_extractor.forward_actor(obs)).shape == (1, 1)
    assert policy.log_std.shape == (1,)
    assert dqn().policy(torch.zeros(2, 4)).shape == (2,)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_distribution_is_of_what_is_predicted(env):
    """What it judges is what `evaluate_actions` says; its mode is what `predict` cuts to bounds."""
    model = ppo(env)
    obs = torch.randn(12, *model.observation_space.shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        actions, _, log_prob = model.policy(obs)
        known = model.policy.get_distribution(obs)
        values, judged, entropy = model.policy.evaluate_actions(obs, actions)
    for found in (judged, known.log_prob(actions)):
        torch.testing.assert_close(found, log_prob)
    torch.testing.assert_close(known.entropy(), entropy)
    assert (values.shape, entropy.shape) == ((12, 1), (12,))
    np.testing.assert_allclose(known.mode().numpy(), model.predict(obs.numpy(), deterministic=True)[0], atol=1e-5)


def test_values_are_those_of_the_whole_answer():
    """And of `evaluate_actions`."""
    policy, obs = ppo().policy, torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
    actions, values, _ = policy(obs)
    for found in (policy.predict_values(obs), policy.evaluate_actions(obs, actions)[0]):
        torch.testing.assert_close(found, values)
    assert values.std() > 0


def played(policy, seed):
    """Play an episode as scripts do; return what it paid."""
    env, total, ended = gymnasium.make("CartPole-v1"), 0.0, False
    obs, _ = env.reset(seed=seed)
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(policy.predict(obs, deterministic=True)[0])
        total, ended = total + reward, terminated or truncated
    return total


def test_a_policy_is_evaluated_as_its_model():
    """Alone as well; our own evaluation takes it, too."""
    model = ppo().learn(256, local=True)
    alone = pickle.loads(pickle.dumps(model.policy))
    assert [played(each, 3) for each in (model, model.policy, alone)] == [played(model, 3)] * 3
    ours = [
        drlnb.rl.evaluate(each, "CartPole-v1", n_episodes=3, seed=1).returns for each in (model, model.policy, alone)
    ]
    assert ours == [ours[0]] * 3


def test_masks_forbid():
    """Choices without probability are never drawn, and cost no entropy."""
    model = ppo(lambda: Masked(FOUR, MultiDiscrete([2, 3])), use_masking=True)
    obs, masks = torch.zeros(200, 4), np.array([True, False, True, True, False])
    known = model.policy.get_distribution(obs, np.tile(masks, (200, 1)))
    drawn = known.get_actions()
    assert set(drawn[:, 0].tolist()) == {0}
    assert set(drawn[:, 1].tolist()) == {0, 1}
    assert known.entropy()[0].item() == pytest.approx(np.log(2), abs=0.1)
    assert model.policy(obs, action_masks=np.tile(masks, (200, 1)))[0][:, 0].max() == 0


class Masked(Anything):
    def action_masks(self):
        return np.array([True, False, True, True, False])


def test_choices_count_from_where_the_environment_does():
    """In actions, and in what is judged."""
    model = ppo(lambda: Anything(FOUR, Discrete(3, start=-1)))
    obs = torch.zeros(300, 4)
    actions, _, log_prob = model.policy(obs)
    assert set(actions.tolist()) == {-1, 0, 1}
    torch.testing.assert_close(model.policy.evaluate_actions(obs, actions)[1], log_prob)
    assert model.policy(obs, deterministic=True)[0][0] == model.predict(np.zeros(4, np.float32), deterministic=True)[0]


def test_the_family_plays_its_first_member():
    """The probabilities of GPF's actor."""
    model = gpf(eps=0.3, tau1=0.5, tau2=2.0).learn(32, local=True)
    obs = torch.randn(20, 4, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        found = model.policy.get_distribution(obs).distribution.logits.numpy()
    model.predict(obs.numpy())
    member = unpack_family(model.parameters, model._actor._settings)[:1]
    wanted = log_strategy(model._actor.forward(obs.numpy()), np.repeat(member, 20, 0))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


KEYED = Dict({"a": FOUR, "b": Discrete(3)})
SEEN = Dict({"image": Box(0, 255, (36, 36, 3), np.uint8), "a": FOUR})


@pytest.mark.parametrize("space", [KEYED, SEEN, Discrete(4)], ids=["numbers", "images", "choices"])
@pytest.mark.parametrize("normalize", [False, True])
def test_observations_are_taken_as_the_environment_shows_them(space, normalize):
    """By key or as numbers of choices; normalised as in `predict`; the most likely actions are the model's."""
    more = {"policy_kwargs": {"features_extractor_kwargs": {"cnn_output_dim": 8}}} if space is SEEN else {}
    kind = "MlpPolicy" if isinstance(space, Discrete) else "MultiInputPolicy"
    model = ppo(lambda: Anything(space, Box(-1.0, 1.0, (2,), np.float32)), kind, normalize=normalize, **more)
    model.learn(16, local=True)
    fill(model.policy, 0.01)
    raw = [space.sample() for _ in range(6)]
    obs = {key: np.stack([each[key] for each in raw]) for key in space} if isinstance(space, Dict) else np.array(raw)
    seen, batch = model.policy.obs_to_tensor(obs)
    assert batch
    with torch.no_grad():
        found = model.policy.greedy(seen).numpy()
    np.testing.assert_allclose(found, model.predict(obs, deterministic=True)[0], atol=1e-5)


def test_features_of_pictures_are_the_extractors():
    """Of raw pictures; SB3's parts are there under its names, those of the value too."""
    kwargs = {"features_extractor_kwargs": {"features_dim": 8}, "share_features_extractor": False, "net_arch": [4]}
    policy = ppo(Pictures, "CnnPolicy", policy_kwargs=kwargs).policy
    obs, _ = policy.obs_to_tensor(policy.observation_space.sample())
    features = policy.extract_features(obs)
    assert features.shape == (1, 8)
    assert policy.vf_features_extractor is not policy.features_extractor
    latent = policy.mlp_extractor.forward_actor(features)
    torch.testing.assert_close(
        policy.action_net(latent), policy.get_distribution(obs).distribution.logits, atol=10, rtol=1
    )
    assert policy.value_net(policy.mlp_extractor.forward_critic(features)).shape == (1, 1)


# -------------------------------------------------------------------- alone
def test_a_policy_outlives_its_model():
    """Its model gone, it predicts by itself; a copy is its own."""
    policy = ppo().policy
    gc.collect()
    fill(policy)
    twin = copy.deepcopy(policy)
    fill(twin, -1.0)
    assert policy.predict(np.ones(4, np.float32), deterministic=True)[0] == 0
    assert next(policy.parameters()).mean() == 1.0
    again = pickle.loads(pickle.dumps(twin))
    assert next(again.parameters()).mean() == -1.0
    assert twin.optimizer.param_groups[0]["lr"] == 3e-4


def test_who_draws_does_not_matter():
    """Samples of the policy and of the model are one stream, the same as without a policy."""
    plain, touched = ppo(**NET), ppo(**NET)
    obs = np.zeros((20, 4), np.float32)
    wanted = [plain.predict(obs)[0].tolist() for _ in range(4)]
    found = [touched.predict(obs)[0].tolist()]
    found += [each.predict(obs)[0].tolist() for each in (touched.policy, touched, touched.policy)]
    assert found == wanted


def test_action_values_are_a_dqns():
    """A PPO's policy says what it has instead."""
    with pytest.raises(AttributeError, match=r"no q_net here: it is a DQN's, get_distribution\(obs\) has"):
        _ = drlnb.PPO("MlpPolicy", "CartPole-v1").policy.q_net
