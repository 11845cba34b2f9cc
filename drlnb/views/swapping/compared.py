"""Draw what planners come to on one network: seconds against memory, throughput over batches, the patent's learner."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from drlnb.records.units import said_bytes
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Floats, Plain
from drlnb.views.drawing.pictures import Lines, axis, listing, picture, shown
from drlnb.views.drawing.view import Column, View, points, table
from drlnb.views.folds.swapping import Learnt
from drlnb.views.swapping.computed import COMPUTED, MIB

__all__ = ["choices", "front", "learnt", "pareto", "sweep", "values"]

CHOICES = table(
    "rows",
    Column("row", "planner", "whose plan it is", kind="series"),
    Column("time", "step", "predicted seconds of a step", unit="s"),
    Column("slower", "of keeping all", "relative to a step in which everything stays, as if there were room", unit="x"),
    Column("peak", "peak", "predicted greatest number of bytes in use", unit="MiB"),
    Column("fits", "fits", "whether that is within the budget", kind="name"),
    Column("counts", "rows", "how many rows have which action", kind="name"),
)
PARETO = points(
    ("peak", "MiB", "predicted greatest number of bytes in use"), ("time", "ms", "predicted seconds of a step")
)
FRONT = points(
    ("budget", "MiB", "bytes that a step may use"),
    ("time", "ms", "predicted seconds of a step; nothing where it does not fit"),
)
SWEEP = points(
    ("batch", "x", "multiple of the largest batch that fits without a plan"),
    ("throughput", "x", "samples per second relative to that batch; nothing where the plan does not fit"),
)
VALUES = table(
    "rows",
    Column("row", "plan", "layer types that are swapped, or the action that a unit is changed to", kind="series"),
    Column("cost", "cost", "median of its trials, as in the chart"),
    Column("trials", "trials", "how many they were"),
)
LEARNT = points(
    ("trial", "", "plans that the learner has run"), ("cost", "", "(1 - w) r_time + w r_mem; 5: it did not fit")
)


def choices(of: Sequence[Plain], *, live: bool = False) -> View:
    """Return a row for each planner, with a button that pins its plan.

    Parameters
    ----------
    of
        What they plan: ``planner``, the columns' numbers, ``fits`` and ``counts`` in words, the ``budget`` (MiB; NaN:
        none), and ``state``: why the plan cannot be pinned, or nothing.
    live
        Whether plans can be pinned.
    """
    can = np.array([each["fits"] == "yes" and not each["state"] for each in of], dtype=np.uint8)
    columns, looks = (
        shown(CHOICES, "row time slower/1 peak fits counts/2", peak="peak, MiB", slower="x of keeping all"),
        theme.styles(each["planner"] for each in of),
    )
    body = listing(of, CHOICES, columns, looks, texts=("state",), tables={"rows": {"can": can}})
    actions = [{"name": "choose", "label": "Pin this plan", "confirm": ""}] if live else []
    reasons = {"choose": {str(each["state"]): each["state"] or "it does not fit" for each in of}}
    facts = {"actions": actions, "reasons": reasons}
    return picture("swapping.choices", COMPUTED, _best(of), CHOICES, body, facts=facts)


def _best(of: Sequence[Plain]) -> str:
    fitting = [each for each in of if each["fits"] == "yes"]
    best = min(fitting, key=lambda each: float(each["time"]), default=None)
    if best is None:
        return "no plan fits the budget"
    return (
        f"{best['planner']} is fastest of {words.plural(len(fitting), 'plan')} that fit: "
        f"{words.duration(best['time'])} a step, {best['slower']:.2f}x of keeping all, {best['peak']:.4g} MiB"
    )


def pareto(of: Sequence[Plain]) -> View:
    """Return seconds of a step over its peak, a dot per planner, and the budget that parts them; as of `choices`."""
    lines, ms = Lines(), [1e3 * each["time"] for each in of]
    for look, each, y in zip(theme.styles(each["planner"] for each in of), of, ms, strict=True):
        lines.add(look.name, look.colour, [each["peak"]], [y], dots=True, style=(look.letter, look.hatch))
    lines.add("budget", "#D55E00", [each["budget"] for each in of[:1]] * 2, [min(ms), max(ms)], style=("=", "/"))
    body = lines.body(axis("peak of a step", "MiB"), axis("time of a step", "ms"))
    return picture("swapping.pareto", COMPUTED, _best(of), PARETO, body)


def front(of: Mapping[str, tuple[Floats, Floats]], planner: str, budget_mib: float) -> View:
    """Return seconds of a step over its budget, a line per planner; the batch is the same in all of it.

    Parameters
    ----------
    of
        Planner -> budgets in bytes, and seconds (NaN: its plan does not fit), both from one sample to keeping all.
    planner
        The one that the sentence is of.
    budget_mib
        Budget that is set now, in MiB: a mark beside those of one sample and of keeping all.
    """
    lines, (budgets, seconds) = Lines(), of.get(planner, next(iter(of.values())))
    for look, (name, (x, y)) in zip(theme.styles(of), of.items(), strict=True):
        lines.add(name, look.colour, x / MIB, 1e3 * y, style=(look.letter, look.hatch))
    known = np.flatnonzero(np.isfinite(seconds))
    marks = {"one sample": budgets[0] / MIB, "budget": budget_mib, "keeping all": budgets[-1] / MIB}
    said = f"{planner} fits no budget below keeping all"
    if len(known):
        least, most = known[0], known[-1]
        said = (
            f"{planner}: {words.duration(seconds[most])} a step with {said_bytes(budgets[most])}; the least that it "
            f"fits is {said_bytes(budgets[least])}, which takes {seconds[least] / seconds[most]:.2f}x as long"
        )
    # As exact as points travel: the last mark is not beyond the last of them.
    at = {label: float(np.float32(mib)) for label, mib in marks.items()}
    facts = {"marks": [{"t": t, "label": label, "said": label, "task": ""} for label, t in at.items()]}
    body = lines.body(axis("budget of a step", "MiB"), axis("time of a step", "ms"))
    return picture("swapping.front", COMPUTED, said, FRONT, body, facts=facts)


def sweep(of: Mapping[str, tuple[Floats, Floats]]) -> View:
    """Return samples per second over the batch, a line per planner.

    Parameters
    ----------
    of
        Planner -> multiples of the largest batch without a plan, and throughput relative to it (NaN: it does not fit).
    """
    lines = Lines()
    for look, (name, (x, y)) in zip(theme.styles(of), of.items(), strict=True):
        lines.add(name, look.colour, x, y, style=(look.letter, look.hatch))
    last = {name: float(x[np.isfinite(y)].max(initial=0.0)) for name, (x, y) in of.items()}
    sentence = "largest multiple that fits: " + ", ".join(f"{name} x{x:g}" for name, x in last.items())
    body = lines.body(axis("batch, in multiples of the largest without a plan"), axis("throughput relative to it"))
    return picture("swapping.sweep", COMPUTED, sentence, SWEEP, body)


def learnt(of: Learnt, said: str, optimum: float = math.nan, origin: str = "simulated") -> View:
    """Return the cost of each trial of a planner that learns, the least so far, and the optimum.

    Parameters
    ----------
    of
        Its trials.
    said
        What was learned, in words.
    optimum
        Cost of the best set of layer types, by trying them all; NaN: nobody knows.
    origin
        Where the costs are from.
    """
    trial, costs = np.arange(1.0, len(of.trials) + 1), np.array(of.trials)
    best, lines = np.minimum.accumulate(costs), Lines()
    lines.add("cost of the trial", "#E69F00", trial, costs, dots=True, style=("C", ""))
    lines.add("least so far", "#0072B2", trial, best, step=True, style=("L", ""))
    if math.isnan(optimum):
        outcome = f"the least costs {min(of.trials, default=math.nan):.3f}"
    else:
        lines.add("optimum", "#009E73", [1.0, trial[-1]], [optimum] * 2, style=("O", "/"))
        at = np.flatnonzero(best <= optimum * (1.0 + 1e-9))
        met = f"ran first in trial {at[0] + 1}" if len(at) else f"never ran, the least is {best[-1]:.3f}"
        outcome = f"the best set of layer types, cost {optimum:.3f}, {met}"
    chance = words.percent(of.n_explored / max(1, len(costs)))
    sentence = f"{said}: in {words.plural(len(costs), 'trial')}, {chance} of them chosen by chance, {outcome}"
    return picture("swapping.learnt", origin, sentence, LEARNT, lines.body(axis("trial"), axis("cost")))


def values(of: Learnt, said: str, origin: str = "simulated") -> View:
    """Return the table of a planner that learns: a row per plan that was tried, a column per layer type.

    Parameters
    ----------
    of, said, origin
        As of :func:`learnt`.
    """
    names = {row: _named(row, of.units) for row in sorted(of.costs, key=lambda row: median(of.costs[row]))}
    cells = {f"q{i}": unit for i, unit in enumerate(of.units)}
    said_of = "learned cost of the plan where this was changed last; nothing: that was never tried"
    twin = (*VALUES, *table("rows", *(Column(key, unit, said_of) for key, unit in cells.items())))
    rows: list[Plain] = [
        {"cost": median(of.costs[row]), "trials": len(of.costs[row])}
        | {key: of.values.get((row, unit)) for key, unit in cells.items()}
        for row in names
    ]
    columns = [
        {**each, "kind": "heat"} if each["key"] in cells else dict(each)
        for each in shown(twin, " ".join(["row", "cost", "trials/2", *cells]))
    ]
    body = listing(rows, twin, columns, theme.styles(names.values()))
    row, unit = of.newest
    key = next((key for key, each in cells.items() if each == unit), "")
    most = max(map(abs, of.values.values()), default=0.0)
    newest = f"; the newest is {of.values[of.newest]:.3f}, of {names[row]} by {unit}" if unit else ""
    sentence = f"{said}: {words.plural(len(of.values), 'value')} of {words.plural(len(rows), 'row')}{newest}"
    heat = {"heat": {"most": most, "row": names.get(row, ""), "key": key}}
    return picture("swapping.values", origin, sentence, twin, body, facts=heat)


def _named(row: str, units: Sequence[str]) -> str:
    """Return what a row of the table is of, in words: the layer types that are swapped."""
    return ", ".join(unit for unit, bit in zip(units, row, strict=True) if bit == "1") or "keep all"
