"""When does each collector start, seen from its own sending?  The rules, as pure functions of a view.

``cold`` and ``keep`` are the ends between which the others lie; ``seed`` is claim 8 of seed 000 to the letter, ``mean``
the same per worker, on gaps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from drlnb.planning.warmup.newsvendor import best_lead
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.saa import saa_plan
from drlnb.planning.warmup.settings import PLANNER_NAMES, WarmupSettings
from drlnb.planning.warmup.stability import Stability, stable_window

__all__ = ["Planner", "WarmupView", "planner_named"]

#: The quantiles of ``quantile``: gaps early, starts late.
_EARLY_Q, _LATE_Q = 0.05, 0.95
#: Decimals of what is told: microseconds.
_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupView:
    """What a planner may look at; times in seconds, oldest round first."""

    settings: WarmupSettings
    #: Gaps of the regime's latest rounds, by round and worker; shape ``(k, n)``.
    gap_s: Sequence[Sequence[float]] = ()
    #: Starts beside them; shape ``(k, n)``, or empty.
    start_s: Sequence[Sequence[float]] = ()
    #: Whole rounds; shape ``(k,)``.
    round_s: Sequence[float] = ()
    #: Start durations by worker, of its node, mode and number at once; n sequences.
    pools_s: Sequence[Sequence[float]] = ()

    def lack(self) -> str:
        """Return what is missing to plan a start, in words; empty if nothing is."""
        if len(self.gap_s) < self.settings.min_rounds:
            return f"{len(self.gap_s)} rounds of this regime known, {self.settings.min_rounds} needed"
        if not self.pools_s or not all(self.pools_s):
            return "no start has been measured yet"
        return ""


#: View in, plan out.
Planner = Callable[[WarmupView], WarmupPlan]


def cold(view: WarmupView) -> WarmupPlan:
    """Start at the arrival of the parameters: never idle, always pays the whole start."""
    del view
    return WarmupPlan(action="cold", reason="start at the arrival of the next parameters")


def keep(view: WarmupView) -> WarmupPlan:
    """Never stop: never late, always idle."""
    del view
    return WarmupPlan(action="keep", reason="collectors are never stopped")


def seed(view: WarmupView) -> WarmupPlan:
    """Plan one start for all: last start + mean of the filtered round times - mean start (seed 000, claim 8)."""
    verdict = stable_window(view.round_s, **_filter(view.settings))
    if not verdict.stable:
        return replace(_event(f"round times are not stable: {verdict.reason}"), filtered=_seen([verdict]))
    lead_s = fmean(value for pool in view.pools_s for value in pool)
    return WarmupPlan(
        action="start",
        reason=f"mean of {len(verdict.kept_s)} rounds - mean start: {verdict.reason}",
        start_after_s=max(0.0, fmean(verdict.kept_s) - lead_s),
        since="round",
        lead_s=lead_s,
        filtered=_seen([verdict]),
    )


def mean(view: WarmupView) -> WarmupPlan:
    """Plan each worker's start at the mean of its filtered gaps - its mean start (ours, after claim 8)."""
    verdicts = [stable_window(column, **_filter(view.settings)) for column in _columns(view.gap_s)]
    filtered = _seen(verdicts)
    for i, verdict in enumerate(verdicts):
        if not verdict.stable:
            return replace(_event(f"gaps of worker {i} are not stable: {verdict.reason}"), filtered=filtered)
    times = [fmean(verdict.kept_s) - fmean(pool) for verdict, pool in zip(verdicts, view.pools_s, strict=True)]
    plan = _each(times, fmean(map(fmean, view.pools_s)), f"mean gap - mean start: {verdicts[0].reason}")
    return replace(plan, filtered=filtered)


def quantile(view: WarmupView) -> WarmupPlan:
    """Plan each worker's start at the 5 % quantile of its gaps - the 95 % quantile of its starts: for large rho."""
    pairs = zip(_columns(view.gap_s), view.pools_s, strict=True)
    times = [float(np.quantile(column, _EARLY_Q) - np.quantile(pool, _LATE_Q)) for column, pool in pairs]
    lead_s = float(np.median(view.gap_s)) - fmean(times)
    return _each(times, lead_s, f"early gap - late start over {len(view.gap_s)} rounds")


def saa(view: WarmupView) -> WarmupPlan:
    """Plan the start that would have cost least in the latest rounds, if it pays."""
    if not view.start_s:
        return _event("no round whose starts were all measured")
    settings = view.settings
    return saa_plan(view.gap_s, view.start_s, settings.rho, kappa=settings.kappa, n_candidates=settings.n_candidates)


_PLANNERS: Mapping[str, Planner] = {
    "cold": cold,
    "keep": keep,
    "seed": seed,
    "mean": mean,
    "quantile": quantile,
    "saa": saa,
    "progress": saa,  # until the round's first event; the machine goes on from there
}
#: Planners that need no history.
_BLIND = ("cold", "keep")


def planner_named(name: str) -> Planner:
    """Return a planner that answers ``cold`` while its view lacks something.

    Raises
    ------
    ValueError
        If no planner has this name.

    Examples
    --------
    >>> planner_named("saa")(WarmupView(settings=WarmupSettings())).reason
    '0 rounds of this regime known, 8 needed: start at the arrival of the next parameters'
    """
    if name not in _PLANNERS:
        raise ValueError(f"warmup planner must be one of {', '.join(PLANNER_NAMES)}, got {name!r}")

    def plan(view: WarmupView) -> WarmupPlan:
        if name in _BLIND:
            return _PLANNERS[name](view)
        if lack := view.lack():
            return _event(lack)
        made = _PLANNERS[name](view)
        quantile, lead_s = best_lead(view.pools_s, view.settings.rho)
        return replace(made, newsvendor=(round(quantile, _DIGITS), round(lead_s, _DIGITS)))

    return plan


def _event(why: str) -> WarmupPlan:
    return WarmupPlan(action="cold", reason=f"{why}: start at the arrival of the next parameters")


def _each(times: Sequence[float], lead_s: float, reason: str) -> WarmupPlan:
    """Return a plan with one time per worker."""
    base = fmean(times)
    return WarmupPlan(
        action="start",
        reason=reason,
        start_after_s=base,
        offsets_s=tuple(value - base for value in times),
        lead_s=lead_s,
    )


def _seen(verdicts: Sequence[Stability]) -> tuple[tuple[int, float, float], ...]:
    """Return, for who asks later, how many rounds each verdict looked at, and the range of those that it keeps."""
    return tuple(
        (len(one.kept_s) + len(one.dropped_s), min(one.kept_s, default=0.0), max(one.kept_s, default=0.0))
        for one in verdicts
    )


def _columns(rows: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    return list(zip(*rows, strict=True))


def _filter(settings: WarmupSettings) -> dict[str, int]:
    return {"window": settings.filter_window, "min_rounds": settings.min_rounds}
