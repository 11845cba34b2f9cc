"""Read the wrappers that a task names, and build the wrapped environment from plain data.

A task lists ``[{"name": "FrameStack", "kwargs": {"n_stack": 4}}, ...]``, innermost first: classes as ``module:Class``,
or by their names alone where they are gymnasium's or ours.  The list is read without gymnasium (a Dask worker may do
it) and built in the process that steps the environment; only there a class is imported, and judges its arguments.

Returns of episodes are counted by a :class:`~drlnb.rl.envs.wrapper_classes.Tally` beneath all wrappers of the list, so
that clipped, delayed or skipped rewards never change ``rollout/ep_rew_mean``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from drlnb.records.base import Facts
from drlnb.records.errors import ConfigError, EnvError, MissingExtra, nearest

if TYPE_CHECKING:
    import gymnasium

    from drlnb.rl.envs.wrapper_classes import Tally

__all__ = ["check_wrappers", "make_options", "read_wrappers", "tally_of", "wrap"]

#: Where wrapper names of files may come from; the class's own name decides.
_PACKAGES = ("gym", "gymnasium", "rl_zoo3", "utils", "stable_baselines3", "sb3_contrib", "drlnb", "minigrid")
#: Wrappers of the zoo that it alone has.
_OF_ZOO = frozenset({
    "ActionNoiseWrapper",
    "ActionSmoothingWrapper",
    "DelayedRewardWrapper",
    "FrameSkip",
    "HistoryWrapper",
    "MaskVelocityWrapper",
    "TimeFeatureWrapper",
})
#: ``module:Class``.
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
#: Those of Stable-Baselines3 that gymnasium lacks.
_OURS = ("AtariWrapper", "FrameStack")
#: Those that repeat actions themselves, so that a game must not.
_SKIPPING = ("AtariPreprocessing", "AtariWrapper", "MaxAndSkipObservation")
#: Names of older gym versions, and of what does the same here.
_OLD_NAMES = {
    "GrayScaleObservation": "GrayscaleObservation",
    "VecFrameStack": "FrameStack",
    "YAMLCompatResizeObservation": "ResizeObservation",
}
#: Wrappers that would break what the learner does itself -> what to do instead.
_REFUSED = {
    ("NormalizeObservation", "NormalizeReward"): "statistics are merged over all collectors; say normalize: true",
    ("Monitor", "RecordEpisodeStatistics"): "episodes are counted beneath all wrappers anyway",
    ("RecordVideo",): "drlnb.rl.collecting.video.record_episode makes videos",
    ("Autoreset",): "the collector resets",
}


def read_wrappers(value: object) -> list[dict[str, object]]:
    """Read a name, ``{name: kwargs}``, ``{"name", "kwargs"}``, or a list of those and ``(name, kwargs)``.

    Parameters
    ----------
    value
        Innermost first.  Names may hold a module of gymnasium, Stable-Baselines3, MiniGrid or the zoo in front, as in
        the zoo's files; any other class of a wrapper is ``module:Class``.

    Returns
    -------
    list of dict
        ``{"name", "kwargs"}`` each; a name alone is a class of gymnasium's or ours, or it is ``module:Class``.

    Raises
    ------
    ConfigError
        If a name or argument is unknown or the form is another; the message lists all of them.

    Examples
    --------
    >>> read_wrappers([("mine:Sparse", {"every": 4}), {"gymnasium.wrappers.ResizeObservation": {"shape": 64}}])
    [{'name': 'mine:Sparse', 'kwargs': {'every': 4}}, {'name': 'ResizeObservation', 'kwargs': {'shape': [64, 64]}}]
    """
    listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
    wrappers: list[Facts] = []
    problems: list[str] = []
    for item in listed:
        pairs = {item: {}} if isinstance(item, str) else item
        if isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str):
            pairs = {item[0]: item[1]}
        if not isinstance(pairs, Mapping) or not all(isinstance(name, str) for name in pairs):
            problems.append(f"env_wrapper takes a name, {{name: arguments}} or (name, arguments), got {item!r}")
            continue
        named = {pairs["name"]: pairs["kwargs"]} if pairs.keys() == {"name", "kwargs"} else pairs
        for name, kwargs in named.items():
            wrappers.append({"name": _own_name(name, problems), "kwargs": {} if kwargs is None else kwargs})
    wrappers = [wrapper for wrapper in wrappers if wrapper["name"]]
    problems += check_wrappers(wrappers)
    if problems:
        raise ConfigError(problems)
    return [{"name": w["name"], "kwargs": dict(_shaped(w["name"], w["kwargs"]))} for w in wrappers]


def _own_name(name: str, problems: list[str]) -> str:
    """Return a class's name alone, or ``module:Class``; empty, and a problem, if it is neither."""
    if ":" in name:
        return name
    module, _, short = name.rpartition(".")
    if module and module.partition(".")[0] not in _PACKAGES:
        problems.append(f"unknown wrapper {name!r}: name a class as module:Class, such as {module}:{short}")
        return ""
    if module.startswith("minigrid."):
        return f"{module}:{short}"
    return f"rl_zoo3.wrappers:{short}" if short in _OF_ZOO else _OLD_NAMES.get(short, short)


