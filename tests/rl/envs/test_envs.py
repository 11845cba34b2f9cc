"""The probe: spaces as plain data, errors in words."""

import json

import pytest

from drlnb.records.errors import EnvError, UnsupportedSpace
from drlnb.rl.envs.make import probe
from drlnb.rl.envs.snapshots import restorable


def test_spaces_become_plain_data():
    """Pendulum's spaces come as JSON holds them; CartPole's infinite bounds as null."""
    found = probe("Pendulum-v1")
    assert found["action_space"] == {"kind": "box", "shape": [1], "dtype": "float32", "low": [-2.0], "high": [2.0]}
    cartpole = json.loads(json.dumps(probe("CartPole-v1"), allow_nan=False))
    assert cartpole["action_space"] == {"kind": "discrete", "n": 2}
    assert cartpole["observation_space"]["low"][1] is None
    assert cartpole["observation_space"]["shape"] == [4]


def test_an_unknown_id_gets_the_nearest_ones():
    """A wrong letter is answered with the registered id."""
    with pytest.raises(EnvError, match=r"unknown environment 'CartPol-v1'; did you mean CartPole-v1"):
        probe("CartPol-v1")


def test_a_missing_version_gets_the_registered_ones():
    """A bare, lower-case name is answered with the id."""
    with pytest.raises(EnvError, match=r"did you mean .*Pendulum-v1"):
        probe("pendulum-v7")


def test_a_constructor_that_raises_is_quoted():
    """The constructor's own words arrive, and its exception stays the cause."""
    with pytest.raises(EnvError, match="rl/Broken-v0 raised in its constructor: RuntimeError: no licence for 42") as e:
        probe("rl/Broken-v0")
    assert isinstance(e.value.__cause__, RuntimeError)


def test_a_missing_module_is_named():
    """``module:Id`` with a module that does not exist says which."""
    with pytest.raises(EnvError, match="no module named 'no_such_module_42'"):
        probe("no_such_module_42:Id-v0")


def test_a_module_in_front_is_imported(tmp_path, monkeypatch):
    """``module:Id-v0`` imports the module, which registers the id."""
    (tmp_path / "own_env_42.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Own42-v0', entry_point=CartPoleEnv)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert probe("own_env_42:Own42-v0")["action_space"] == {"kind": "discrete", "n": 2}


def test_unsupported_spaces_say_what_works():
    """A text as observation is refused by name, with what works."""
    with pytest.raises(UnsupportedSpace, match=r"rl/Texts-v0: observation space Text.* policies take Box"):
        probe("rl/Texts-v0")


def test_a_nan_reward_is_found_by_the_probe():
    """The step and the value are told."""
    with pytest.raises(EnvError, match="rl/BadReward-v0: step 1 returned the reward nan"):
        probe("rl/BadReward-v0")


@pytest.mark.parametrize(
    ("env", "expected"),
    [("CartPole-v1", True), ("Pendulum-v1", True), ("MountainCar-v0", True), ("rl/Forgetful-v0", False)],
)
def test_snapshots_are_tried_not_believed(env, expected):
    """Classic control survives a snapshot; an EzPickle environment, which loses its state silently, is found out."""
    assert restorable(env) is expected
