"""Make environments, and probe whether they can be trained on before any process starts.

Environments come from gymnasium's registry, also as ``module:Id-v0``.  The probe builds one, resets it and takes a few
steps, so that a wrong name or a broken contract is reported at once, in words.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from math import isfinite
from typing import NamedTuple

import gymnasium
import numpy as np

from drlnb.records.base import Facts
from drlnb.records.errors import ConfigError, EnvError, MissingExtra, UnsupportedSpace
from drlnb.records.spec import SOURCE_KEYS, RlWork
from drlnb.rl.envs.masks import MaskSource, allowed_action, uses_masks
from drlnb.rl.envs.monitor_files import write_episodes
from drlnb.rl.envs.suites import prepare
from drlnb.rl.envs.wrappers import make_options, wrap
from drlnb.rl.heads import Head
from drlnb.rl.rows import FLAT, RowForm, fitting, scalar

__all__ = ["Source", "describe", "make_env", "probe", "read_source", "training_env"]

#: Enough to see a reset and a step of every environment we know; a probe must stay cheap.
_PROBE_STEPS = 5
#: Uniform bounds of spaces with more elements than this (images) are one number.
_LONG = 64
#: An id that a notebook registered is known to its own process only.
_ELSEWHERE = "an id registered in your own code is unknown to other processes: use module:Id-v0, or pass the factory"
_BOX = gymnasium.spaces.Box
_CHOICES = (gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete, gymnasium.spaces.MultiBinary)


#: Where environments come from: an id, or a task.
Source = str | RlWork | Facts


class _Source(NamedTuple):
    env: str
    #: As text; None: `env` is an id.
    factory: str | None
    kwargs: Facts
    wrappers: Sequence[Facts]


def read_source(source: Source) -> _Source:
    """Return an environment's id, factory, arguments and wrappers."""
    if isinstance(source, str):
        return _Source(source, None, {}, ())
    plain = {key: getattr(source, key) for key in SOURCE_KEYS} if isinstance(source, RlWork) else source
    kwargs, wrappers = plain.get("env_kwargs") or {}, plain.get("env_wrappers") or ()
    return _Source(str(plain["env"]), plain.get("env_factory"), dict(kwargs), wrappers)


def make_env(source: Source, *, index: int = 0, render_mode: str | None = None) -> gymnasium.Env:
    """Build one environment without gymnasium's passive checker (the probe has looked).

    Parameters
    ----------
    source
        A registered id, also ``module:Id-v0``; a task; or a mapping with its ``env`` and what else of
        :data:`drlnb.records.spec.SOURCE_KEYS` it has.
    index
        Its number among all copies: a function that needs exactly one argument is given it (as for a port of its own).
    render_mode
        How it is drawn; None: as in the source.

    Raises
    ------
    EnvError
        If the id is unknown, its module cannot be imported, the factory cannot be rebuilt, the constructor raises, or
        a wrapper refuses the environment.
    ConfigError
        If a wrapper is unknown.
    MissingExtra
        If the environment needs a package that is not installed.
    """
    env, factory, kwargs, wrappers = read_source(source)
    kwargs = kwargs if render_mode is None else {**kwargs, "render_mode": render_mode}
    with _named(env, "its constructor"):
        try:
            if factory is not None:
                return _as_rows(wrap(_built(env, factory, kwargs, index), wrappers))
            prepare(env)
            made = gymnasium.make(env, disable_env_checker=True, **{**make_options(env, wrappers), **kwargs})
            return _as_rows(wrap(made, wrappers))
        except gymnasium.error.DependencyNotInstalled as error:
            raise MissingExtra(f"{env} needs a package that is not installed: {error}") from error
        except gymnasium.error.UnregisteredEnv as error:
            raise EnvError(_unknown(env)) from error
        except gymnasium.error.Error as error:
            raise EnvError(f"environment {env!r} cannot be made: {error}") from error
        except ModuleNotFoundError as error:
            module = env.partition(":")[0]
            if ":" in env and f"'{module.partition('.')[0]}" in str(error):  # gymnasium keeps the name in the text only
                raise EnvError(f"environment {env!r}: no module named {module!r} can be imported") from error
            raise


def training_env(source: Source, index: int) -> gymnasium.Env:
    """Build an environment that is trained on: a ``Monitor`` of the caller's goes on writing its file.

    Parameters and errors are those of :func:`make_env`.
    """
    made = make_env(source, index=index)
    write_episodes(made, wanted=True)
    return made


