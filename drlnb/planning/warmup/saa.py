"""Choose the start time that would have cost least in the latest rounds, if it pays: sample average approximation.

The fallback (a collector starts at the parameters' arrival at the latest) makes the cost non-convex, so candidates are
searched.  A minimum over few rounds flatters itself: a plan must save more than one standard error over starting at
the arrival.
"""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from drlnb.planning.warmup.plan import Candidate, WarmupPlan
from drlnb.records.units import said_s

__all__ = ["SAA_QUANTILES", "saa_plan", "stopping_pays"]

#: Range of the quantiles of gap minus start that are candidates: later starts than .6 are late more often than not.
SAA_QUANTILES = (0.0, 0.6)
#: Decimals of what is journalled: microseconds.
_DIGITS = 6

_Array = npt.NDArray[np.float64]


def saa_plan(
    gap_s: npt.ArrayLike,
    start_s: npt.ArrayLike,
    rho: float = 1.0,
    *,
    kappa: float = 1.0,
    n_candidates: int = 25,
    margin: bool = True,
) -> WarmupPlan:
    """Choose the start time that would have cost least in the rounds given.

    The cost of a round is ``rho max_i (min(u, X) + S_i - X)+ + mean_i (X - min(u, X) - S_i)+`` with start time u,
    gap X and start durations S.  Candidates: quantiles 0 to .6 of ``X - S``, ``min X - max S``, 0, and cold.

    Parameters
    ----------
    gap_s
        Seconds from a worker's sending to the arrival of the next parameters, oldest round first; shape ``(k,)`` if
        all workers send together, else ``(k, n)``: then workers differ by the difference of their median gaps.
    start_s
        Start durations of the same rounds, in seconds; shape ``(k, n)``.
    rho
        Cost of one second of a delayed round, relative to one second of all its workers idle; above 0.
    kappa
        Price of one second of starting, relative to one second of an idle worker; above 0.
    n_candidates
        Quantiles that are weighed, at least 2.
    margin
        Plan only if the mean paired saving over cold exceeds its standard error.

    Returns
    -------
    WarmupPlan
        ``start`` with its time, ``cold``, or ``keep`` if even the best start costs more than not to stop.

    Raises
    ------
    ValueError
        If a value is not finite or negative, shapes are unequal, there are fewer than 2 rounds, or `rho`, `kappa` or
        `n_candidates` is below its limit.

    References
    ----------
    The leasing patent, claim 8 (b) and (c); the rule is ours (docs/decisions/0008).

    Examples
    --------
    Starts always take 1 s, parameters always come after 5 s: start after 4 s.

    >>> plan = saa_plan([5.0] * 8, [[1.0, 1.0]] * 8)
    >>> plan.action, plan.start_after_s, plan.lead_s
    ('start', 4.0, 1.0)
    """
    gaps, starts = _checked(gap_s, start_s)
    _check_prices(rho, kappa, n_candidates)
    return _choose(gaps, starts, rho, kappa=kappa, n_candidates=n_candidates, margin=margin)


def stopping_pays(idle_s: float, wait_s: float, start_s: float, gap_s: float, *, rho: float, kappa: float) -> bool:
    """Return whether to stop a collector and start it again costs less than to let it idle.

    Parameters
    ----------
    idle_s, wait_s, start_s, gap_s
        Expected idle time of a collector, wait of the round, duration of a start and gap, in seconds.
    rho, kappa
        Price of one second of the round's wait and of starting, relative to one second of an idle collector.

    Examples
    --------
    >>> stopping_pays(0.4, 0.5, 1.4, 6.0, rho=1.0, kappa=1.0)
    True
    >>> stopping_pays(0.0, 0.04, 0.04, 0.06, rho=1.0, kappa=1.0)
    False
    """
    return idle_s + rho * wait_s + kappa * start_s < gap_s


def _choose(gaps: _Array, starts: _Array, rho: float, *, kappa: float, n_candidates: int, margin: bool) -> WarmupPlan:
    offsets = _offsets(gaps)
    times = _times(gaps - offsets, starts, n_candidates)
    wait, idle = _outcomes(times, offsets, gaps, starts)
    best, saved, error = _best(rho * wait + idle)
    chosen = best if saved > (error if margin else 0.0) else len(times) - 1
    table = _table(times, wait, idle)
    after, wait_s, idle_s = table[chosen]
    gap, start = float(gaps.mean()), float(starts.mean())
    plan = WarmupPlan(
        action="start",
        reason=f"saves {said_s(saved)} +- {said_s(error, 2)} a round over {len(gaps)} rounds",
        expected_wait_s=wait_s,
        expected_idle_s=idle_s,
        candidates=table,
        candidate_errors=_errors(wait, idle),
        saved_s=round(saved, _DIGITS),
        saved_error_s=round(error, _DIGITS),
    )
    if not stopping_pays(idle_s, wait_s, start, gap, rho=rho, kappa=kappa):
        reason = f"stopping costs more than the gap of {said_s(gap)}: not stopped"
        return replace(plan, action="keep", reason=reason, expected_wait_s=0.0, expected_idle_s=round(gap, _DIGITS))
    if after is None:
        noise = f"saving {said_s(saved, 2)} +- {said_s(error, 2)} is noise"
        why = noise if saved > 0 else "no planned time saves anything"
        return replace(plan, action="cold", reason=f"{starts.size} starts of {said_s(start)}: {why}, pre-warming off")
    return replace(
        plan,
        start_after_s=after,
        offsets_s=tuple(offsets.tolist()) if offsets.any() else (),
        lead_s=round(float(np.median(gaps - offsets)) - after, _DIGITS),
    )


