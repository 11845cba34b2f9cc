"""One training task as plain data."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.records.spec import ALGORITHMS, RlWork, read_work


def spec(**changes):
    return RlWork(**{"name": "cart", "env": "CartPole-v1", "total_timesteps": 100, "n_envs": 4} | changes)


def test_defaults():
    """One collector, seed 0, PPO."""
    task = spec()
    assert (task.algo, task.seed, task.n_collectors, task.group, dict(task.hyperparameters)) == ("ppo", 0, 1, None, {})
    assert ALGORITHMS == ("ppo", "gpf", "dqn")


@pytest.mark.parametrize(
    ("field", "value", "range"),
    [
        ("total_timesteps", 0, "1..1000000000000000"),
        ("n_envs", 0, "1..100000"),
        ("n_collectors", 0, "1..1000"),
        ("n_learners", 0, "1..64"),
        ("n_learners", 65, "1..64"),
        ("n_learners", True, "1..64"),
        ("seed", -1, "0..4294967295"),
        ("n_envs", 2.0, "1..100000"),
        ("seed", True, "0..4294967295"),
        ("n_envs", 100_001, "1..100000"),
        ("total_timesteps", 2**70, "1..1000000000000000"),
    ],
)
def test_counts_have_limits(field, value, range):
    """The message names field, range and value."""
    with pytest.raises(ValueError, match=f"{field} must be a whole number in {range}, got {value}"):
        spec(**{field: value})


def test_every_collector_has_an_environment():
    """More collectors than environments make no sense."""
    with pytest.raises(ValueError, match="n_collectors must be <= n_envs = 4, got 5"):
        spec(n_collectors=5)


def test_every_learner_has_a_collector():
    """A learner computes what whole collectors made; what is missing is named, environments where they are, too."""
    assert spec(n_collectors=2, n_learners=2).n_learners == 2
    for n_envs, needed in ((4, "n_collectors=3"), (2, "n_collectors=3 and n_envs=3")):
        with pytest.raises(ValueError, match=f"n_learners must be <= n_collectors = 2, got 3: .* it needs {needed}$"):
            spec(n_envs=n_envs, n_collectors=2, n_learners=3)


def test_deterministic_is_a_flag():
    """A word is not taken for true."""
    with pytest.raises(ValueError, match="deterministic must be true or false, got 'yes'"):
        spec(deterministic="yes")


def test_an_unknown_algorithm():
    """The message lists those that there are."""
    with pytest.raises(ValueError, match="algo must be one of ppo, gpf, dqn, got 'sac'"):
        spec(algo="sac")


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)),
    st.none() | st.just({"kind": "box", "shape": [3], "low": -1.0}),
)
def test_a_spec_survives_json(hyperparameters, space):
    """Plain data and back give an equal spec."""
    task = spec(hyperparameters=hyperparameters, observation_space=space, group="g")
    assert RlWork.from_plain(json.loads(json.dumps(task.to_plain()))) == task


def test_unknown_fields_are_refused_together():
    """A spec of another version names all fields that this one lacks."""
    with pytest.raises(ValueError, match="task spec has unknown fields: colour, taste"):
        RlWork.from_plain(spec().to_plain() | {"taste": 1, "colour": 2})


def test_what_lacks_is_named_and_so_is_work_of_no_kind():
    """A spec of another version, or a file that somebody wrote."""
    with pytest.raises(ValueError, match="task spec lacks total_timesteps, env, n_envs"):
        read_work({"work": "rl", "name": "a"})
    for work in (None, "x", ["rl"]):
        with pytest.raises(ValueError, match=r"work must be one of rl, fit, got "):
            read_work({"work": work, "name": "a"})
