"""Filter the rounds that are a guide to the next one: the leasing patent's stability condition, in a form of ours.

Of the last rounds, m is the median and w = max(1.4826 MAD, 1 % of m, 1 ms): the floors are needed, because on equal
durations the MAD is 0.  Rounds farther than 3 w from m are dropped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Stability", "stable_window"]

#: Makes the median absolute deviation of a normal distribution its standard deviation.
_MAD_TO_SD = 1.4826
#: Floors of the width: share of the median, and seconds.
_FLOOR_FRAC, _FLOOR_S = 0.01, 1e-3
#: A round is kept within so many widths.
_KEPT_WIDTHS = 3.0
#: The latest few may lie so many widths off; beyond the second number the regime has ended.  Cutting at 2 costs more by
#: false alarms than a late cut does.
_DRIFT_WIDTHS, _SHIFT_WIDTHS = 2.0, 3.0
#: Rounds whose median says where durations are now.
_LATEST = 5
#: Least share kept, and largest relative width.
_SHARE_FRAC, _WIDTH_FRAC = 0.7, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """The filter's verdict on a history."""

    stable: bool
    #: Durations that passed, oldest first, in seconds; shape ``(k,)``.
    kept_s: tuple[float, ...]
    #: Those that did not, among the rounds looked at.
    dropped_s: tuple[float, ...]
    #: Median and width of the rounds looked at, in seconds.
    median_s: float
    width_s: float
    #: The latest rounds are of another regime.
    shifted: bool
    #: In words.
    reason: str


def stable_window(duration_s: Sequence[float], *, window: int = 32, min_rounds: int = 8) -> Stability:
    """Filter a history and say whether it is a guide to the next round.

    Stable means: at least `min_rounds` kept and 70 % of the window, width at most a quarter of the median, and the
    median of the last 5 within two widths.  If only this last condition fails, the last 8, 7, 6 or 5 rounds are tried
    alone; then all of them must be kept.

    Parameters
    ----------
    duration_s
        Durations of rounds, oldest first, in seconds; shape ``(n,)``.
    window
        Latest rounds that are looked at, at least 2.
    min_rounds
        Least number kept, at least 2.

    Returns
    -------
    Stability
        The verdict, with its reason in words.

    Raises
    ------
    ValueError
        If a duration is negative or not finite, or a count is below 2.

    References
    ----------
    The leasing patent, claim 8 (a); the condition itself is ours (docs/decisions/0008).

    Examples
    --------
    >>> verdict = stable_window([2.0, 2.1, 2.0, 1.9, 2.0, 2.1, 2.0, 9.0])
    >>> verdict.reason, verdict.dropped_s
    ('7 kept, 8 needed', (9.0,))
    """
    for name, value in (("window", window), ("min_rounds", min_rounds)):
        if value < 2:
            raise ValueError(f"{name} must be >= 2, got {value}")
    for i, seconds in enumerate(duration_s):
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"duration_s[{i}] must be finite and >= 0 s, got {seconds}")
    latest = tuple(duration_s)[-window:]
    if len(latest) < _LATEST:
        return _verdict(latest, needed=max(min_rounds, _LATEST))
    whole = _verdict(latest, needed=min_rounds)
    if whole.stable or not _only_drifts(whole, latest, min_rounds):
        return whole
    for n in range(min(8, len(latest)), _LATEST - 1, -1):
        short = _verdict(latest[-n:], needed=n, shifted=whole.shifted)
        if short.stable:
            return short
    return whole


def _width(values: Sequence[float]) -> tuple[float, float]:
    """Return median and width in seconds; zeros of nothing."""
    if not values:
        return 0.0, 0.0
    m = median(values)
    return m, max(_MAD_TO_SD * median(abs(x - m) for x in values), _FLOOR_FRAC * m, _FLOOR_S)


def _drift(values: Sequence[float], m: float) -> float:
    return abs(median(values[-_LATEST:]) - m) if values else 0.0


def _faults(values: Sequence[float], kept: Sequence[float], m: float, w: float, needed: int) -> list[str]:
    """Return what speaks against a window; drift, if it does, comes last."""
    faults = []
    if len(kept) < needed:
        faults.append(f"{len(kept)} kept, {needed} needed")
    if len(kept) < _SHARE_FRAC * len(values):
        faults.append(f"only {len(kept)} of {len(values)} kept")
    if w > _WIDTH_FRAC * m:
        faults.append(f"spread {w:.3g} s above a quarter of the median {m:.3g} s")
    if _drift(values, m) > _DRIFT_WIDTHS * w:
        faults.append(f"the last {_LATEST} rounds drift: median {median(values[-_LATEST:]):.3g} s, before {m:.3g} s")
    return faults


def _only_drifts(verdict: Stability, values: Sequence[float], needed: int) -> bool:
    faults = _faults(values, verdict.kept_s, verdict.median_s, verdict.width_s, needed)
    return len(faults) == 1 and "drift" in faults[0]


def _verdict(values: Sequence[float], *, needed: int, shifted: bool | None = None) -> Stability:
    m, w = _width(values)
    kept = tuple(x for x in values if abs(x - m) <= _KEPT_WIDTHS * w)
    faults = _faults(values, kept, m, w, needed)
    if shifted is None:
        shifted = len(values) >= _LATEST and _drift(values, m) > _SHIFT_WIDTHS * w
    return Stability(
        stable=not faults,
        kept_s=kept,
        dropped_s=tuple(x for x in values if abs(x - m) > _KEPT_WIDTHS * w),
        median_s=m,
        width_s=w,
        shifted=shifted,
        reason="; ".join(faults) or f"{len(kept)} of the last {len(values)} kept, median {m:.3g} s",
    )
