"""Read off environments that the caller has made how to make others: arguments, wrappers, what was set, copies."""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.wrappers import TimeLimit

from drlnb.records.base import Facts, Row
from drlnb.records.errors import EnvError
from drlnb.rl.envs.monitor_files import MonitorFile
from drlnb.rl.pickled import display_name, pack

__all__ = ["Taken", "kept", "sourced", "taken_apart"]

#: Wrappers that have no part in training: they look on, or do what collectors do themselves.
_LOOK_ON = {"PassiveEnvChecker", "OrderEnforcing", "RecordEpisodeStatistics", "Monitor", "Autoreset", "HumanRendering"}
#: The same around several environments; images are taken with their channels wherever these are.
_LOOK_ON_SEVERAL = {"VecMonitor", "VecCheckNan", "VecTransposeImage", "RecordEpisodeStatistics"}
_NORMALISING = {"VecNormalize", "NormalizeObservation", "NormalizeReward"}
#: Arguments of ``gymnasium.make_vec`` that its specs hold.
_OF_SEVERAL = {"num_envs", "vectorization_mode", "vector_kwargs", "wrappers"}
#: Wrappers that need pictures.
_DRAWING = {"RecordVideo", "RenderCollection", "AddRenderObservation"}
#: Attributes of a new environment and of its wrappers, and the same after a few steps.
_Fresh = tuple[list[dict[str, bytes]], list[dict[str, bytes]]]
#: What copies have anew: how they are drawn, and what gymnasium has noted itself.
_ANEW = {"render_mode", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs"}
#: Steps after which an attribute that has not changed is taken for a setting.
_STEPS = 5
#: Number of an environment that is tried, and writes nothing.
_NO_COPY = -1


class _Layer(NamedTuple):
    """A wrapper of an environment, to be put around another one."""

    make: Callable[..., gymnasium.Env]
    arguments: Facts
    #: The one copy that has it, since it writes files; None: every one.
    only: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How to make environments like those that were given."""

    #: Id, or the name of the environment's class.
    name: str
    #: Makes the copy of a number; None: ``gymnasium.make`` of name and arguments is enough.
    make: Callable[..., gymnasium.Env] | None = None
    #: Arguments of the constructor.
    kwargs: Row = field(default_factory=dict)
    #: How many there were; None: a single one, which says nothing.
    n_envs: int | None = None


def taken_apart(env: object) -> Taken:
    """Return how to make environments like one, or like the several of a vector environment.

    Parameters
    ----------
    env
        As the caller made it, which is not changed: of ``gymnasium.make``, with what the caller has set on it; an
        object of the caller's own class, which is copied as it stands; or several of these as gymnasium's and
        Stable-Baselines3's vector environments hold them.

    Raises
    ------
    EnvError
        If it is none, or several that do not tell what they were made with, or one of their wrappers is for several.
    """
    if hasattr(env, "num_envs"):
        return _several(env, int(env.num_envs))
    return _one(env, 0, {})


def _one(env: object, at: int, fresh: dict[str, _Fresh]) -> Taken:
    """Return how to make an environment; its number `at` among several is that of its one copy that writes files."""
    if not isinstance(env, gymnasium.Env):
        raise EnvError(
            "env must be an environment, its id, a class or function that returns one, or a vector environment, "
            f"got {env!r}"
        )
    spec, bare, layers = env.spec, env.unwrapped.spec, _layers(env)
    known = spec is not None and bare is not None and bare.id in gymnasium.registry
    if not known or not all(_file(layer) or "_saved_kwargs" in vars(layer) for layer in layers):
        return _own(env, at)
    taken = _registered(replace(bare, kwargs=spec.kwargs), [_layer(each, at) for each in layers])
    alike = repr(_key(taken))
    if alike not in fresh:
        fresh[alike] = _fresh(taken)
    return _as_it_stands(env, taken, *fresh[alike])


def sourced(env: object) -> Facts:
    """Return where environments like a given one come from, as a task's fields say it.

    Parameters
    ----------
    env
        An id, a class, a function, or what :func:`taken_apart` takes.

    Raises
    ------
    EnvError
        As :func:`taken_apart`, or if it cannot be copied.
    """
    if isinstance(env, str):
        return {"env": env, "env_factory": None, "env_kwargs": {}}
    made = hasattr(env, "step") and not isinstance(env, type)
    taken = Taken(name=display_name(env), make=env) if callable(env) and not made else taken_apart(env)
    try:
        factory = None if taken.make is None else pack(taken.make)
    except ValueError as error:
        raise EnvError(f"{error}: pass its class, or a function") from error
    return {"env": taken.name, "env_factory": factory, "env_kwargs": taken.kwargs}


def kept(env: object) -> Callable[..., gymnasium.Env]:
    """Return what gives an environment that cannot be copied: itself, as often as it is wanted, never closed."""
    return partial(_itself, env)


# -------------------------------------------------------------------- several
def _several(env: object, n_envs: int) -> Taken:
    """Return how to make the environments of a vector environment."""
    frames: list[_Layer] = []
    while inner := getattr(env, "venv", None) or (isinstance(env, gymnasium.vector.VectorWrapper) and env.env):
        name = type(env).__name__
        if name in _NORMALISING:
            raise EnvError(
                f"{name} is a setting here: give the environments in it, and normalize=True; "
                "model.set_statistics takes the statistics that it has"
            )
        if name == "VecVideoRecorder":
            raise EnvError(
                f"{name} films what is stepped here: give RecordVideo of gymnasium.wrappers around each of them"
            )
        if name == "VecFrameStack":
            from drlnb.rl.envs.wrapper_classes import FrameStack

            frames.append(_Layer(FrameStack, {"n_stack": attrgetter("stacked_obs.n_stack")(env)}))
        elif (
            name == "VecTransposeImage"
            and getattr(env, "skip", False)
            and _channels_last(attrgetter("observation_space")(env))
        ):
            raise EnvError(
                "VecTransposeImage(skip=True) does not count: the smallest axis of an image has its channels"
            )
        elif _file(env):  # a VecMonitor's, whose one file all copies write
            frames.append(_layer(env, None))
        elif name not in _LOOK_ON_SEVERAL:
            raise EnvError(
                f"{name} goes around several environments: give the id or a function, n_envs={n_envs}, and in "
                "env_wrappers what goes around one"
            )
        env = inner
    copies = list(_copies(env))
    taken = copies[0]
    if any(_key(each) != _key(taken) for each in copies):
        taken = Taken(name=taken.name, make=partial(_copy_of, copies))
    if frames:
        taken = Taken(name=taken.name, make=partial(_wrapped, taken, frames[::-1]))
    return replace(taken, n_envs=n_envs)


def _channels_last(space: gymnasium.Space) -> bool:
    parts = space.spaces.values() if isinstance(space, gymnasium.spaces.Dict) else (space,)
    return any(len(part.shape or ()) == 3 and np.argmin(part.shape) == 2 for part in parts)


def _copies(env: object) -> Iterator[Taken]:
    """Yield how to make each environment of a bare vector environment; one stands for all that are alike."""
    spec = getattr(env, "spec", None)
    name = type(env).__name__ if spec is None else spec.id
    if envs := getattr(env, "envs", None):
        fresh: dict[str, _Fresh] = {}
        for at, each in enumerate(envs):
            yield _one(each, at, fresh)
    elif functions := getattr(env, "env_fns", None):
        yield Taken(name=name, make=partial(_called, tuple(functions)))
    elif hasattr(env, "get_attr"):  # Stable-Baselines3's processes
        yield from map(partial(_by_spec, name), env.get_attr("spec"))
    else:
        kwargs = {} if spec is None else {key: value for key, value in spec.kwargs.items() if key not in _OF_SEVERAL}
        yield _by_spec(name, spec and replace(spec, kwargs=kwargs))


def _by_spec(name: str, spec: EnvSpec | None) -> Taken:
    untold = f"{name} does not tell what its environments were made with: pass their function, and n_envs"
    if spec is None:
        raise EnvError(untold)
    registered = gymnasium.registry.get(spec.id, spec)
    own = spec.additional_wrappers[len(registered.additional_wrappers) :]
    layers = [_Layer(TimeLimit, {"max_episode_steps": n}) for n in [spec.max_episode_steps] if n]
    layers += [_Layer(load_env_creator(each.entry_point), each.kwargs) for each in own if each.name not in _LOOK_ON]
    if any(each.kwargs is None for each in own if each.name not in _LOOK_ON):
        raise EnvError(untold)
    return _registered(replace(spec, additional_wrappers=registered.additional_wrappers), layers)


def _key(taken: Taken) -> object:
    """Return what two environments have in common that are made alike."""
    if taken.make is None:
        return taken.name, taken.kwargs
    return (taken.name, taken.make.args) if isinstance(taken.make, partial) and taken.make.func is _made else taken


# -------------------------------------------------------------------- one
def _registered(bare: EnvSpec, layers: Sequence[_Layer]) -> Taken:
    """Return how to make a registered environment with its wrappers, innermost first."""
    drawn = any(kind.__name__ in _DRAWING for kind, *_ in layers)
    kwargs = {key: value for key, value in bare.kwargs.items() if key != "render_mode" or drawn}
    registered = gymnasium.registry.get(bare.id, bare)
    if registered.additional_wrappers or not all(kind is TimeLimit for kind, *_ in layers):
        return Taken(name=bare.id, make=partial(_made, replace(bare, kwargs=kwargs), tuple(layers)))
    limit = min((each["max_episode_steps"] for _, each, _ in layers), default=None)
    same = limit == registered.max_episode_steps
    return Taken(name=bare.id, kwargs=kwargs if same else kwargs | {"max_episode_steps": limit or -1})


def _layers(env: gymnasium.Env) -> list[gymnasium.Wrapper]:
    """Return the wrappers around an environment that have a part in training, innermost first."""
    layers = []
    while isinstance(env, gymnasium.Wrapper):
        layers.append(env)
        env = env.env
    return [layer for layer in reversed(layers) if type(layer).__name__ not in _LOOK_ON or _file(layer)]


def _file(layer: object) -> str | None:
    """Return the file that a ``Monitor`` or ``VecMonitor`` of Stable-Baselines3's writes; None: none."""
    writer = vars(layer).get("results_writer")
    return None if writer is None else str(writer.file_handler.name)


def _layer(layer: gymnasium.Wrapper, at: int | None) -> _Layer:
    """Return how to make a wrapper again; its arguments gymnasium's ``RecordConstructorArgs`` keeps."""
    if path := _file(layer):
        held = vars(layer)
        about = {"path": path, "info_keywords": held["info_keywords"], "started": held["t_start"]}
        return _Layer(MonitorFile, about, at)
    arguments = {key: value for key, value in vars(layer)["_saved_kwargs"].items() if key != "env"}
    if isinstance(layer, TimeLimit):
        arguments["max_episode_steps"] = layer._max_episode_steps  # which scripts set themselves
    return _Layer(type(layer), arguments, at if _writes(layer) else None)


def _own(env: gymnasium.Env, at: int) -> Taken:
    """Return how to copy an environment as it stands, without the wrappers around it that look on."""
    files: list[_Layer] = []
    while isinstance(env, gymnasium.Wrapper) and type(env).__name__ in _LOOK_ON:
        files += [_layer(env, at)] if _file(env) else []
        env = env.env
    taken = Taken(name=type(env.unwrapped).__name__, make=partial(_copy, env))
    return replace(taken, make=partial(_wrapped, taken, files[::-1])) if files else taken


def _fresh(taken: Taken) -> _Fresh:
    """Return the attributes of a new environment, and those after a few steps; of each wrapper, innermost first."""
    made = _make(taken, _NO_COPY)
    before = [_plain(layer) for layer in _chain(made)]
    with suppress(Exception):  # foreign code: what is wrong with it the probe says
        made.reset(seed=0)
        for _ in range(_STEPS):
            made.step(made.action_space.sample())
    after = [_plain(layer) for layer in _chain(made)]
    made.close()
    return before, after


def _as_it_stands(env: gymnasium.Env, taken: Taken, *fresh: list[dict[str, bytes]]) -> Taken:
    """Return how to make an environment with what the caller has set on it: attributes that steps do not change."""
    changed = [
        {
            name: vars(layer)[name]
            for name, value in _plain(layer).items()
            if value != first.get(name) and first.get(name) == last.get(name)
        }
        for layer, first, last in zip(_chain(env), *fresh, strict=True)
    ]
    return replace(taken, make=partial(_changed, taken, changed), kwargs={}) if any(changed) else taken


def _chain(env: gymnasium.Env) -> list[gymnasium.Env]:
    """Return an environment and the wrappers around it that every copy has as they are, innermost first."""
    return [env.unwrapped, *(layer for layer in _layers(env) if type(layer) is not TimeLimit and not _writes(layer))]


def _writes(layer: gymnasium.Env) -> bool:
    """Return whether a wrapper writes files, so that one copy alone has it: all would write the same."""
    return type(layer).__name__ in ("RecordVideo", "MonitorFile") or _file(layer) is not None


def _plain(layer: gymnasium.Env) -> dict[str, bytes]:
    """Return the attributes that are numbers, texts, arrays or lists of them, each in a form that can be compared."""
    return {name: pickle.dumps(value) for name, value in vars(layer).items() if name not in _ANEW and _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple | set):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.items()))
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    return value is None or isinstance(value, bool | int | float | str | np.generic)