def _shaped(name: str, kwargs: Facts) -> Iterator[tuple[str, object]]:
    """Return arguments as the classes of today take them."""
    for key, value in kwargs.items():
        yield key, [value, value] if name == "ResizeObservation" and isinstance(value, int) else value


def check_wrappers(wrappers: Sequence[Facts]) -> list[str]:
    """Return what is wrong with a list of ``{"name", "kwargs"}``; empty if nothing is."""
    problems: list[str] = []
    for wrapper in wrappers:
        name, kwargs = str(wrapper.get("name")), wrapper.get("kwargs", {})
        if refused := [why for names, why in _REFUSED.items() if name in names]:
            problems.append(f"wrapper {name} is not supported: {refused[0]}")
        elif ":" in name and not _CLASS.fullmatch(name):
            problems.append(f"wrapper {name!r} must be module:Class, such as mine.wrappers:Sparse")
        elif not isinstance(kwargs, Mapping):
            problems.append(f"wrapper {name} takes a mapping of arguments, got {kwargs!r}")
    return problems


def make_options(env: str, wrappers: Sequence[Facts]) -> dict[str, int]:
    """Return what ``gymnasium.make`` takes besides the id.

    A game of the Arcade Learning Environment repeats each action itself (``ALE/Pong-v5`` 4 times); where a wrapper
    skips frames, it must not.

    Examples
    --------
    >>> make_options("ALE/Pong-v5", [{"name": "AtariPreprocessing", "kwargs": {}}])
    {'frameskip': 1}
    """
    skips = any(wrapper["name"] in _SKIPPING for wrapper in wrappers)
    return {"frameskip": 1} if skips and env.rpartition(":")[2].startswith("ALE/") else {}


def wrap(env: "gymnasium.Env", wrappers: Sequence[Facts]) -> "gymnasium.Env":
    """Put wrappers around an environment, and a tally of raw returns beneath them.

    Parameters
    ----------
    env
        As ``gymnasium.make`` returned it.
    wrappers
        ``{"name", "kwargs"}`` each, innermost first; none: the environment itself is returned.

    Raises
    ------
    ConfigError
        If something is named that cannot be a wrapper here.
    EnvError
        If a wrapper's class is unknown or cannot be imported, or it refuses its arguments or the environment.
    MissingExtra
        If one needs OpenCV and it is not installed.
    """
    if not wrappers:
        return env
    problems = check_wrappers(wrappers)
    if problems:
        raise ConfigError(problems)
    import gymnasium

    from drlnb.rl.envs.wrapper_classes import Tally

    wrapped: gymnasium.Env = Tally(env)
    for wrapper in wrappers:
        name, kwargs = wrapper["name"], wrapper.get("kwargs", {})
        make = _imported(name)
        if ":" not in name:
            kwargs = {key: _argument(key, value) for key, value in kwargs.items()}
        try:
            wrapped = make(wrapped, **kwargs)
        except gymnasium.error.DependencyNotInstalled:
            raise MissingExtra(f'wrapper {name} needs OpenCV; install it with: pip install "drlnb[atari]"') from None
        except Exception as error:  # a wrapper's constructor judges the environment and its arguments
            kind, around = type(error).__name__, env.spec.id if env.spec is not None else type(env.unwrapped).__name__
            raise EnvError(f"wrapper {name} cannot be put around {around}: {kind}: {error}") from error
    return wrapped


def _imported(name: str) -> "Callable[..., gymnasium.Env]":
    """Return the class ``module:Class``, or one of gymnasium's or ours, or raise EnvError."""
    import gymnasium

    module, _, path = name.rpartition(":")
    if not module:
        module = "drlnb.rl.envs.wrapper_classes" if name in _OURS else "gymnasium.wrappers"
    try:
        found: object = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the module does when it is imported
        if module == "gymnasium.wrappers":
            known = [*gymnasium.wrappers.__all__, *_OURS]
            raise EnvError(f"unknown wrapper {name!r}{nearest(name, known)}") from None
        why = " ".join(str(error).split()) or type(error).__name__
        raise EnvError(f"wrapper {name} cannot be imported where environments run: {why}") from error
    if not (isinstance(found, type) and issubclass(found, gymnasium.Wrapper)):
        raise EnvError(f"wrapper {name} must be a class derived from gymnasium.Wrapper, got {found!r}")
    return found


def _argument(key: str, value: object) -> object:
    """Return an argument as its class wants it: plain data has lists and texts only."""
    import numpy as np

    if key in {"min_action", "max_action", "min_obs", "max_obs"}:
        return np.asarray(value, np.float32)[()]
    return np.dtype(str(value)) if key == "dtype" else tuple(value) if isinstance(value, list) else value


def tally_of(env: "gymnasium.Env | None") -> "Tally | None":
    """Return the tally beneath an environment's wrappers, or None where it has none."""
    from drlnb.rl.envs.wrapper_classes import Tally

    while env is not None and not isinstance(env, Tally):
        env = getattr(env, "env", None)
    return env
