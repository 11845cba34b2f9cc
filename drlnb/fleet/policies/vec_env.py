"""Step copies of a model's environment together, under the names of Stable-Baselines3's vector environments."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from drlnb.fleet.faces import say
from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.rows import scalar

if TYPE_CHECKING:
    import gymnasium

__all__ = ["VecEnv", "count_as_theirs"]

_Info = dict[str, object]
#: Numbers of some of the environments; None: all.
_Indices = int | Iterable[int] | None


def count_as_theirs() -> None:
    """Have our class count as Stable-Baselines3's, for which its functions ask, where that is imported by now."""
    theirs = sys.modules.get("stable_baselines3.common.vec_env.base_vec_env")
    if theirs is not None:
        theirs.VecEnv.register(VecEnv)


class VecEnv:
    """Environments that are stepped one after the other, and reset where an episode ends.

    Parameters
    ----------
    spec
        The task whose environments they are, with its spaces filled in.
    envs
        Environments to step; None: as many as the task has are made.
    render_mode
        Of those that are made; None: they are not drawn.
    """

    def __init__(
        self, spec: RlWork, envs: "Sequence[gymnasium.Env] | None" = None, *, render_mode: str | None = None
    ) -> None:
        from drlnb.rl.envs.make import make_env  # loads gymnasium, for which nobody waits who only starts a fleet

        made = [make_env(spec, index=i, render_mode=render_mode) for i in range(spec.n_envs)] if envs is None else envs
        #: The environments.
        self.envs: list[gymnasium.Env] = list(made)
        #: How many there are.
        self.num_envs = len(self.envs)
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        self.render_mode, self.metadata = render_mode, self.envs[0].metadata
        #: What the last resets said.
        self.reset_infos: list[_Info] = [{} for _ in self.envs]
        self._seeds: list[int | None] = [None] * self.num_envs
        self._returns, self._lengths = [0.0] * self.num_envs, [0] * self.num_envs
        self._actions: Sequence[object] = ()
        self._told = envs is not None
        #: Whether :meth:`close` was called.
        self.closed = False
        count_as_theirs()

    @property
    def unwrapped(self) -> "VecEnv":
        """Itself."""
        return self

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Set the seeds of the next reset: `seed`, `seed` + 1 and so on."""
        self._seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        return self._seeds

    def reset(self) -> np.ndarray:
        """Reset all; return observations ``(n, *obs)``."""
        seen = [self._reset(i) for i in range(self.num_envs)]
        self._seeds = [None] * self.num_envs
        return np.stack(seen)

    def _reset(self, i: int) -> np.ndarray:
        obs, self.reset_infos[i] = self.envs[i].reset(seed=self._seeds[i])
        self._returns[i], self._lengths[i] = 0.0, 0
        return np.array(obs)

    def step_async(self, actions: Sequence[object]) -> None:
        """Take the actions of the next :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[_Info]]:
        """Step all with the actions of :meth:`step_async`."""
        return self.step(self._actions)

    def step(self, actions: Sequence[object]) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[_Info]]:
        """Step all; return observations, rewards ``(n,)`` float32, whether an episode ended ``(n,)``, and infos.

        Where an episode ended the observation is the first one of the next; its own last one is
        ``info["terminal_observation"]``, and ``info["TimeLimit.truncated"]`` says whether it was cut.
        """
        seen, rewards, ended, infos = [], [], [], list[_Info]()
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            obs, reward, terminated, truncated, info = env.step(action)
            self._returns[i] += scalar(reward)
            self._lengths[i] += 1
            info = {**info, "TimeLimit.truncated": bool(truncated and not terminated)}
            if terminated or truncated:
                info |= {"terminal_observation": np.array(obs)}
                info |= {"episode": {"r": self._returns[i], "l": self._lengths[i]}}
                obs = self._reset(i)
            seen.append(np.array(obs))
            rewards.append(scalar(reward))
            ended.append(bool(terminated or truncated))
            infos.append(info)
        return np.stack(seen), np.array(rewards, np.float32), np.array(ended), infos

    def _of(self, indices: _Indices) -> "list[gymnasium.Env]":
        chosen = range(self.num_envs) if indices is None else [indices] if isinstance(indices, int) else indices
        return [self.envs[i] for i in chosen]

    def env_method(self, method_name: str, *args: object, indices: _Indices = None, **kwargs: object) -> list[object]:
        """Call a method of some environments, or of a wrapper around them; return what each gave."""
        if method_name.startswith("set"):
            self._tell()
        return [env.get_wrapper_attr(method_name)(*args, **kwargs) for env in self._of(indices)]

    def _tell(self) -> None:
        """Say once, of copies, that no training sees what is set on them."""
        if not self._told:
            self._told = True
            say(
                "get_env() gives copies: what is set there counts there alone; a callback's training_env or "
                "model.set_env(...) changes those that learn"
            )

    def get_attr(self, attr_name: str, indices: _Indices = None) -> list[object]:
        """Return an attribute of some environments, or of a wrapper around them."""
        return [env.get_wrapper_attr(attr_name) for env in self._of(indices)]

    def set_attr(self, attr_name: str, value: object, indices: _Indices = None) -> None:
        """Set an attribute of some environments, where it is, else of the innermost."""
        self._tell()
        for env in self._of(indices):
            if not env.set_wrapper_attr(attr_name, value, force=False):
                setattr(env.unwrapped, attr_name, value)

    def env_is_wrapped(self, wrapper_class: type, indices: _Indices = None) -> list[bool]:
        """Return whether a wrapper of a class is around some environments."""
        import gymnasium

        def around(env: gymnasium.Env) -> bool:
            while isinstance(env, gymnasium.Wrapper):
                if isinstance(env, wrapper_class):
                    return True
                env = env.env
            return False

        return [around(env) for env in self._of(indices)]

    def render(self, mode: str | None = None) -> object:
        """Draw the first environment, in the mode that it was made with, else as it is drawn first.

        Raises
        ------
        ConfigError
            If it is drawn in another mode, or has no such one.
        """
        env = self.envs[0]
        wanted = mode or env.render_mode or "rgb_array"
        if env.render_mode is None and wanted in env.metadata.get("render_modes", ()):
            env.unwrapped.render_mode = wanted
        if env.spec is not None and env.render_mode != wanted:  # an own one draws as it likes
            modes = ", ".join(env.metadata.get("render_modes", ())) or "none"
            raise ConfigError(
                f"render({wanted!r}): {env.spec.id} is drawn with render_mode={env.render_mode!r}, of {modes}: "
                "model.get_env(render_mode=...) makes others"
            )
        return env.render()

    def get_images(self) -> list[object]:
        """Return a picture of each environment."""
        return [env.render() for env in self.envs]

    def close(self) -> None:
        """Close them."""
        self.closed = True
        for env in self.envs:
            env.close()
