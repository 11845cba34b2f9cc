"""Which settings does a task get?  Tuned ones where we have them, then what the caller overrides.

All wrong names and values are told at once.  Nothing that a file or a command line holds is ever evaluated.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

from drlnb.records.errors import ConfigError
from drlnb.records.spec import ALGORITHMS
from drlnb.rl.ppo_settings import PpoSettings, check_value

__all__ = ["ALIASES", "UNSUPPORTED", "Resolved", "parse_text", "resolve", "tuned"]

#: Budget and environments where neither caller nor settings.yml says: one million is the zoo's most common budget,
#: one environment is what Stable-Baselines3 makes of a bare id.
_DEFAULT_TIMESTEPS, _DEFAULT_ENVS = 1_000_000, 1

#: CleanRL's names for ours; ``num_minibatches`` and ``anneal_lr`` are converted.
ALIASES = {
    "num_envs": "n_envs",
    "num_steps": "n_steps",
    "update_epochs": "n_epochs",
    "clip_coef": "clip_range",
    "norm_adv": "normalize_advantage",
}

#: Stable-Baselines3's arguments that have no meaning here, and why.
UNSUPPORTED = {
    "use_sde": "state-dependent exploration is not built yet",
    "sde_sample_freq": "state-dependent exploration is not built yet",
    "rollout_buffer_class": "samples travel as fragments, there is no buffer class",
    "rollout_buffer_kwargs": "samples travel as fragments, there is no buffer class",
    "stats_window_size": "returns are averaged over the last 100 episodes",
    "tensorboard_log": "metrics go to metrics.csv and the journal",
    "device": "the fleet chooses the device",
    "seed": "the seed is the task's, not a hyper-parameter",
    "verbose": "printing is the command line's choice",
}

_NAMES = tuple(f.name for f in fields(PpoSettings))


@dataclass(frozen=True, slots=True)
class Resolved:
    """A task's settings, complete, and where they came from."""

    #: All of the algorithm's settings, plain data.
    hyperparameters: dict[str, Any]
    n_envs: int
    #: Budget in environment steps.
    total_timesteps: int
    #: In words for a person.
    origin: str


