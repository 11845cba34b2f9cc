"""Train many deep-RL tasks at once on a few GPUs, from a notebook, on a Dask cluster.

Public names load on first use, so that importing :mod:`drlnb` in a headless worker costs nothing.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from drlnb.rl.envs.register import register_environments

if TYPE_CHECKING:
    from drlnb.fleet.algorithms import DQN, GPF, PPO
    from drlnb.fleet.callbacks.base import BaseCallback, CallbackList
    from drlnb.fleet.callbacks.stock import (
        CheckpointCallback,
        EvalCallback,
        EveryNTimesteps,
        StopTrainingOnNoModelImprovement,
        StopTrainingOnRewardThreshold,
    )
    from drlnb.fleet.fleet import Fleet
    from drlnb.fleet.playback import play
    from drlnb.fleet.resume import resume
    from drlnb.fleet.tasks.task import Task
    from drlnb.fleet.training import Training

    __version__: str

__all__ = [
    "DQN",
    "GPF",
    "PPO",
    "BaseCallback",
    "CallbackList",
    "CheckpointCallback",
    "EvalCallback",
    "EveryNTimesteps",
    "Fleet",
    "StopTrainingOnNoModelImprovement",
    "StopTrainingOnRewardThreshold",
    "Task",
    "Training",
    "__version__",
    "play",
    "resume",
]

_MODULES = {
    "algorithms": ("DQN", "GPF", "PPO"),
    "callbacks.base": ("BaseCallback", "CallbackList"),
    "fleet": ("Fleet",),
    "playback": ("play",),
    "resume": ("resume",),
    "tasks.task": ("Task",),
    "training": ("Training",),
}
#: Public name -> the module that defines it: of the ready-made callbacks, unless it is listed.
_HOMES = dict.fromkeys(__all__, "drlnb.fleet.callbacks.stock")
_HOMES |= {name: f"drlnb.fleet.{module}" for module, names in _MODULES.items() for name in names}

#: What users of Stable-Baselines3 may look for here -> what has it instead.
_WAYS = dict.fromkeys(
    ("A2C", "ARS", "CrossQ", "DDPG", "QRDQN", "SAC", "TD3", "TQC", "TRPO"), "the algorithms are PPO, DQN and GPF"
)
_WAYS |= dict.fromkeys(("DummyVecEnv", "SubprocVecEnv", "make_vec_env"), "n_envs=4 beside an id, a class or a function")
_WAYS |= dict.fromkeys(
    ("common", "ppo", "dqn", "her"),
    "from drlnb import PPO, DQN, EvalCallback, ...; what is not here is used as it is, from stable_baselines3.common",
)
_WAYS |= {
    "MaskablePPO": "PPO(..., use_masking=True)",
    "RecurrentPPO": "no algorithm here learns from sequences, env_wrappers='FrameStack' shows the last observations",
    "HerReplayBuffer": "no goals are made of what was reached; the algorithms are PPO, DQN and GPF",
    "Monitor": "episodes are counted without one: model.ep_info_buffer, run.rows('episodes')",
    "VecFrameStack": "env_wrappers='FrameStack'",
    "VecNormalize": "PPO(..., normalize=True), whose statistics are in the model",
    "check_env": "a model tries its environment when it is built",
    "configure": "tensorboard_log=..., verbose=1",
    "evaluate_policy": "drlnb.rl.evaluate(model, env, n_episodes=40)",
    "load": "PPO.load(path), as it was saved",
    "set_random_seed": "seed=... of the model",
}

register_environments()


class _Theirs:
    """Asked for modules that no other finder knows: those of Stable-Baselines3 are told of."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError with the way, as a name of the package does."""
        module = name.removeprefix("drlnb.")
        if module != name and module in _WAYS:
            raise ModuleNotFoundError(f"No module named {name!r}: {_WAYS[module]}", name=name)


sys.meta_path.append(_Theirs)


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name == "__version__":
        return _version()
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    told = f"module 'drlnb' has no attribute {name!r}"
    if name not in _WAYS:
        raise AttributeError(told)
    told = f"{told}: {_WAYS[name]}"
    if sys._getframe(1).f_code.co_name == "_handle_fromlist":  # `from drlnb import NAME` would drop what is told
        raise ImportError(told, name="drlnb")
    raise AttributeError(told)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # loads threads and sockets: only for who asks

    try:
        return version("drlnb")
    except PackageNotFoundError:  # running from a source tree that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
