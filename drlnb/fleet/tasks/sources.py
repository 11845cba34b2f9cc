"""Find out where the environments of a task come from: an id, a function, or environments that were made."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from drlnb.fleet.faces import say
from drlnb.fleet.plain import Plain, Row
from drlnb.records.errors import EnvError
from drlnb.records.spec import RlWork
from drlnb.rl.pickled import is_kept

__all__ = ["Source", "as_it_stands", "source_of"]


class Source(NamedTuple):
    """Where environments come from."""

    #: Id, or what people see.
    name: str
    #: As text; None: the name is an id.
    factory: str | None
    kwargs: Row
    #: How many were given; None: one, or a way to make any number.
    n_envs: int | None = None


def source_of(env: object, env_kwargs: Plain | None = None, *, in_process: bool = False) -> Source:
    """Return where environments come from.

    Parameters
    ----------
    env
        An id, a class or function that returns an environment (a function may take the number of the copy), or an
        environment that was made, or several; these are not used themselves: collectors make their own.
    env_kwargs
        Arguments of the constructor.
    in_process
        An environment that cannot be copied is used itself, in this process, which a line says.

    Raises
    ------
    EnvError
        If it is something else, or cannot travel to other processes.
    """
    made = not isinstance(env, type) and hasattr(env, "step") and hasattr(env, "reset")
    if isinstance(env, str) or (callable(env) and not made):
        return Source(*_travelling(env), dict(env_kwargs or {}))
    from drlnb.rl.envs.given import kept, taken_apart
    from drlnb.rl.pickled import keep

    taken = taken_apart(env)
    if env_kwargs:
        raise EnvError("env_kwargs are for an id or a class; this environment is made already")
    if taken.make is None:
        return Source(*_travelling(taken.name), taken.kwargs, taken.n_envs)
    try:
        factory = _travelling(taken.make)[1]
    except EnvError as error:
        if not in_process:
            raise EnvError(f"{taken.name} cannot be copied: pass its class, or a function ({error})") from error
        if taken.n_envs not in {None, 1}:
            raise
        say(f"{taken.name} cannot be copied, so it trains in this process")
        factory = keep(kept(env))
    return Source(taken.name, factory, taken.kwargs, taken.n_envs)


def as_it_stands(spec: RlWork, env: object) -> RlWork:
    """Return the task with what the caller has set by now on the environment, or the several, that it was given."""
    held = getattr(env, "envs", None) or [env]
    if isinstance(env, type) or is_kept(spec.env_factory) or not all(hasattr(each, "unwrapped") for each in held):
        return spec  # an id or a function; or itself, in this process; or several in processes of their own
    from drlnb.rl.envs.given import taken_apart

    taken = taken_apart(env)
    try:
        factory = _travelling(taken.make or taken.name)[1]
    except EnvError:
        say(f"{taken.name} cannot be copied any more, so it trains as it was when the model was given it")
        return spec
    return replace(spec, env_factory=factory, env_kwargs=taken.kwargs)


def _travelling(env: str | Callable[..., object]) -> tuple[str, str | None]:
    """Return an environment's id or display name, and its factory as text; what a script registers travels with it."""
    make: Callable[..., object] | None = None if isinstance(env, str) else env
    if isinstance(env, str) and "gymnasium" in sys.modules:  # else nobody has registered anything
        from drlnb.rl.envs.suites import registered_here

        make = registered_here(env)
    if make is None:
        return str(env), None
    from drlnb.rl.pickled import display_name, pack

    try:
        return env if isinstance(env, str) else display_name(env), pack(make)
    except ValueError as error:
        raise EnvError(str(error)) from error
