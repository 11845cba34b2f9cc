"""What environments may not do, and factories of the user's own."""

import functools
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest

from drlnb.records.errors import EnvError, UnsupportedSpace
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.envs.make import make_env, probe
from drlnb.rl.pickled import display_name, pack, unpack
from tests.rl.conftest import Clock


class Later(Clock):
    """Breaks its contract in step 7, long after the probe has looked; `fault` says how."""

    def __init__(self, fault: str) -> None:
        super().__init__(end_after=100)
        self._fault = fault

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        if self._t < 7:
            return obs, reward, *rest
        answers: dict[str, Any] = {
            "nan reward": (obs, float("nan"), *rest),
            "no number": (obs, "much", *rest),
            "nan observation": (np.array([np.nan], np.float32), reward, *rest),
            "shape": (np.zeros((1, 1), np.float32), reward, *rest),
            "type": (np.array([1j]), reward, *rest),
            "four": (obs, reward, *rest[1:]),
        }
        if self._fault == "raises":
            raise OSError("the simulator is gone")
        return answers[self._fault]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("nan reward", "step 6 of round 3: the reward is not finite: nan"),
        ("no number", "step 6 of round 3: ValueError: could not convert string to float: 'much'"),
        ("nan observation", "step 6 of round 3: the observation is not finite: nan"),
        ("shape", r"step 6 of round 3: returned an observation of shape \(1, 1\), its space says \(1,\)"),
        ("type", "step 6 of round 3: returned an observation of type complex128, its space says float32"),
        ("four", r"step 6 of round 3: step must return \(observation, reward, terminated, truncated, info\), got \("),
        ("raises", "step 6 of round 3: OSError: the simulator is gone"),
    ],
)
def test_a_broken_contract_names_environment_index_and_step(fault, told, make_spec):
    """Whatever an environment does wrong in its 7th step is told with its name, its index and that step."""
    spec = make_spec("rl/Clock-v0", n_envs=2)
    bad = RlWork.from_plain({**spec.to_plain(), "env": "mine", "env_factory": pack(functools.partial(Later, fault))})
    made = Collector(bad, env_indices=[1])
    with pytest.raises(EnvError, match=f"mine, environment 1, {told}"):
        made.collect(make_learner(spec).published(), version=3, round=3, n_steps=12)
    made.close()


def test_a_nan_in_the_observation_of_a_time_limit_is_found(make_spec):
    """The last observation of a truncated episode is checked too: step 2 ended it."""

    class Ends(Clock):
        def step(self, action: Any) -> Any:
            obs, *rest = super().step(action)
            return (np.array([np.inf], np.float32) if self._t == 3 else obs), *rest

    spec = make_spec("rl/Cut-v0", n_envs=1)
    bad = RlWork.from_plain({**spec.to_plain(), "env_factory": pack(lambda: Ends(end_after=3, truncate=True))})
    made = Collector(bad, env_indices=[0])
    with pytest.raises(EnvError, match="environment 0, step 2 of round 1: the observation is not finite: inf"):
        made.collect(make_learner(spec).published(), version=1, round=1, n_steps=5)
    made.close()


def test_a_closure_travels_and_gets_its_arguments(make_spec):
    """A lambda over a local class builds the environment with env_kwargs; probe, collector and spec agree on it."""

    class Wide(Clock):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

    size = 0.5
    source = {"env": "wide", "env_factory": pack(lambda bonus: Wide(size + bonus)), "env_kwargs": {"bonus": 1.0}}
    assert make_env(source).scale == 1.5
    with pytest.raises(EnvError, match=r"wide: reset returned an observation of shape \(1,\), its space says \(2,\)"):
        probe(source)


@pytest.mark.parametrize(("kind", "kwargs"), [("CartPole-v1", {"sutton_barto_reward": True})])
def test_arguments_of_a_registered_environment_arrive(kind, kwargs):
    """env_kwargs reach the constructor of an id; an argument it does not know is told by name."""
    made = make_env({"env": kind, "env_kwargs": kwargs})
    assert made.unwrapped._sutton_barto_reward is True
    made.close()
    with pytest.raises(EnvError, match=r"raised in its constructor: TypeError.*'colour'"):
        make_env({"env": kind, "env_kwargs": {"colour": 1}})


