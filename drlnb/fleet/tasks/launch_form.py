"""Read the fields of a launch form: text in, tasks or sentences of what is wrong out."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from drlnb.fleet.plain import parse_seeds
from drlnb.fleet.tasks.task import Task
from drlnb.records.errors import ConfigError, EnvError, MissingExtra
from drlnb.records.settings import choice, count
from drlnb.records.spec import ALGORITHMS

__all__ = ["LaunchForm", "known_envs"]

#: Most tasks of one form: a page of rows that can still be read.
_MOST_TASKS = 32
#: Largest budget: beyond, it is a slip of the finger (at 10,000 steps/s it takes three years).
_MOST_STEPS = 10**12


def known_envs() -> tuple[str, ...]:
    """Return the ids that gymnasium knows here, sorted."""
    import gymnasium

    return tuple(sorted(name for name in gymnasium.registry if "/" not in name or name.startswith("drlnb/")))


def _parse_count(text: str, field: str, most: int) -> int | None:
    plain = re.sub(r"(?<=\d)[,_ ](?=\d{3}\b)", "", text.strip())
    return count(1, most).read(field, plain) if plain else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchForm:
    """The fields as they were typed.

    Examples
    --------
    >>> LaunchForm(env="CartPole-v1", seeds="0-1").problems(n_slots=1)
    {}
    """

    env: str = ""
    algo: str = "ppo"
    seeds: str = "0"
    #: Budget per task in environment steps; empty: the tuned one.
    total_timesteps: str = ""
    #: Devices of the fleet, as ``Fleet(slots=...)`` counts them; empty: as many as it has.
    slots: str = ""

    def problems(self, n_slots: int) -> dict[str, str]:
        """Return what is wrong, field by field, in words; empty if the tasks can be started.

        Parameters
        ----------
        n_slots
            Devices that carry the fleet's slots.
        """
        checks: dict[str, Callable[[], object]] = {
            "env": lambda: _check_env(self.env),
            "algo": lambda: choice(*ALGORITHMS).read("algorithm", self.algo),
            "seeds": lambda: parse_seeds(self.seeds, most=_MOST_TASKS),
            "total_timesteps": lambda: _parse_count(self.total_timesteps, "steps", _MOST_STEPS),
            "slots": lambda: _check_slots(self.slots, n_slots),
        }
        problems = {}
        for field, check in checks.items():
            try:
                check()
            except (ConfigError, EnvError, MissingExtra) as error:
                problems[field] = str(error)
        return problems

    def tasks(self) -> list[Task]:
        """Return one task per seed.

        Raises
        ------
        ConfigError
            If a field is wrong.
        """
        steps = _parse_count(self.total_timesteps, "steps", _MOST_STEPS)
        env = self.env.strip()
        seeds = parse_seeds(self.seeds, most=_MOST_TASKS)
        return [Task(env, self.algo, total_timesteps=steps, seed=seed, group=env) for seed in seeds]

    def code(self) -> str:
        """Return the line of Python that starts the same tasks."""
        steps = _parse_count(self.total_timesteps, "steps", _MOST_STEPS)
        env, algo = self.env.strip(), "" if self.algo == "ppo" else f", {self.algo!r}"
        more = f", total_timesteps={steps}" if steps else ""
        seeds = parse_seeds(self.seeds, most=_MOST_TASKS)
        each = f"drlnb.Task({env!r}{algo}{more}, seed=seed, group={env!r}) for seed in {list(seeds)!r}"
        return f"run = fleet.train([{each}])"

    def settings(self) -> Mapping[str, str]:
        """Return the fields that are not as they begin."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


def _check_env(text: str) -> None:
    import gymnasium

    from drlnb.rl.envs.make import make_env

    env = text.strip()
    if not env:
        raise ConfigError("choose an environment, as CartPole-v1")
    if env in gymnasium.registry or re.fullmatch(r"[A-Za-z_][\w.]*:\S+", env):
        return  # modules are imported when the environment is tried, not while somebody types
    make_env(env).close()


def _check_slots(text: str, n_slots: int) -> None:
    wanted = _parse_count(text, "slots", 10_000)
    if wanted not in {None, n_slots}:
        raise ConfigError(f"this fleet has {n_slots}; for {wanted}: fleet.close(), then drlnb.Fleet(slots={wanted})")
