"""What is assigned to a model counts, or is refused in one line that names the way; nothing is ignored."""

import numpy as np
import pytest

import drlnb
from drlnb.fleet.callbacks.base import BaseCallback
from drlnb.fleet.policies.policy import KINDS, Model
from drlnb.records.errors import ConfigError, LayoutMismatch

SMALL = {"n_steps": 16, "batch_size": 32, "n_epochs": 2, "n_envs": 4, "seed": 3, "policy_kwargs": {"net_arch": [8]}}


def small(**given):
    return drlnb.PPO("MlpPolicy", "CartPole-v1", **{**SMALL, **given})


class Sets(BaseCallback):
    """Sets an attribute of the model at the end of the first round."""

    def __init__(self, name, value):
        super().__init__()
        self.name, self.value, self.seen = name, value, []

    def on_round_end(self, metrics):
        if not self.seen:
            setattr(self.model, self.name, self.value)
        self.seen.append(self.model.parameters.copy())


def test_settings_are_attributes():
    """Each setting is read under its name (but for the policy, which is the module); what is none is no attribute."""
    model = small(gamma=0.9)
    assert (model.gamma, model.n_steps, model.seed, model.n_envs) == (0.9, 16, 3, 4)
    assert all(np.all(getattr(model, name) == value) for name, value in model.settings.items() if name != "policy")
    with pytest.raises(AttributeError, match="'PPO' object has no attribute 'gama'"):
        model.gama  # noqa: B018 - reading it is the test


def test_a_rate_of_zero_between_two_budgets_leaves_the_parameters():
    """Adam's steps are as long as its rate: after 0 not a bit is another one, after a number they are."""
    model = small().learn(64, local=True)
    before, model.learning_rate = model.parameters.copy(), 0.0
    assert np.array_equal(model.learn(128, local=True).parameters, before)
    model.learning_rate = "lin_0.01"
    assert not np.array_equal(model.learn(128, local=True).parameters, before)


@pytest.mark.parametrize(
    ("name", "value"), [("gamma", 0.5), ("n_epochs", 1), ("clip_range", lambda left: 0.1 * left), ("n_steps", 32)]
)
def test_a_setting_between_two_budgets_counts(tmp_path, name, value):
    """The second budget is that of the model which was loaded with this setting, and not that of the one without."""
    model = small().learn(64, local=True)
    path = model.save(tmp_path / "m")
    plain = drlnb.PPO.load(path).learn(64, local=True)
    setattr(model, name, value)
    model.learn(64, local=True)
    loaded = drlnb.PPO.load(path, **{name: value}).learn(64, local=True)
    assert not np.array_equal(model.parameters, plain.parameters)
    assert np.array_equal(model.parameters, loaded.parameters)


def test_settings_before_the_first_budget_are_those_of_the_constructor():
    """Seed, environments and networks too, whether the model has acted or not."""
    model = small(seed=4)
    model.predict(np.zeros(4, np.float32))
    model.seed, model.n_envs, model.gamma = 3, 2, 0.9
    assert np.array_equal(model.parameters, small(n_envs=2, gamma=0.9).parameters)
    assert np.array_equal(
        model.learn(32, local=True).parameters, small(n_envs=2, gamma=0.9).learn(32, local=True).parameters
    )


def test_a_setting_that_can_change_while_the_model_trains_may_be_set_by_a_callback():
    """A rate of 0 from the second round on: its parameters are those of the first; it is read, saved, and replaced."""
    callback = Sets("learning_rate", 0.0)
    model = small().learn(192, callback, local=True)
    assert [np.array_equal(seen, callback.seen[0]) for seen in callback.seen] == [True, True, True]
    assert (model.learning_rate, model.settings["learning_rate"]) == (0.0, 0.0)
    model.learning_rate = 0.01
    assert not np.array_equal(model.learn(64, local=True).parameters, callback.seen[0])


def test_a_setting_given_at_load_wins_over_one_that_changed_while_the_model_trained(tmp_path):
    """The file holds both; what the caller says last counts."""
    path = small().learn(128, Sets("learning_rate", 0.01), local=True).save(tmp_path / "m")
    model = drlnb.PPO.load(path, learning_rate=0.0)
    before = model.parameters.copy()
    assert np.array_equal(model.learn(64, local=True).parameters, before)