def test_a_factory_that_returns_something_else_is_refused():
    """The type that came instead is told."""
    with pytest.raises(EnvError, match=r"the factory of mine must return a gymnasium.Env, got int"):
        make_env({"env": "mine", "env_factory": pack(lambda: 3)})


def test_a_damaged_factory_is_told_and_nothing_runs():
    """Text that is no pickle is an EnvError with the environment's name."""
    with pytest.raises(EnvError, match="the factory of mine cannot be rebuilt here"):
        make_env({"env": "mine", "env_factory": "AAAA"})


def test_what_keeps_a_factory_from_travelling_is_named():
    """A lock in a closure, in an object's attribute or among a partial's arguments is told by its name."""
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r"lambda cannot travel to another process: variable 'lock' \(lock\)"):
        pack(lambda: lock)

    class Holder:
        def __init__(self) -> None:
            self.guard = lock

        def __call__(self) -> None: ...

    with pytest.raises(ValueError, match=r"attribute 'guard' \(lock\)"):
        pack(Holder())
    with pytest.raises(ValueError, match=r"argument 'door' \(lock\)"):
        pack(functools.partial(dict, door=lock))
    holder = Holder()
    with pytest.raises(ValueError, match=r"variable 'holder' \(Holder\), in it attribute 'guard' \(lock\)"):
        pack(lambda: holder)


def test_names_for_people():
    """A class, a nested function, a lambda, a partial and a callable object have readable names."""

    def inside() -> None: ...

    class Callable:
        def __call__(self) -> None: ...

    values = (Clock, inside, lambda: 0, functools.partial(Clock, 3), Callable())
    assert [display_name(value) for value in values] == ["Clock", "inside", "lambda", "Clock", "Callable"]


def test_packed_is_plain_text():
    """The text survives JSON as it is."""
    text = pack(max)
    assert text.isascii()
    assert unpack(text) is max


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (gymnasium.spaces.Text(4), r"action space Text.* is not supported, actions may be Discrete, MultiDiscrete"),
        (gymnasium.spaces.Box(0, 9, (2,), np.int32), "a Box of actions must hold floats"),
    ],
)
def test_unfit_actions_say_what_works(space, told):
    """The space is named, and so are the spaces that work."""

    class Odd(Clock):
        action_space = space

    with pytest.raises(UnsupportedSpace, match=told):
        probe({"env": "odd", "env_factory": pack(Odd)})


def test_an_environment_from_a_notebook_can_be_resumed(make_spec):
    """A class that travelled by value is frozen by value too: no episode is lost."""

    class Mine(Clock):
        pass

    spec = make_spec("rl/Clock-v0", n_envs=2)
    Mine.__module__ = "__main__"  # as in a notebook's cell
    own = RlWork.from_plain({**spec.to_plain(), "env": "Mine", "env_factory": pack(lambda: Mine(end_after=50))})
    parameters = make_learner(spec).published()
    first, second = Collector(own, env_indices=[0, 1]), Collector(own, env_indices=[0, 1])
    first.collect(parameters, version=1, round=1, n_steps=5)
    assert second.restore(first.state()) == 0
    assert second.collect(parameters, version=2, round=2, n_steps=1).arrays["obs"][0].tolist() == [[5.0], [5.0]]
    first.close()
    second.close()


def test_losses_have_the_names_of_functions():
    """`drlnb.rl.ppo_loss`, `gpf_loss` and `dqn_loss` are functions, also after the algorithms' modules are loaded."""
    import drlnb.rl.algorithms.dqn

    for name in ("ppo_loss", "gpf_loss", "dqn_loss"):
        assert callable(getattr(drlnb.rl, name))
        assert name in drlnb.rl.__all__
