"""How long may a lease be silent, held, or idle?  The settings of leasing, checked together."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any, Self

from drlnb.records.errors import ConfigError

__all__ = ["HOLD_PLANNERS", "QUEUES", "LeasingSettings"]

#: Hold planners of this version; ``round`` is the seed's rule (000, paragraph 8).
HOLD_PLANNERS = ("round", "yield", "last")
#: Disciplines of the queue: ``fifo`` is first in, first out inside a priority; ``drr`` shares slot seconds out.
QUEUES = ("fifo", "drr")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingSettings:
    """Every setting of leasing; the numbers are ours (seed 000 gives none).

    Raises
    ------
    ConfigError
        If any value is wrong, or not ``renew_s < holder_ttl_s < ttl_s``; the message lists all of it.
    """

    #: When a task asks for a slot and gives it back: one of :data:`HOLD_PLANNERS`.
    hold: str = "yield"
    #: Who is next: one of :data:`QUEUES`.
    queue: str = "fifo"
    #: Seconds of waiting that weigh as much as one step of priority.
    age_quantum_s: float = 30.0
    #: Seconds after which freed slots are kept for a gang that waits.
    reserve_after_s: float = 30.0
    #: Share of a batch's compute above which a switch is too dear to yield for, dimensionless.
    switch_limit_frac: float = 0.2
    #: Seconds of silence after which the table takes a lease away: above a loop's hiccups, below TCP's 30 s.
    ttl_s: float = 10.0
    #: Seconds since its last good renewal after which the holder kills its own job: before the table gives up.
    holder_ttl_s: float = 8.0
    #: Seconds between renewals: three may be lost before the holder stops.
    renew_s: float = 2.0
    #: Seconds that the pool keeps an unanswered request open before it says "pending".
    poll_s: float = 20.0
    #: Long polls of a waiting request that may be missing before it loses its place; 0: it never does.
    lost_polls: int = 3
    #: Seconds between looks for silent leases.
    reap_s: float = 0.25
    #: Seconds by which such a look may come late before the pool blames its own loop.
    lag_threshold_s: float = 0.5
    #: Longest hold in seconds: bounds the progress of work, as `ttl_s` bounds silence.
    max_hold_s: float = 120.0
    #: A task may hold for so many times its own 95th percentile, if that is longer; 0: never longer.
    max_hold_factor: float = 8.0
    #: Seconds without progress after which a node kills its executor.
    compute_timeout_s: float = 60.0
    #: Seconds between asking an executor to stop and killing it.
    kill_grace_s: float = 3.0
    #: Executor deaths in a row, under more than one task, after which a slot is failed for good.
    strikes: int = 3
    #: Whether strikes count at all.
    quarantine: bool = True
    #: Prefer the slot that holds the task's parameters, then its home.
    residency: bool = True
    #: Say what queueing theory expects of the load (:class:`~drlnb.records.columns.leasing.LoadEstimated`).
    estimates: bool = True

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
    """Return the complaint about an unknown key, with the nearest known one if there is any."""
    near = get_close_matches(key, names, n=1)
    return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _problems(values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a complete set of values, in words."""
    problems: list[str] = []
    if values["hold"] not in HOLD_PLANNERS:
        problems.append(f"hold must be one of {', '.join(HOLD_PLANNERS)}, got {values['hold']!r}")
    if values["queue"] not in QUEUES:
        problems.append(f"queue must be one of {', '.join(QUEUES)}, got {values['queue']!r}")
    for key, least in (("strikes", 1), ("lost_polls", 0)):
        count = values[key]
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            problems.append(f"{key} must be a whole number >= {least}, got {count!r}")
    numbers = [key for key in ("max_hold_factor", "switch_limit_frac") if values[key] != 0]
    problems += [
        f"{key} must be a finite number >= 0, got {values[key]!r}" for key in numbers if not _is_duration(values[key])
    ]
    problems += [
        f"{key} must be true or false, got {values[key]!r}"
        for key in ("quarantine", "residency", "estimates")
        if not isinstance(values[key], bool)
    ]
    seconds = [key for key in values if key.endswith("_s")]
    wrong = [key for key in seconds if not _is_duration(values[key])]
    problems += [f"{key} must be a finite number > 0 s, got {values[key]!r}" for key in wrong]
    renew_s, holder_ttl_s, ttl_s = values["renew_s"], values["holder_ttl_s"], values["ttl_s"]
    if not {"renew_s", "holder_ttl_s", "ttl_s"} & set(wrong) and not renew_s < holder_ttl_s < ttl_s:
        problems.append(
            f"renew_s < holder_ttl_s < ttl_s must hold, got {renew_s:g} s, {holder_ttl_s:g} s, {ttl_s:g} s: "
            "a holder must stop before its slot can be lent again"
        )
    return problems


def _is_duration(value: Any) -> bool:
    """Return whether a value is a finite number of seconds above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
