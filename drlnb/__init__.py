"""Train many deep-RL tasks at once on a few GPUs, from a notebook, on a Dask cluster.

Public names load on first use, so that importing :mod:`drlnb` in a headless worker costs nothing.
"""

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

register_environments()


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name == "__version__":
        return _version()
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    way = ": the algorithms are PPO, DQN and GPF" if name.isupper() else ""
    raise AttributeError(f"module 'drlnb' has no attribute {name!r}{way}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # loads threads and sockets: only for who asks

    try:
        return version("drlnb")
    except PackageNotFoundError:  # running from a source tree that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
