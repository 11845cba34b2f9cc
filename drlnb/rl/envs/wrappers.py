"""List the wrappers that a task may name, and build the wrapped environment from plain data.

A task lists ``[{"name": "FrameStack", "kwargs": {"n_stack": 4}}, ...]``, innermost first.  Only names of one table are
known: nothing is imported by a name from a file.  The list is checked without gymnasium (a Dask worker may do it) and
built in the process that steps the environment.

Returns of episodes are counted by a :class:`~drlnb.rl.envs.wrapper_classes.Tally` beneath all wrappers of the list, so
that clipped, delayed or skipped rewards never change ``rollout/ep_rew_mean``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from drlnb.records.errors import ConfigError, EnvError, MissingExtra, nearest
from drlnb.rl.plain import Facts

if TYPE_CHECKING:
    import gymnasium

    from drlnb.rl.envs.wrapper_classes import Tally

__all__ = ["KNOWN", "Known", "check_wrappers", "make_options", "read_wrappers", "tally_of", "wrap"]

#: Where wrapper names of files may come from; the class's own name decides.
_PACKAGES = ("gym", "gymnasium", "rl_zoo3", "utils", "stable_baselines3", "sb3_contrib", "drlnb")
_OURS, _GYMNASIUM = "drlnb.rl.envs.wrapper_classes", "gymnasium.wrappers"
#: Names of older gym versions, and of what does the same here.
_OLD_NAMES = {"GrayScaleObservation": "GrayscaleObservation", "VecFrameStack": "FrameStack"}
#: Wrappers that would break what the learner does itself -> what to do instead.
_REFUSED = {
    ("NormalizeObservation", "NormalizeReward"): "statistics are merged over all collectors; say normalize: true",
    ("Monitor", "RecordEpisodeStatistics"): "episodes are counted beneath all wrappers anyway",
    ("RecordVideo",): "drlnb.rl.collecting.video.record_episode makes videos",
    ("Autoreset",): "the collector resets",
}


@dataclass(frozen=True, slots=True)
class Known:
    """One wrapper that may be named."""

    #: Arguments that it needs, and others that it takes, all by keyword.
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    module: str = _GYMNASIUM
    #: Whether it resizes images, which takes OpenCV.
    needs_cv2: bool = False
    #: Whether it repeats actions itself, so that an Atari game must not.
    skips_frames: bool = False


_ATARI = ("noop_max", "frame_skip", "screen_size", "terminal_on_life_loss")
_PIXELS = (*_ATARI, "grayscale_obs", "grayscale_newaxis", "scale_obs")

#: Name -> what is known of it.
KNOWN: Mapping[str, Known] = {
    "ActionNoiseWrapper": Known(optional=("noise_std",), module=_OURS),
    "ActionSmoothingWrapper": Known(optional=("smoothing_coef",), module=_OURS),
    "AtariPreprocessing": Known(optional=_PIXELS, needs_cv2=True, skips_frames=True),
    "AtariWrapper": Known(optional=(*_ATARI, "clip_reward"), module=_OURS, needs_cv2=True, skips_frames=True),
    "ClipAction": Known(),
    "ClipReward": Known(optional=("min_reward", "max_reward")),
    "DelayObservation": Known(("delay",)),
    "DelayedRewardWrapper": Known(optional=("delay",), module=_OURS),
    "DtypeObservation": Known(("dtype",)),
    "FilterObservation": Known(("filter_keys",)),
    "FlattenObservation": Known(),
    "FrameSkip": Known(optional=("skip",), module=_OURS),
    "FrameStack": Known(("n_stack",), module=_OURS),
    "FrameStackObservation": Known(("stack_size",), ("padding_type",)),
    "GrayscaleObservation": Known(optional=("keep_dim",)),
    "HistoryWrapper": Known(optional=("horizon",), module=_OURS),
    "MaskVelocityWrapper": Known(module=_OURS),
    "MaxAndSkipObservation": Known(optional=("skip",), skips_frames=True),
    "RepeatAction": Known(("num_repeats",)),
    "RescaleAction": Known(("min_action", "max_action")),
    "RescaleObservation": Known(("min_obs", "max_obs")),
    "ReshapeObservation": Known(("shape",)),
    "ResizeObservation": Known(("shape",), needs_cv2=True),
    "StickyAction": Known(("repeat_action_probability",), ("repeat_action_duration",)),
    "TimeAwareObservation": Known(optional=("flatten", "normalize_time", "dict_time_key")),
    "TimeFeatureWrapper": Known(optional=("max_steps", "test_mode"), module=_OURS),
    "TimeLimit": Known(("max_episode_steps",)),
}


def read_wrappers(value: object) -> list[dict[str, object]]:
    """Read a file's ``env_wrapper``: a name, ``{name: kwargs}``, ``{"name", "kwargs"}``, or a list, innermost first.

    Parameters
    ----------
    value
        Names may hold a module of gymnasium, Stable-Baselines3 or the zoo in front, which is dropped.

    Returns
    -------
    list of dict
        ``{"name", "kwargs"}`` each; names and arguments are those of :data:`KNOWN`.

    Raises
    ------
    ConfigError
        If a name or argument is unknown or the form is another; the message lists all of them.

    Examples
    --------
    >>> read_wrappers(["rl_zoo3.wrappers.FrameSkip", {"gymnasium.wrappers.ResizeObservation": {"shape": 64}}])
    [{'name': 'FrameSkip', 'kwargs': {}}, {'name': 'ResizeObservation', 'kwargs': {'shape': [64, 64]}}]
    """
    listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
    wrappers: list[Facts] = []
    problems: list[str] = []
    for item in listed:
        pairs = {item: {}} if isinstance(item, str) else item
        if not isinstance(pairs, Mapping) or not all(isinstance(name, str) for name in pairs):
            problems.append(f"env_wrapper takes a name or {{name: arguments}}, got {item!r}")
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
    """Return a class's own name; empty, and a problem, if it is of a module that is not known."""
    module, _, short = name.rpartition(".")
    if module and module.partition(".")[0] not in _PACKAGES:
        problems.append(f"unknown wrapper {name!r}: only wrappers of gymnasium and of the zoo can be named in a file")
        return ""
    return _OLD_NAMES.get(short, short)


