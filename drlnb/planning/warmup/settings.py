"""Which rule starts collectors, and what is a second of waiting worth?  The settings of warm-up, checked together."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any, Self

from drlnb.records.errors import ConfigError

__all__ = ["COLLECTOR_MODES", "PLANNER_NAMES", "START_MODES", "WarmupSettings"]

#: Planners of this version; ``seed`` is claim 8 of seed 000 to the letter.
PLANNER_NAMES = ("cold", "keep", "seed", "mean", "quantile", "saa", "progress")

#: What becomes of a collector that has sent: it rests, ends (seed 000, claim 2), or holds its CPU slot.
COLLECTOR_MODES = ("park", "respawn", "keep")

#: How a process is started: forked from a warm parent, or as a new interpreter (the seed's cold start).
START_MODES = ("zygote", "spawn")

#: Setting -> values that it can take.
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "planner": PLANNER_NAMES,
    "collector_mode": COLLECTOR_MODES,
    "start_mode": START_MODES,
}
#: Setting -> smallest whole number.  A standard error needs 2 rounds.
_COUNTS: Mapping[str, int] = {"window": 2, "filter_window": 2, "min_rounds": 2, "n_candidates": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupSettings:
    """Every setting of warm-up; the numbers are ours (seed 000 gives none).

    Raises
    ------
    ConfigError
        If any value is wrong; the message lists all of it.
    """

    #: One of :data:`PLANNER_NAMES`.
    planner: str = "saa"
    #: One of :data:`COLLECTOR_MODES`.
    collector_mode: str = "park"
    #: One of :data:`START_MODES`; where there is no fork, ``spawn``.
    start_mode: str = "zygote"
    #: Cost of one second of a delayed round, relative to one second of all its collectors idle; dimensionless.
    rho: float = 1.0
    #: Price of one second of starting, relative to one second of an idle collector; dimensionless.
    kappa: float = 1.0
    #: Latest rounds that a plan looks at.
    window: int = 64
    #: Latest rounds that the stability filter looks at.
    filter_window: int = 32
    #: Rounds without which nothing is planned.
    min_rounds: int = 8
    #: Start times that are weighed beside the earliest, the latest and none.
    n_candidates: int = 25

    def __post_init__(self) -> None:
        problems = _problems(asdict(self))
        if problems:
            raise ConfigError(problems)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Build settings from the keys given; the others keep their defaults.

        Raises
        ------
        ConfigError
            If a key is unknown or a value wrong; the message lists all of them.
        """
        names = [field.name for field in fields(cls)]
        problems = [_unknown(str(key), names) for key in mapping if key not in names]
        values = asdict(cls()) | {key: value for key, value in mapping.items() if key in names}
        problems += _problems(values)
        if problems:
            raise ConfigError(problems)
        return cls(**values)


def _unknown(key: str, names: list[str]) -> str:
    near = get_close_matches(key, names, n=1)
    return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _problems(values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a complete set of values, in words."""
    problems = [
        f"{name} must be one of {', '.join(known)}, got {values[name]!r}"
        for name, known in _CHOICES.items()
        if values[name] not in known
    ]
    problems += [
        f"{name} must be a finite number > 0, got {values[name]!r}"
        for name in ("rho", "kappa")
        if not _is_positive(values[name])
    ]
    wrong = [name for name, least in _COUNTS.items() if not _is_count(values[name], least)]
    problems += [f"{name} must be a whole number >= {_COUNTS[name]}, got {values[name]!r}" for name in wrong]
    if not {"min_rounds", "window", "filter_window"} & set(wrong):
        shortest = min(values["window"], values["filter_window"])
        if values["min_rounds"] > shortest:
            problems.append(
                f"min_rounds must be <= window and filter_window ({shortest}), got {values['min_rounds']}: "
                "nothing would ever be planned"
            )
    return problems


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
