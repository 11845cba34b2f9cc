"""Draw what other start times would have cost: the wait/idle curve of a plan, with cold and keep beside it."""

import math

import numpy as np

from drlnb.records.columns.warmup import WarmupPlanned
from drlnb.records.journal import Journal
from drlnb.views.drawing import words
from drlnb.views.drawing.payload import Content
from drlnb.views.drawing.pictures import Lines, axis, picture
from drlnb.views.drawing.view import Column, Number, View, numbered, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.warmup.lines import WarmupLine, line_to_draw

__all__ = ["curve"]

#: Price of a second of a delayed round where the journal names none: the default of ``warmup.rho``.
_RHO = 1.0
#: Likewise of a second of starting: the default of ``warmup.kappa``.
_KAPPA = 1.0
#: Latest rounds in a mean gap: as many as a plan looks at by default.
_GAPS = 64

CURVE = table(
    "points",
    Column("line", "line", "wait, idle time, cost, or a rule to compare with", kind="name"),
    Column("x", "start after", "planned seconds from sending to the start", unit="s"),
    Column("y", "seconds", "mean per round over the latest rounds, as the plan has it", unit="s"),
    Column("lo", "one error less", "cost less one standard error of what that start saves over cold", unit="s"),
    Column("hi", "one error more", "cost plus one such error: a plan needs this below the cost of cold", unit="s"),
)
NUMBERS = {
    "rho": ("rho", "", "cost of a second of a delayed round / cost of a second of an idle collector"),
    "best": ("least cost at", "s", "planned start after sending that costs least at this rho"),
    "wait": ("waits there", "s", "mean wait of a round at that start"),
    "idle": ("idle there", "s", "mean idle time of a collector at that start"),
    "cold": ("cold waits", "s", "mean wait if started at the arrival"),
    "keep": ("gap", "s", "mean from sending to the next parameters: what a collector idles if kept"),
    "start": ("a start takes", "s", "mean over the latest starts of this task between rounds"),
    "chosen": ("planned", "s", "what the newest plan chose, after sending; nothing: cold or keep"),
    "saved": ("saves", "s", "what the best planned start saves over cold, at the task's rho"),
    "error": ("+-", "s", "its standard error over the rounds that the plan looked at"),
}


def curve(journal: Journal | Fold, task: str | None = None, *, rho: float | None = None) -> View:
    """Return what the newest plan of a task has weighed: wait, idle time and cost by planned start.

    The cost is rho times the wait plus the idle time; what was weighed does not depend on rho, so the page's slider
    needs no new plan.  The band is one standard error of what each start saves over cold, over the same rounds: where
    it lies below the line of cold as a whole, a plan pays.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    task
        Name of the task; None: the first whose collectors are started between rounds.
    rho
        Cost of a second of a delayed round, relative to one of an idle collector; None: the task's own.

    Raises
    ------
    ValueError
        If there is no such task, or `rho` is not finite and above 0.
    """
    if rho is not None and not (math.isfinite(rho) and rho > 0):
        raise ValueError(f"rho must be finite and > 0, got {rho}")
    line = line_to_draw(fold_of(journal), task)
    weighed = line.weighed
    made = Lines()
    axes = (axis("planned start after sending", "s"), axis("mean per round", "s"))
    if weighed is None:
        why = "no plan has weighed start times yet: " + (line.newest_reason or "nothing was started between rounds")
        return picture("warmup.curve", line.fold, why, CURVE, made.body(*axes))
    own = float(line.settings.get("rho", _RHO))
    costs = _Costs(line, weighed, own if rho is None else rho)
    slider = _drawn(costs, made)
    said = f"{line.task}, round {weighed.round}, rho {words.number(costs.rho)}: {costs.said()}"
    notes, numbers, body = _curve_notes(weighed, own, costs.kappa), costs.numbers(weighed), made.body(*axes)
    facts = {"slider": slider}
    return picture("warmup.curve", line.fold, said, CURVE, body, notes=notes, numbers=numbers, facts=facts)


def _error_s(of_wait: float, of_idle: float, along: float, rho: float) -> float:
    """Return the standard error of what a candidate saves over cold at a price of waiting, in seconds."""
    return math.sqrt(max(0.0, (rho * of_wait) ** 2 + of_idle**2 - 2.0 * along * rho * of_wait * of_idle))


