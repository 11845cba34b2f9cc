"""Show which slots the gangs of a run had, why they got them, and what other slots were expected to come to."""

import math
from collections.abc import Iterator, Sequence

from drlnb.records.columns.placement import PlacementPlanned
from drlnb.records.journal import Journal
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.pictures import listing, picture, shown
from drlnb.views.drawing.view import Column, View, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.folds.placement import Plan
from drlnb.views.folds.pool import SlotLife
from drlnb.views.placement import gangs
from drlnb.views.placement.choice import Choice
from drlnb.views.placement.choice import choice as drawn
from drlnb.views.placement.gangs import Gang, Placed

__all__ = ["board", "choice", "gantt", "placed", "plans", "why"]

#: Newest plans that are listed.
_NEWEST = 40
#: Failures per second -> in 100 days.
_PER_S = 100 * 86_400.0

_SLOTS = (
    Column("slots", "slots", "of the gang, the lead first", kind="name"),
    Column("nodes", "nodes", "on which they are"),
    Column(
        "expected",
        "expected",
        "time of a round there, failures included; of a second's work before one was timed",
        unit="s",
    ),
)
PLANS = table(
    "rows",
    Column("row", "task", "whose slots these are", kind="series"),
    Column("t", "when", "since the run began", unit="s"),
    Column("version", "plan", "number of the plan, over all attempts of the task"),
    Column("planner", "by", "the planner", kind="name"),
    *_SLOTS,
    Column("cause", "after", "what came just before it", kind="name"),
    Column("candidates", "weighed", "sets of slots that were"),
)
WHY = table(
    "rows",
    Column("row", "rule", "that chooses these slots; the first line is the plan", kind="series"),
    *_SLOTS,
    Column("beside", "beside the plan", "how much longer than on the slots of the plan", unit="%"),
    Column("rate", "failures in 100 days", "expected of all its slots, in 100 days of work"),
)


def placed(journal: Journal | Fold) -> Placed:
    """Return the gangs of a run on its slots, in seconds since it began."""
    fold = fold_of(journal)
    pool, of, looks = fold.pool, fold.placement, {style.name: style for style in theme.task_styles(fold)}
    numbers = {name: i for i, name in enumerate(sorted(pool.slots))}
    lent = of.lent(pool.streams[pool.newest]) if pool.streams else {}
    return Placed(
        slots=tuple(numbers),
        nodes=tuple(map(_node, numbers)),
        gangs=[
            Gang(
                owner=pool.short(held.task),
                number=held.number,
                slots=tuple(numbers[slot] for slot in held.slots),
                start=held.start + fold.offset_s(held.stream),
                stop=held.stop + fold.offset_s(held.stream),
                lost_s=held.lost_s,
                fate=held.fate,
            )
            for held in of.gangs
            if pool.short(held.task) in looks
        ],
        away=[(numbers[life.name], *span) for life in pool.lives.values() for span in _away(fold, life)],
        end_s=fold.now_s,
        origin=fold.origin,
        looks=looks,
        lent={numbers[slot]: pool.short(task) for slot, task in lent.items() if pool.short(task) in looks},
    )


def _away(fold: Fold, life: SlotLife) -> Iterator[tuple[float, float, str]]:
    """Yield when a slot had failed, by one pool's word, and when it was drained."""
    offset_s = fold.offset_s(life.stream)
    ends = [stop for _, stop in life.up if not math.isnan(stop)]
    for stop, again in zip(ends, [*(start for start, _ in life.up[1:]), math.nan], strict=False):
        yield stop + offset_s, again + offset_s, "failed"
    for start, stop in (*life.draining, *fold.placement.closed.get((life.stream, life.name), ())):
        yield start + offset_s, stop + offset_s, "drained"


def _node(slot: str) -> str:
    return slot.partition("/")[0]


def board(journal: Journal | Fold) -> View:
    """Return the slots of a run's pool as they are now: who holds a lease of each, or whose it is."""
    return gangs.board(placed(journal))


def gantt(journal: Journal | Fold) -> View:
    """Return which gang each slot belonged to when, and what failures cost."""
    return gangs.gantt(placed(journal))