def parse_text(text: str) -> Any:
    """Turn a command line's text into a value: none, true, false, a number, JSON, else the text itself.

    Examples
    --------
    >>> [parse_text(text) for text in ("1e-3", "32", "true", "none", "lin_0.001", '{"net_arch": [8]}')]
    [0.001, 32, True, None, 'lin_0.001', {'net_arch': [8]}]
    """
    word = text.strip()
    constants = {"none": None, "null": None, "true": True, "false": False}
    if word.lower() in constants:
        return constants[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    if word[:1] in {"{", "["}:
        try:
            return json.loads(word)
        except ValueError:
            pass
    return word


def tuned(env: str) -> dict[str, Any] | None:
    """Return the entry of settings.yml for an environment id (a ``module:`` in front is ignored), or None."""
    import yaml  # here, so that importing this module stays light

    text = resources.files("drlnb.rl").joinpath("settings.yml").read_text(encoding="utf-8")
    entry = yaml.safe_load(text).get(env.rpartition(":")[2])
    return None if entry is None else {key: _read(value) for key, value in entry.items()}


def _read(value: Any) -> Any:
    return parse_text(value) if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    """Return 1e5 as 100000; leave the rest to the checks."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _split(overrides: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return overrides under our names; note unknown and unsupported ones."""
    found: dict[str, Any] = {}
    for given, raw in overrides.items():
        name, value = ALIASES.get(given, given), _read(raw)
        if name in found:
            problems.append(f"{given} and {name} are the same setting, give one of them")
        elif name in _NAMES or name in {"n_envs", "anneal_lr", "num_minibatches"}:
            found[name] = value
        elif name in UNSUPPORTED:
            if not (name == "use_sde" and value is False):
                problems.append(f"hyper-parameter {name!r} is not supported: {UNSUPPORTED[name]}")
        else:
            near = difflib.get_close_matches(name, [*_NAMES, "n_envs", *ALIASES], n=1)
            problems.append(f"unknown hyper-parameter {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return found


def _checked_count(name: str, value: Any, problems: list[str]) -> int:
    value = _whole(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        problems.append(f"{name} must be a whole number >= 1, got {value!r}")
        return 1
    return value


def _convert(values: dict[str, Any], n_envs: int, problems: list[str]) -> None:
    """Turn CleanRL's counts and flags into ours, in place."""
    if "num_minibatches" in values:
        n = _checked_count("num_minibatches", values.pop("num_minibatches"), problems)
        n_steps = values["n_steps"]
        if isinstance(n_steps, int) and n_steps * n_envs >= n:
            values["batch_size"] = n_steps * n_envs // n
        else:
            problems.append(f"num_minibatches = {n} must be <= n_steps * n_envs = {n_steps} * {n_envs}")
    anneal = values.pop("anneal_lr", False)
    if not isinstance(anneal, bool):
        problems.append(f"anneal_lr must be true or false, got {anneal!r}")
    elif anneal and not isinstance(values["learning_rate"], str):
        values["learning_rate"] = f"lin_{values['learning_rate']}"


def _check_batch(values: Mapping[str, Any], n_envs: int, problems: list[str]) -> None:
    batch, steps = values["batch_size"], values["n_steps"]
    if batch > steps * n_envs:
        total = f"{steps} * {n_envs} = {steps * n_envs}"
        problems.append(f"batch_size must be <= n_steps * n_envs = {total}, got {batch}")
    if values["normalize_advantage"] and batch == 1:
        problems.append("batch_size must be >= 2 with normalize_advantage (one sample has no spread), got 1")


def resolve(
    env: str,
    algo: str = "ppo",
    *,
    overrides: Mapping[str, Any] | None = None,
    n_envs: int | None = None,
    total_timesteps: int | None = None,
) -> Resolved:
    """Return the complete settings for an environment.

    Parameters
    ----------
    env
        Gymnasium id; a tuned entry of settings.yml is taken if there is one, else Stable-Baselines3's defaults
        (1 environment, 1 000 000 steps).
    algo
        Only ``ppo`` so far.
    overrides
        Settings by Stable-Baselines3's names (or CleanRL's); text is read as a command line's.
    n_envs, total_timesteps
        Override the entry's; None leaves them.

    Returns
    -------
    Resolved
        Settings that :class:`~drlnb.rl.ppo_settings.PpoSettings` accepts, as plain data.

    Raises
    ------
    ConfigError
        If anything is wrong; the message holds all problems.
    """
    problems: list[str] = []
    if algo not in ALGORITHMS:
        problems.append(f"algo must be one of {', '.join(ALGORITHMS)}, got {algo!r}")
    entry = tuned(env)
    given = _split(overrides or {}, problems)
    origin = "Stable-Baselines3's defaults" if entry is None else f"tuned settings for {env} (rl/settings.yml)"
    if given:
        origin += ", with " + ", ".join(sorted(given))
    base = {"n_envs": _DEFAULT_ENVS, "n_timesteps": _DEFAULT_TIMESTEPS, **(entry or {})}
    steps_of_entry, envs_of_entry = base.pop("n_timesteps"), base.pop("n_envs")
    envs_given = given.pop("n_envs", envs_of_entry)
    timesteps = steps_of_entry if total_timesteps is None else total_timesteps
    timesteps = _checked_count("total_timesteps", timesteps, problems)
    envs = _checked_count("n_envs", envs_given if n_envs is None else n_envs, problems)
    values: dict[str, Any] = {**PpoSettings().to_plain(), **base, **given}
    for name in ("n_steps", "batch_size", "n_epochs"):
        values[name] = _whole(values[name])
    _convert(values, envs, problems)
    wrong = [problem for name in _NAMES if (problem := check_value(name, values[name]))]
    problems += wrong
    if not wrong:
        _check_batch(values, envs, problems)
    if problems:
        raise ConfigError(problems)
    return Resolved(values, envs, timesteps, origin)