class _Costs:
    """What start times cost at a price of waiting, beside cold and keep; times in seconds."""

    def __init__(self, line: WarmupLine, weighed: WarmupPlanned, rho: float) -> None:
        self.rho = rho
        self.timed = [(u, w, i) for u, w, i in weighed.candidates if u is not None]
        self.cold = next(((w, i) for u, w, i in weighed.candidates if u is None), None)
        self.best = self._least(rho)
        #: Place among the timed ones of what the plan chose at the task's own price; None: cold or keep.
        chosen = self._least(float(line.settings.get("rho", _RHO))) if weighed.action == "start" else None
        self.chosen = self.timed.index(chosen) if chosen else None
        errors = zip(weighed.candidate_errors, weighed.candidates, strict=False)
        self.errors = [error for error, (u, *_) in errors if u is not None]
        self.error = [_error_s(*error, rho) for error in self.errors]
        _, gaps = line.gaps()
        self.gap = float(gaps[-_GAPS:].mean()) if len(gaps) else None
        taken = line["start_s"][np.isfinite(line["start_s"])]
        self.start = float(taken[-_GAPS:].mean()) if len(taken) else None
        self.kappa = float(line.settings.get("kappa", _KAPPA))

    def _least(self, rho: float) -> tuple[float, float, float] | None:
        return min(self.timed, key=lambda point: (rho * point[1] + point[2], -point[0]), default=None)

    def of(self, wait: float, idle: float) -> float:
        """Return the cost in seconds of an idle collector."""
        return self.rho * wait + idle

    def said(self) -> str:
        """Return in words what is cheapest."""
        cold = self.of(*self.cold) if self.cold else math.inf
        best = self.of(*self.best[1:]) if self.best else math.inf
        least = min(cold, best)
        spent = least + self.kappa * (self.start or 0.0)
        if self.gap is not None and spent >= self.gap:
            return (
                f"not to stop is cheapest ({words.duration(self.gap)} idle; to stop {words.duration(least)} and a "
                f"start of {words.duration(self.start)})"
            )
        if self.best is None or cold <= best:
            return f"nothing is cheaper than to start at the arrival ({words.duration(cold)})"
        return (
            f"cheapest to start {words.duration(self.best[0])} after sending ({words.duration(best)}; cold "
            f"{words.duration(cold)}, never to stop {words.duration(self.gap)})"
        )

    def numbers(self, weighed: WarmupPlanned) -> dict[str, Number]:
        """Return the numbers beside the picture."""
        best = self.best or (None, None, None)
        return numbered(
            NUMBERS,
            rho=self.rho,
            best=best[0],
            wait=best[1],
            idle=best[2],
            cold=self.cold[0] if self.cold else None,
            keep=self.gap,
            start=self.start,
            chosen=weighed.start_after_s,
            saved=weighed.saved_s,
            error=weighed.saved_error_s,
        )


def _drawn(costs: _Costs, made: Lines) -> Content:
    """Draw the lines, and return what the page needs to move rho: which line is the cost, cold's, the least."""
    u, wait, idle = (np.array([point[k] for point in costs.timed]) for k in range(3))
    cost = costs.rho * wait + idle
    made.add("rounds wait", "#D55E00", u, wait, style=("W", ""))
    made.add("collectors idle", "#E69F00", u, idle, style=("I", ""))
    band = (cost - costs.error, cost + costs.error) if costs.error else (np.nan, np.nan)
    made.add("cost: rho x wait + idle", "#0072B2", u, cost, style=("C", ""), band=band)
    span = [0.0, max(float(np.max(u, initial=0.0)), costs.gap or 0.0)]
    slider: Content = {"label": "rho", "value": costs.rho, "errors": [list(error) for error in costs.errors]}
    slider |= {"cost": 2, "cold": None, **dict.fromkeys(("line", "best", "chosen", "at"), -1)}
    if costs.cold:
        slider |= {"cold": list(costs.cold), "line": len(made.lines)}
        made.add("cold: start at the arrival", "#56B4E9", span, [costs.of(*costs.cold)] * 2, style=("O", "/"))
    if costs.gap is not None:
        made.add("keep: never stop", "#999999", span, [costs.gap] * 2, style=("K", "/"))
    if costs.best:
        slider["best"] = len(made.lines)
        made.add("least cost", "#009E73", costs.best[:1], [costs.of(*costs.best[1:])], style=("B", ""), dots=True)
    if costs.chosen is not None:
        slider |= {"chosen": len(made.lines), "at": costs.chosen}
        at = costs.chosen
        made.add("chosen by the plan", "#CC79A7", u[at : at + 1], cost[at : at + 1], style=("P", ""), dots=True)
    return slider


def _curve_notes(weighed: WarmupPlanned, own: float, kappa: float) -> tuple[str, ...]:
    if weighed.candidate_errors:
        rule = (
            "the band is one standard error of what a start saves over cold: a plan needs all of it below cold's line"
        )
    else:
        rule = (
            "a plan must save more than one standard error against cold, which this journal has only in those words, "
            "so no band is drawn"
        )
    return (
        f"the plan's own words ({weighed.planner}, rho {words.number(own)}): {weighed.reason}",
        rule,
        f"not in the lines: to stop costs {words.number(kappa)} (kappa) x the start, too",
        f"the line of keep is the mean time from sending to the next parameters, of the latest {_GAPS} rounds",
    )