# -------------------------------------------------------------------- what makes them, elsewhere
def _made(bare: EnvSpec, wrappers: Sequence[_Layer], index: int, **kwargs: object) -> gymnasium.Env:
    """Make an environment in its wrappers; those that its own constructor puts around are there already."""
    made = gymnasium.make(bare, **kwargs)
    return _around(made, wrappers[len(_layers(made)) :], index)


def _around(made: gymnasium.Env, layers: Sequence[_Layer], index: int) -> gymnasium.Env:
    """Put wrappers around an environment, innermost first; one that writes files around a single copy."""
    for kind, arguments, only in layers:
        if only is None or only == index:
            made = kind(made, **arguments)
    return made


def _changed(taken: Taken, changed: Sequence[Mapping[str, object]], index: int, **kwargs: object) -> gymnasium.Env:
    """Make an environment, and set on it and its wrappers what the caller has set."""
    made = _make(taken, index, **kwargs)
    for layer, values in zip(_chain(made), changed, strict=True):
        for name, value in values.items():
            setattr(layer, name, value)
    return made


def _copy(env: gymnasium.Env, index: int, render_mode: str | None = None) -> gymnasium.Env:
    """Return a caller's own environment, which was copied to get here; generators of further copies are their own."""
    held = vars(env.unwrapped)
    if render_mode is not None:
        held["render_mode"] = render_mode
    for name, value in held.items() if index else ():
        if isinstance(value, np.random.Generator):
            held[name] = np.random.default_rng([index, value.bit_generator.random_raw()])
        elif isinstance(value, np.random.RandomState):
            value.seed([index, value.randint(2**31)])
    return env


def _itself(env: gymnasium.Env, index: int) -> gymnasium.Env:
    if index:
        name = type(env.unwrapped).__name__
        raise EnvError(f"{name} cannot be copied, so there is one of it alone: pass its class, or a function")
    return _StaysOpen(env)


class _StaysOpen(gymnasium.Wrapper):
    """An environment of the caller's, who closes it."""

    def close(self) -> None:
        """Leave it open."""


def _called(functions: Sequence[Callable[[], gymnasium.Env]], index: int) -> gymnasium.Env:
    return functions[index % len(functions)]()


def _copy_of(copies: Sequence[Taken], index: int, **kwargs: object) -> gymnasium.Env:
    return _make(copies[index % len(copies)], index, **kwargs)


def _wrapped(taken: Taken, layers: Sequence[_Layer], index: int, **kwargs: object) -> gymnasium.Env:
    return _around(_make(taken, index, **kwargs), layers, index)


def _make(taken: Taken, index: int, **kwargs: object) -> gymnasium.Env:
    if taken.make is None:
        return gymnasium.make(taken.name, disable_env_checker=True, **taken.kwargs, **kwargs)
    return taken.make(index, **taken.kwargs, **kwargs)
