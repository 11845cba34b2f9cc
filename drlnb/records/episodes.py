"""Sum up episodes of a task, under Stable-Baselines3's names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

__all__ = ["Episode", "episode", "rolling", "success", "success_rate"]

#: Raw return, length in steps and, where its environment judges that, whether it succeeded: 1 or 0.
Episode: TypeAlias = tuple[float, ...]


def episode(values: Iterable[float]) -> Episode:
    """Return what was read as an episode.

    Examples
    --------
    >>> episode([1, 9.0]), episode([0.5, 9, True])
    ((1.0, 9), (0.5, 9, 1.0))
    """
    total, length, *success = values
    return float(total), int(length), *map(float, success)


def success(info: object) -> tuple[float, ...]:
    """Return whether an episode succeeded, by its last step's ``info["is_success"]``; empty if that is not there."""
    said = info.get("is_success") if isinstance(info, Mapping) else None
    return () if said is None else (float(said),)


def success_rate(episodes: Iterable[Episode]) -> float | None:
    """Return the share of episodes that succeeded, of those whose environment judges that; None if none does.

    Examples
    --------
    >>> success_rate([(1.0, 9, 1.0), (1.0, 9), (1.0, 9, 0.0)])
    0.5
    """
    judged = [values[2] for values in episodes if len(values) > 2]
    return sum(judged) / len(judged) if judged else None


def rolling(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the means over the latest episodes; what cannot be said is left out."""
    if not episodes:
        return {}
    n, rate = len(episodes), success_rate(episodes)
    means = {f"rollout/{name}": sum(values[i] for values in episodes) / n for i, name in enumerate(_MEANS)}
    return means if rate is None else {**means, "rollout/success_rate": rate}


_MEANS = ("ep_rew_mean", "ep_len_mean")