def _checked(gap_s: npt.ArrayLike, start_s: npt.ArrayLike) -> tuple[_Array, _Array]:
    """Return gaps of shape (k, 1) or (k, n) and starts of shape (k, n)."""
    gaps, starts = np.asarray(gap_s, dtype=float), np.asarray(start_s, dtype=float)
    for name, values in (("gap_s", gaps), ("start_s", starts)):
        wrong = ~(np.isfinite(values) & (values >= 0))
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(f"{name}{list(where)} must be finite and >= 0 s, got {values[where]}")
    if starts.ndim != 2 or gaps.ndim not in (1, 2):
        raise ValueError(
            f"gap_s must have shape (k,) or (k, n) and start_s (k, n), got {gaps.shape} and {starts.shape}"
        )
    if gaps.shape not in {starts.shape, starts.shape[:1]} or starts.shape[1] < 1:
        raise ValueError(f"gap_s must be of as many rounds as start_s, got shapes {gaps.shape} and {starts.shape}")
    if len(gaps) < 2:
        raise ValueError(f"gap_s must hold >= 2 rounds, got {len(gaps)}")
    return gaps.reshape(len(gaps), -1), starts


def _check_prices(rho: float, kappa: float, n_candidates: int) -> None:
    for name, value in (("rho", rho), ("kappa", kappa)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be finite and > 0, got {value}")
    if n_candidates < 2:
        raise ValueError(f"n_candidates must be >= 2, got {n_candidates}")


def _offsets(gaps: _Array) -> _Array:
    """Return by how many seconds each worker's median gap lies above the mean of them; shape of one round."""
    medians = np.median(gaps, axis=0)
    offsets: _Array = np.round(medians - medians.mean(), _DIGITS)
    return offsets


def _times(gaps: _Array, starts: _Array, n_candidates: int) -> _Array:
    """Return the candidates, rising, then infinity: cold."""
    quantiles = np.quantile(gaps - starts, np.linspace(*SAA_QUANTILES, n_candidates))
    candidates = np.append(quantiles, (0.0, gaps.min() - starts.max()))
    return np.append(np.unique(np.round(np.maximum(candidates, 0.0), _DIGITS)), math.inf)


def _outcomes(times: _Array, offsets: _Array, gaps: _Array, starts: _Array) -> tuple[_Array, _Array]:
    """Return wait and idle time by candidate and round, in seconds; shapes ``(c, k)``."""
    after = np.minimum(np.maximum(times[:, None, None] + offsets, 0.0), gaps)
    ready = after + starts - gaps
    return np.maximum(ready, 0.0).max(axis=2), np.maximum(-ready, 0.0).mean(axis=2)


def _best(cost: _Array) -> tuple[int, float, float]:
    """Return the cheapest planned candidate, what it saves over cold, and that mean's standard error, in seconds."""
    means = cost.mean(axis=1)
    # Of equal ones the latest start: it holds a collector least.
    best = int(len(means) - 2 - np.argmin(means[-2::-1]))
    saving = cost[-1] - cost[best]
    return best, float(saving.mean()), float(saving.std(ddof=1)) / math.sqrt(len(saving))


def _errors(wait: _Array, idle: _Array) -> tuple[tuple[float, float, float], ...]:
    """Return the standard errors of the wait saved over cold and of the idle time, and how they go along, by candidate.

    With them the error of ``rho x wait saved - idle time`` is known for every rho.  Three digits: what an error knows.
    """
    count = wait.shape[1]
    saved, spent = wait[-1] - wait, idle - idle[-1]
    saved, spent = saved - saved.mean(axis=1, keepdims=True), spent - spent.mean(axis=1, keepdims=True)
    scale = (count - 1) * count
    variances = [np.einsum("ck,ck->c", *pair) / scale for pair in ((saved, saved), (spent, spent), (saved, spent))]
    of_saved, of_spent, both = variances
    product = np.sqrt(of_saved * of_spent)
    along = np.clip(np.divide(both, product, out=np.zeros_like(both), where=product > 0), -1.0, 1.0)
    rows = zip(np.sqrt(of_saved).tolist(), np.sqrt(of_spent).tolist(), along.tolist(), strict=True)
    return tuple((float(f"{a:.3g}"), float(f"{b:.3g}"), round(r, 3)) for a, b, r in rows)


def _table(times: _Array, wait: _Array, idle: _Array) -> tuple[Candidate, ...]:
    rows = zip(times.tolist(), wait.mean(axis=1).tolist(), idle.mean(axis=1).tolist(), strict=True)
    return tuple((None if math.isinf(u) else u, round(w, _DIGITS), round(i, _DIGITS)) for u, w, i in rows)