@pytest.mark.parametrize(
    ("name", "value", "error", "said"),
    [
        ("gama", 0.5, AttributeError, "PPO has no attribute 'gama'; did you mean 'gamma'?"),
        ("learning_rates", 0.5, AttributeError, "did you mean 'learning_rate'?"),
        ("xyz", 1, AttributeError, "it would have no effect"),
        ("_n_updates", 0, AttributeError, "train/n_updates is among the metrics"),
        ("num_timesteps", 0, AttributeError, "reset_num_timesteps"),
        ("env", "CartPole-v1", AttributeError, r"set_env\(env\) goes on elsewhere"),
        ("device", "gpu", ConfigError, "device must be auto, cpu, cuda or cuda:K, got 'gpu'"),
        ("train", print, AttributeError, "train of a PPO cannot be assigned: learn"),
        ("learn", print, AttributeError, "learn of a PPO cannot be assigned$"),
        ("settings", {}, AttributeError, "model.gamma = .5"),
        ("gamma", 2, ConfigError, r"gamma must be a number from 0 to 1, got 2"),
        ("batch_size", 65, ConfigError, r"batch_size must be <= n_steps \* n_envs = 16 \* 4 = 64, got 65"),
        ("n_collectors", 5, ConfigError, "n_collectors must be <= n_envs = 4, got 5"),
        ("n_learners", 0, ConfigError, r"n_learners must be a whole number in 1\.\.64, got 0"),
        ("n_learners", 2, ConfigError, "n_learners must be 1 for ppo here, got 2: .*n_epochs"),
        ("policy_kwargs", {"net_arch": [9]}, LayoutMismatch, "pi.0"),
        ("policy_kwargs", {"net_arc": [8]}, ConfigError, "net_arc"),
    ],
)
def test_what_would_have_no_effect_is_refused(name, value, error, said):
    """In one line; the model is as it was."""
    model = small()
    before = model.spec
    with pytest.raises(error, match=said) as refused:
        setattr(model, name, value)
    assert len(str(refused.value).splitlines()) == 1
    assert model.spec is before


def test_a_setting_that_cannot_change_while_the_model_trains_is_refused_to_a_callback():
    """With those that can; the training ends with that error."""
    with pytest.raises(ConfigError, match=r"rl.gamma cannot change in a running task.*rl.learning_rate"):
        small().learn(128, Sets("gamma", 0.5), local=True)


def test_settings_of_a_ring_stay(tmp_path):
    """A ring that has been filled keeps its size and its environments; a model that has none may change both."""
    given = {"learning_starts": 8, "batch_size": 8, "train_freq": 8, "n_envs": 2, "buffer_size": 100}
    model = drlnb.DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, **given)
    model.buffer_size = 64
    model.learn(32, local=True)
    for name in ("buffer_size", "n_envs"):
        with pytest.raises(ConfigError, match=f"{name}.*DQN.load"):
            setattr(model, name, 32)
    model.save(tmp_path / "m")
    again = drlnb.DQN.load(tmp_path / "m", buffer_size=32, n_envs=4)
    assert again.learn(32, reset_num_timesteps=False, local=True).num_timesteps == 64


@pytest.mark.parametrize("n_envs", [2, 8])
def test_other_environments_begin_new_episodes(n_envs):
    """A model that has learnt may be given more of them, or fewer, and goes on."""
    model = small().learn(64, local=True)
    model.n_envs = n_envs
    assert model.learn(16 * n_envs, reset_num_timesteps=False, local=True).num_timesteps == 64 + 16 * n_envs


def test_a_model_of_a_subclass_has_the_attributes_that_the_class_names():
    """Its author's own are theirs; others are refused there, too."""

    class Mine(drlnb.PPO):
        tag = ""
        notes: list[str]

    model = Mine("MlpPolicy", "CartPole-v1", **SMALL)
    model.tag, model.notes = "a", ["b"]
    assert (model.tag, model.notes) == ("a", ["b"])
    with pytest.raises(AttributeError, match="Mine has no attribute 'gama'"):
        model.gama = 1
    assert KINDS["ppo"] is drlnb.PPO


def test_the_model_of_a_run_that_trains_elsewhere_names_the_way():
    """A callback that listens to a run has a model that tells of the task alone: the run changes settings."""
    with pytest.raises(AttributeError, match=r"run.set\('rl.gamma', value\)"):
        Model(small().spec).gamma = 0.5


def test_a_seed_that_is_drawn_follows_numpys_global_one():
    """`set_random_seed(0)` of Stable-Baselines3 seeds numpy's: the models after it are the same each time."""
    seeds = []
    for first in (0, 0, 1):
        np.random.seed(first)  # noqa: NPY002 - what scripts do
        seeds.append((small(seed=None).seed, small(seed=None).seed))
    assert seeds[0] == seeds[1] != seeds[2]
    assert seeds[0][0] != seeds[0][1]


