"""Read what was given as an environment: an id, a class, a function, or one that gymnasium has made already."""

from functools import partial

from drlnb.fleet.plain import Plain, Row
from drlnb.fleet.tasks.task import source_of
from drlnb.records.errors import EnvError
from drlnb.records.spec import TaskSpec

__all__ = ["environment", "spaces_of"]

#: What `gymnasium.make` adds by itself, and what has no part in training.
_NOT_OURS = {"render_mode"}


def environment(env: object, env_kwargs: Plain | None) -> tuple[str, str | None, Row]:
    """Return an environment's id or name, its factory as text (None for an id), and its constructor's arguments.

    Parameters
    ----------
    env
        An id, a class or function that returns an environment, or an environment of ``gymnasium.make``; that one is
        not used itself: collectors make their own.
    env_kwargs
        Arguments of the constructor.

    Raises
    ------
    EnvError
        If it is something else, or cannot travel to other processes.
    """
    made = not isinstance(env, type) and hasattr(env, "step") and hasattr(env, "reset")
    if isinstance(env, str) or (callable(env) and not made):
        name, factory = source_of(env)
        return name, factory, dict(env_kwargs or {})
    return _made_before(env, env_kwargs)


def _made_before(env: object, env_kwargs: Plain | None) -> tuple[str, str | None, Row]:
    import gymnasium

    if hasattr(env, "num_envs"):
        raise EnvError(f"{type(env).__name__} holds several environments: pass the id, and n_envs={env.num_envs}")
    if not isinstance(env, gymnasium.Env):
        raise EnvError(f"env must be an environment's id, a class or a function, got {env!r}")
    if env_kwargs:
        raise EnvError("env_kwargs are for an id or a class; this environment is made already")
    spec = env.spec
    if spec is None:
        name = type(env.unwrapped).__name__
        raise EnvError(f"{name} was not made by gymnasium.make: pass its class, or a function that returns it")
    kwargs = {key: value for key, value in spec.kwargs.items() if key not in _NOT_OURS}
    if spec.additional_wrappers:
        factory = source_of(partial(gymnasium.make, spec))[1]
        return str(spec.id), factory, {}
    return source_of(spec.id)[0], None, kwargs


def spaces_of(spec: TaskSpec) -> Row:
    """Try a task's environment in this process; return its spaces as plain data.

    Raises
    ------
    EnvError
        If it cannot be made, or breaks gymnasium's contract.
    UnsupportedSpace
        If no algorithm here can serve a space.
    """
    from drlnb.rl.envs.make import probe

    return probe(spec)