def plans(journal: Journal | Fold) -> View:
    """Return the newest plans of a run's tasks, the last one first."""
    fold = fold_of(journal)
    looks = {style.name: (i, style) for i, style in enumerate(theme.task_styles(fold))}
    newest = [plan for plan in reversed(fold.placement.plans) if fold.pool.short(plan.of.task) in looks][:_NEWEST]
    rows = [
        {
            "row": looks[fold.pool.short(plan.of.task)][0],
            "t": plan.t + fold.offset_s(plan.stream),
            "version": plan.of.gang_version,
            "planner": plan.of.planner,
            "slots": " ".join(plan.of.slots),
            "nodes": len(set(map(_node, plan.of.slots))),
            "cause": plan.cause,
            "expected": plan.of.expected_s,
            "candidates": len(plan.of.candidates),
        }
        for plan in newest
    ]
    columns = shown(PLANS, "row slots cause planner version/2 t/2 expected/3 candidates/3")
    body = listing(rows, PLANS, columns, [style for _, style in looks.values()])
    waits = [f"{fold.pool.short(task)}: {reason}" for task, reason in fold.placement.postponed.items()]
    said = f"{words.plural(len(fold.placement.plans), 'plan')} of placement" if newest else "no gang is placed yet"
    return picture("placement.plans", fold, "; ".join([said, *waits]), PLANS, body)


def why(journal: Journal | Fold, task: str | None = None) -> View:
    """Return what the newest plan of a task was weighed against: candidates with their expected times, the plan first.

    Parameters
    ----------
    task
        Its name; None: the one that was planned last.
    """
    fold = fold_of(journal)
    plan = _newest(fold, task)
    if plan is None:
        return picture("placement.why", fold, "no gang is placed yet", WHY, listing([], WHY, (), ()))
    of, name = plan.of, fold.pool.short(plan.of.task)
    others = [each for each in of.candidates if each.slots != of.slots]
    rules = [each.rule for each in of.candidates if each.slots == of.slots]
    rows = [_row(of.slots, of.expected_s, of), *(_row(each.slots, each.expected_s, of) for each in others)]
    looks = theme.styles([
        f"{of.planner}: {' = '.join(rules)}" if rules else of.planner,
        *(each.rule for each in others),
    ])
    said = f"{name}: {' '.join(of.slots) or 'no slot'} by {of.planner}, after {plan.cause}"
    said += f"; expected {words.duration(of.expected_s)}" if of.expected_s is not None else ""
    body = listing(
        rows, WHY, shown(WHY, "row slots nodes/3 expected beside rate/2", beside="beside the plan, %"), looks
    )
    notes = ["expected: time of a round, failures included; of a second's work before a round was timed"]
    return picture("placement.why", fold, said, WHY, body, notes=notes)


def choice(journal: Journal | Fold, task: str | None = None) -> View:
    """Return what the newest plan of a task chose among: each slot's probability, or how often it fails.

    Parameters
    ----------
    task
        As of :func:`why`.
    """
    fold = fold_of(journal)
    plan = _newest(fold, task)
    if plan is None:
        return drawn(None, fold.origin)
    of = plan.of
    title = f"{fold.pool.short(of.task)}, plan {of.gang_version}, after {plan.cause},"
    there = sorted({*fold.pool.slots, *of.slots, *(each.slot for each in of.weighed)})
    return drawn(Choice(title=title, planner=of.planner, there=there, slots=of.slots, weighed=of.weighed), fold.origin)


def _newest(fold: Fold, task: str | None) -> Plan | None:
    """Return the newest plan of a task, or of all; None if there is none."""
    known = (plan for plan in reversed(fold.placement.plans) if task in (None, fold.pool.short(plan.of.task)))
    return next(known, None)


def _row(slots: Sequence[str], expected_s: float | None, of: PlacementPlanned) -> dict[str, object]:
    beside = 100 * (expected_s / of.expected_s - 1) if expected_s is not None and of.expected_s else None
    rates = {each.slot: each.rate_hz for each in of.weighed}
    per = sum(rates[slot] for slot in slots) * _PER_S if rates.keys() >= {*slots} else None
    where = {"slots": " ".join(slots), "nodes": len(set(map(_node, slots)))}
    return {**where, "expected": expected_s, "beside": beside, "rate": per}