def test_a_model_may_be_given_another_seed():
    """By Stable-Baselines3's method; None leaves it."""
    model = small()
    model.set_random_seed(9)
    model.set_random_seed()
    assert model.seed == 9
    assert np.array_equal(model.parameters, small(seed=9).parameters)


@pytest.mark.parametrize(
    ("name", "said"),
    [("total_timesteps", r"Task\(..., total_timesteps=...\)"), ("gamma", "gamma=..."), ("name", "name=")],
)
def test_a_task_is_made_once(name, said):
    """What is assigned to a task would not be in its spec."""
    with pytest.raises(AttributeError, match=said):
        setattr(drlnb.Task("CartPole-v1"), name, 3)


def gang(**given):
    """Return a model whose gradients are computed as experience arrives."""
    counts = {"n_envs": 4, "n_collectors": 2, "n_learners": 2, "seed": 3}
    settings = {"n_steps": 16, "batch_size": 64, "n_epochs": 1, "reward_scale": 1.0}
    return drlnb.GPF("MlpPolicy", "CartPole-v1", **{**settings, **counts, **given})


def test_learners_are_an_argument_and_an_attribute(tmp_path):
    """As of a task: they come with as many collectors, are kept in a file, and may be fewer from then on."""
    assert gang(n_learners=3, n_collectors=None).n_collectors == 3
    model = gang()
    assert (model.n_learners, model.n_collectors, model.spec.n_learners) == (2, 2, 2)
    path = model.save(tmp_path / "m")
    again = drlnb.GPF.load(path)
    assert again.n_learners == 2
    again.n_learners = 1
    assert again.spec.n_learners == 1
    assert drlnb.GPF.load(path, n_learners=1, n_epochs=2).n_learners == 1


def test_learners_of_epochs_are_had_as_their_refusal_says(tmp_path):
    """Of every class that takes learners, at load, and by what is assigned; bits of one are had again without them."""
    counts = {"n_envs": 2, "n_collectors": 2, "n_learners": 2, "n_steps": 16, "batch_size": 8, "seed": 3}
    for kind in (drlnb.PPO, drlnb.GPF):
        more = {"reward_scale": 1.0} if kind is drlnb.GPF else {}
        with pytest.raises(ConfigError, match="or deterministic=False"):
            kind("MlpPolicy", "CartPole-v1", **counts, **more)
        model = kind("MlpPolicy", "CartPole-v1", deterministic=False, **counts, **more)
        assert (model.deterministic, model.spec.deterministic, model.spec.n_learners) == (False, False, 2)
    path = drlnb.PPO("MlpPolicy", "CartPole-v1", **{**counts, "n_learners": 1}).save(tmp_path / "m")
    assert drlnb.PPO.load(path, n_learners=2, deterministic=False).n_learners == 2
    again = drlnb.PPO.load(path)
    again.deterministic = False
    again.n_learners = 2
    with pytest.raises(ConfigError, match="n_learners must be 1 for ppo here, got 2"):
        again.deterministic = True


def test_learners_do_not_change_bits_in_this_process():
    """All of a round is computed here, with the parameters of one learner."""
    two, one = gang().learn(192, local=True), gang(n_learners=1).learn(192, local=True)
    assert np.array_equal(two.parameters, one.parameters)
    assert not np.array_equal(two.parameters, gang().parameters), "it has learnt"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_learners": 65}, r"n_learners must be a whole number in 1\.\.64, got 65"),
        ({"n_learners": 3}, "n_learners must be <= n_collectors = 2, got 3: .*it needs n_collectors=3$"),
        ({"n_learners": True}, "n_learners must be a whole number"),
        ({"n_epochs": 2}, "n_learners must be 1 for gpf here, got 2: .*n_epochs"),
    ],
)
def test_learners_that_cannot_be_are_refused(given, said):
    """By the constructor, by what is assigned, and by what is given at load; in one line."""
    (name, value), *_ = given.items()
    for refused in (lambda: gang(**given), lambda: setattr(gang(), name, value)):
        with pytest.raises(ConfigError, match=said) as told:
            refused()
        assert len(str(told.value).splitlines()) == 1


def test_an_update_of_epochs_that_came_while_it_trained_is_not_shared_out():
    """The model's settings say 1 epoch, what a callback set says 2, and that goes on: its learners stay one."""
    model = gang(n_learners=1).learn(128, Sets("n_epochs", 2), local=True)
    with pytest.raises(ConfigError, match=r"n_learners must be 1 for gpf here, got 2: .*n_epochs"):
        model.n_learners = 2
    assert model.n_learners == 1
    model.n_epochs = 1
    model.n_learners = 2
    assert model.n_learners == 2