class _FlatRows(gymnasium.ObservationWrapper):
    """An environment whose observations are rows; see :mod:`drlnb.rl.rows`.

    Parameters
    ----------
    env
        Its observations are choices, or a dictionary.
    plain
        The plain description of that space.
    """

    def __init__(self, env: gymnasium.Env, plain: Facts) -> None:
        super().__init__(env)
        #: The plain description of what the environment itself returns.
        self.plain = dict(plain)
        self.form = form = RowForm.of(plain)
        low, high = (0, 255) if form.images else (-np.inf, np.inf)
        self.observation_space = gymnasium.spaces.Box(low, high, (form.width,), form.dtype.type)

    def observation(self, observation: object) -> np.ndarray:
        """Return the row of an observation."""
        return self.form.row(observation)


def _as_rows(made: gymnasium.Env) -> gymnasium.Env:
    """Return an environment whose observations are arrays: keys and choices are laid out as rows."""
    space = made.observation_space
    if isinstance(space, _CHOICES) or (isinstance(space, gymnasium.spaces.Dict) and space.spaces):
        plain = describe(space)
        return _FlatRows(made, plain) if "text" not in plain else made  # what cannot be laid out the probe refuses
    return made


def _built(env: str, factory: str, kwargs: Facts, index: int) -> gymnasium.Env:
    from drlnb.rl.pickled import unpack  # here, so that cloudpickle loads only where a factory travelled

    try:
        build = unpack(factory)
    except ValueError as error:
        raise EnvError(f"the factory of {env} {error}") from error
    made = build(index, **kwargs) if _takes_index(build, kwargs) else build(**kwargs)
    if not isinstance(made, gymnasium.Env):
        raise EnvError(f"the factory of {env} must return a gymnasium.Env, got {type(made).__name__}")
    layer = made if index else None
    while isinstance(layer, gymnasium.Wrapper):  # copies write videos into one folder
        if isinstance(layer, gymnasium.wrappers.RecordVideo):
            layer.name_prefix += f"-{index}"
        layer = layer.env
    return made


def _takes_index(build: object, kwargs: Facts) -> bool:
    """Whether a function needs one argument, beside those that it is given; a class says itself what it lacks."""
    if isinstance(build, type) or not callable(build):
        return False
    try:
        parameters = signature(build).parameters.values()
    except (TypeError, ValueError):  # some callables of C have none
        return False
    at = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return (
        sum(each.default is Parameter.empty and each.kind in at and each.name not in kwargs for each in parameters) == 1
    )


def _unknown(env: str) -> str:
    known = {name.lower(): name for name in gymnasium.registry}
    wanted = env.rpartition(":")[2].lower()
    near = [known[name] for name in difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)]
    near += [name for low, name in known.items() if wanted and low.startswith(wanted) and name not in near][:2]
    hint = f"did you mean {' or '.join(near)}?" if near else _ELSEWHERE
    return f"unknown environment {env!r}; {hint}"


def _bounds(values: np.ndarray) -> list[float | None]:
    flat = [float(v) if isfinite(v) else None for v in np.asarray(values, np.float64).ravel()]
    return flat[:1] if len(flat) > _LONG and len(set(flat)) == 1 else flat


def describe(space: gymnasium.Space) -> Facts:
    """Return a space as plain data.

    Returns
    -------
    dict
        ``{"kind": "box", "shape", "dtype", "low", "high"}`` with flat bounds, None where unbounded, one number for
        all elements of a large space with equal bounds; ``{"kind": "discrete", "n"}`` with ``"start"`` unless 0;
        ``{"kind": "multidiscrete", "nvec", "shape", "dtype"}`` with a flat ``nvec``, and ``"start"`` unless 0;
        ``{"kind": "multibinary", "shape", "dtype"}``; ``{"kind": "dict", "spaces"}`` with pairs of a key and its
        space, for dictionaries of these alone; for other spaces ``{"kind": <class name>, "text"}``.

    Examples
    --------
    >>> describe(gymnasium.spaces.Discrete(2))
    {'kind': 'discrete', 'n': 2}
    """
    if isinstance(space, gymnasium.spaces.Discrete):
        start = {"start": int(space.start)} if space.start else {}
        return {"kind": "discrete", "n": int(space.n), **start}
    if isinstance(space, gymnasium.spaces.Box):
        low, high = _bounds(space.low), _bounds(space.high)
        return {"kind": "box", "shape": list(space.shape), "dtype": space.dtype.name, "low": low, "high": high}
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        nvec, first = np.asarray(space.nvec), np.asarray(space.start)
        more = {"start": first.ravel().tolist()} if first.any() else {}
        plain = {"kind": "multidiscrete", "nvec": nvec.ravel().tolist(), "shape": list(nvec.shape)}
        return {**plain, "dtype": space.dtype.name, **more}
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return {"kind": "multibinary", "shape": list(space.shape), "dtype": space.dtype.name}
    if isinstance(space, gymnasium.spaces.Dict) and all(isinstance(s, (*_CHOICES, _BOX)) for s in space.values()):
        return {"kind": "dict", "spaces": [[str(name), describe(part)] for name, part in space.items()]}
    return {"kind": type(space).__name__.lower(), "text": str(space)}


