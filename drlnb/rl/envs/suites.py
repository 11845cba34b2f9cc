"""Name the extra that brings an environment that is not in the base install.

Atari games are known to gymnasium only after ``ale_py`` was imported; MuJoCo's and Box2D's classes are there, but their
physics is not.  Asked before ``gymnasium.make``, so that the answer is a pip line.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

from drlnb.records.errors import MissingExtra

if TYPE_CHECKING:
    import gymnasium

__all__ = ["is_atari", "prepare", "registered_here"]

#: Extra -> the module that it brings, and where gymnasium keeps the environments that need it.
_EXTRAS: Mapping[str, tuple[str, str]] = {
    "mujoco": ("mujoco", "gymnasium.envs.mujoco"),
    "box2d": ("Box2D", "gymnasium.envs.box2d"),
    "atari": ("ale_py", "ale_py"),
}
#: What ids of packages that are no extras begin with -> the package.
_PACKAGES: Mapping[str, str] = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
#: Ids of games before and after gymnasium took them under ``ALE/``; no other suite uses these forms.
_ATARI_PREFIX, _ATARI_SUFFIX = "ALE/", "NoFrameskip-v4"


def is_atari(env: str) -> bool:
    """Return whether an id is a game of the Arcade Learning Environment.

    Examples
    --------
    >>> is_atari("ALE/Pong-v5"), is_atari("PongNoFrameskip-v4"), is_atari("CartPole-v1")
    (True, True, False)
    """
    own = env.rpartition(":")[2]
    return own.startswith(_ATARI_PREFIX) or own.endswith(_ATARI_SUFFIX)


def prepare(env: str) -> None:
    """Make an id known to gymnasium if an extra of ours brings it, and refuse it if that extra is missing.

    Parameters
    ----------
    env
        A registered id, or ``module:Id-v0``; what no extra brings is left alone.

    Raises
    ------
    MissingExtra
        With the pip line.
    """
    for prefix, package in _PACKAGES.items():
        if env.rpartition(":")[2].startswith(prefix) and find_spec(package) is None:
            raise MissingExtra(f"{env} needs {package}; install it with: pip install {package}")
    extra = "atari" if is_atari(env) else _extra_of(env)
    if extra is None:
        return
    if find_spec(_EXTRAS[extra][0]) is None:
        raise MissingExtra(f'{env} needs {_EXTRAS[extra][0]}; install it with: pip install "drlnb[{extra}]"')
    if extra == "atari":
        _register_games(env)


def registered_here(env: str) -> "Callable[..., gymnasium.Env] | None":
    """Return what makes an environment that this process alone knows by its id; None: all know it, or nobody.

    Whatever imports gymnasium knows its own environments and those of packages that say so by an entry point.
    """
    import gymnasium

    spec = gymnasium.registry.get(env)
    if spec is None:
        return None
    entry = spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    everywhere = {"gymnasium", "drlnb", "ale_py", *(each.module for each in entry_points(group="gymnasium.envs"))}
    if module.partition(".")[0] in {name.partition(".")[0] for name in everywhere}:
        return None
    return partial(gymnasium.make, spec, disable_env_checker=True)


def _extra_of(env: str) -> str | None:
    import gymnasium

    spec = gymnasium.registry.get(env.rpartition(":")[2])
    where = str(getattr(spec, "entry_point", ""))
    return next((extra for extra, (_, place) in _EXTRAS.items() if where.startswith(place)), None)


def _register_games(env: str) -> None:
    import gymnasium

    if env.rpartition(":")[2] in gymnasium.registry:
        return
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner per process
    gymnasium.register_envs(ale_py)