def _shaped(name: str, kwargs: Facts) -> Iterator[tuple[str, object]]:
    """Return arguments as the classes of today take them."""
    for key, value in kwargs.items():
        yield key, [value, value] if name == "ResizeObservation" and isinstance(value, int) else value


def check_wrappers(wrappers: Sequence[Facts]) -> list[str]:
    """Return what is wrong with a list of ``{"name", "kwargs"}``; empty if nothing is."""
    problems: list[str] = []
    for wrapper in wrappers:
        name, kwargs = str(wrapper.get("name")), wrapper.get("kwargs", {})
        known = KNOWN.get(name)
        if refused := [why for names, why in _REFUSED.items() if name in names]:
            problems.append(f"wrapper {name} is not supported: {refused[0]}")
        elif known is None:
            problems.append(f"unknown wrapper {name!r}{nearest(name, KNOWN)}")
        elif not isinstance(kwargs, Mapping):
            problems.append(f"wrapper {name} takes a mapping of arguments, got {kwargs!r}")
        else:
            problems += _check_arguments(name, known, kwargs)
    return problems


def _check_arguments(name: str, known: Known, kwargs: Facts) -> list[str]:
    problems, taken = [], (*known.required, *known.optional)
    unknown = [str(key) for key in kwargs if key not in taken]
    if unknown:
        problems.append(f"wrapper {name} takes {', '.join(taken) or 'no arguments'}, not {', '.join(unknown)}")
    missing = [key for key in known.required if key not in kwargs]
    if missing:
        problems.append(f"wrapper {name} needs {', '.join(missing)}")
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
    skips = any(KNOWN[w["name"]].skips_frames for w in wrappers if w["name"] in KNOWN)
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
        If a name or argument is unknown.
    EnvError
        If a wrapper refuses the environment.
    MissingExtra
        If one needs OpenCV and it is not installed.
    """
    if not wrappers:
        return env
    problems = check_wrappers(wrappers)
    if problems:
        raise ConfigError(problems)
    from importlib import import_module

    from drlnb.rl.envs.wrapper_classes import Tally

    wrapped: gymnasium.Env = Tally(env)
    for wrapper in wrappers:
        name, known = wrapper["name"], KNOWN[wrapper["name"]]
        if known.needs_cv2 and find_spec("cv2") is None:
            raise MissingExtra(f'wrapper {name} needs OpenCV; install it with: pip install "drlnb[atari]"')
        kwargs = {key: _argument(key, value) for key, value in wrapper.get("kwargs", {}).items()}
        try:
            wrapped = getattr(import_module(known.module), name)(wrapped, **kwargs)
        except Exception as error:  # a wrapper's constructor judges the environment and its arguments
            kind, around = type(error).__name__, env.spec.id if env.spec is not None else type(env.unwrapped).__name__
            raise EnvError(f"wrapper {name} cannot be put around {around}: {kind}: {error}") from error
    return wrapped


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