def _observed(made: gymnasium.Env) -> Facts:
    """Return the observation space as plain data; of rows with what they are made of."""
    plain = describe(made.observation_space)
    if not isinstance(made, _FlatRows):
        return plain
    return {"kind": FLAT, "shape": plain["shape"], "dtype": plain["dtype"], "of": made.plain}


def _check_spaces(env: str, made: gymnasium.Env) -> None:
    observation, action = made.observation_space, made.action_space
    if not isinstance(observation, gymnasium.spaces.Box):
        raise UnsupportedSpace(
            f"{env}: observation space {observation} is not supported, policies take Box, Discrete, MultiDiscrete, "
            "MultiBinary, and Dict of these; gymnasium.wrappers.FlattenObservation turns many spaces into a Box"
        )
    if isinstance(action, gymnasium.spaces.Box):
        if not np.issubdtype(action.dtype, np.floating):
            raise UnsupportedSpace(f"{env}: action space {action} is not supported, a Box of actions must hold floats")
    elif not isinstance(action, _CHOICES):
        known = "Discrete, MultiDiscrete, MultiBinary and Box (floats)"
        raise UnsupportedSpace(f"{env}: action space {action} is not supported, actions may be {known}")


@contextmanager
def _named(env: str, where: str) -> Iterator[None]:
    try:
        yield
    except (EnvError, MissingExtra, ConfigError):
        raise
    except Exception as error:  # foreign code: whatever it raises becomes ours
        raise EnvError(f"{env} raised in {where}: {type(error).__name__}: {error}") from error


def _check_obs(env: str, where: str, obs: object, space: gymnasium.Space) -> None:
    try:
        array = fitting(obs, space.shape or (), np.dtype(space.dtype))
    except EnvError as error:
        raise EnvError(f"{env}: {where} {error}") from None
    if not np.isfinite(array).all():
        raise EnvError(f"{env}: {where} returned an observation that is not finite: {obs}")


def _walk(env: str, made: gymnasium.Env, masks: MaskSource | None) -> None:
    made.action_space.seed(0)
    with _named(env, "reset"):
        answer = made.reset(seed=0)
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise EnvError(f"{env}: reset must return (observation, info), got {type(answer).__name__}")
    _check_obs(env, "reset", answer[0], made.observation_space)
    info = _masked_info(env, "reset", answer[1], masks)
    for step in range(_PROBE_STEPS):
        with _named(env, f"step {step}"):
            answer = made.step(allowed_action(made, info))
        if not (isinstance(answer, tuple) and len(answer) == 5):
            raise EnvError(f"{env}: step must return (observation, reward, terminated, truncated, info), got {answer}")
        obs, reward, terminated, truncated, info = answer
        _check_obs(env, f"step {step}", obs, made.observation_space)
        with _named(env, f"step {step} (its reward {reward!r} must be a number)"):
            number = scalar(reward)
        if not isfinite(number):
            raise EnvError(f"{env}: step {step} returned the reward {number}")
        if terminated or truncated:
            with _named(env, "reset"):
                _, info = made.reset()
        _masked_info(env, f"step {step}", info, masks)


def _masked_info(env: str, where: str, info: Facts, masks: MaskSource | None) -> Facts:
    """Return what came with an observation; where a task learns with masks, try the mask."""
    if masks is not None:
        try:
            masks(info)
        except EnvError as error:
            raise EnvError(f"{env}, {where}: {error}") from None
    return info if isinstance(info, Mapping) else {}


def probe(source: Source) -> dict[str, Facts]:
    """Build an environment, reset it, take a few random steps, and describe its spaces.

    Parameters
    ----------
    source
        As of :func:`make_env`.

    Returns
    -------
    dict
        ``{"observation_space": ..., "action_space": ...}`` as :func:`describe` returns them.

    Raises
    ------
    EnvError
        If the id is unknown (the nearest ones are named), the constructor, reset or a step raises, or what they
        return breaks gymnasium's contract.
    UnsupportedSpace
        If no algorithm here can serve a space.
    MissingExtra
        If the environment needs a package that is not installed.
    """
    made, env = make_env(source), read_source(source).env
    try:
        _check_spaces(env, made)
        spaces = {"observation_space": _observed(made), "action_space": describe(made.action_space)}
        masked = isinstance(source, RlWork) and uses_masks(source)
        _walk(env, made, MaskSource(made, Head.of(spaces["action_space"])) if masked else None)
        return spaces
    finally:
        made.close()
