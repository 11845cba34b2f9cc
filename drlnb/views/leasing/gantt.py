"""Draw who holds which slot, who waits, and how well the slots are used: the lease Gantt (the leasing patent)."""

from collections.abc import Mapping

import numpy as np

from drlnb.records.journal import Journal
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Floats, picked
from drlnb.views.drawing.pictures import lanes_of, picture, timeline
from drlnb.views.drawing.view import Column, Numbers, View, numbered, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.leasing.drawn import drawn
from drlnb.views.leasing.lines import THEORY, LeaseLine, expected, inflation, lent_s, sharing
from drlnb.views.leasing.shares import shares

__all__ = ["Theory", "beside_theory", "gantt", "shares"]

#: Key of a number beside the picture -> its value.
Theory = Mapping[str, float | None]
#: Most bars in one picture, and rows of the columns that older time is drawn as: above, a canvas still draws them in a
#: few milliseconds, but a snapshot grows beyond 40 KB.
MAX_BARS = 3000
#: Absence of a slot is drawn and said from this share of the time shown on: less is narrower than a pixel or two.
_SEEN = 0.002

TABLE = table(
    "bars",
    Column("token", "fence", "token of the lease, one higher at each grant", kind="fence"),
    Column("series", "task", "task that held the slot", kind="series"),
    Column("lane", "slot", "slot that was lent", kind="lane"),
    Column("start", "granted", "when it was lent, since the run's first event", unit="s"),
    Column("waited", "waited", "from request to grant", unit="ms", factor=1000),
    Column("held", "held", "from grant to return", unit="ms", factor=1000),
    Column("computed", "computed", "seconds that the executor computed under it", unit="ms", factor=1000),
    Column("reason", "end", "how it ended", kind="name"),
)

_THERE = "seconds that slots were there (from when each came up until it was lost), in the time shown"
NUMBERS = {
    "computing": ("computing", "%", f"seconds computed / {_THERE}"),
    "idle": (
        "held, idle",
        "%",
        f"seconds lent and not computed: what it took to begin, to wait for experience and to hand back / {_THERE}",
    ),
    "refused": (
        "free, asked for",
        "%",
        "seconds in which a slot was free though a request waited, as while it drains or is not among those that "
        f"may serve it / {_THERE}",
    ),
    "free": ("free", "%", f"all other seconds of the slots; these four are the whole / {_THERE}"),
    "slots": ("slots", "", "slots that can be lent now"),
    "busy": ("busy", "", "slots that are lent now, or were when the run ended"),
    "waiting": ("waiting", "", "tasks of the run that wait for a slot now, or did when the run ended"),
    "held": ("held", "%", f"seconds lent / {_THERE}"),
    "longest_wait_s": ("longest wait", "s", "longest wait for a slot, answered or not, in the time shown"),
    **THEORY,
    "fairness": ("fairness", "x", "largest share of held seconds / smallest, over the run's tasks, in the time shown"),
}


def gantt(
    journal: Journal | Fold,
    window_s: float | None = None,
    *,
    max_bars: int = MAX_BARS,
    theory: Theory | None = None,
    live: bool | None = None,
) -> View:
    """Return the lease Gantt: a lane per slot, a waiting lane per task.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    window_s
        Only the latest so many seconds; None: all.
    max_bars
        Most bars; what is older, or was when the fold was fed, is drawn as each task's share of time.
    theory
        Result of :func:`beside_theory`, if it is at hand; it moves slowly, and costs as much as the rest.
    live
        Whether rows still come: a page draws what goes on by its own clock, up to two seconds beyond the last row.
        False: none will; None: none, as far as it says itself.

    Returns
    -------
    View
        Drawn tables: ``bars`` (ended leases, in order of their end), ``open`` (leases that go on), ``work`` (seconds
        computed in them; near pieces of a lease are one), ``waits``, ``waiting`` (requests without an answer),
        ``shares`` (older time: the seconds that a task held and computed, or waited, from ``low`` to ``high``; those
        held lie side by side), ``drains``, ``absent`` (slots that were not there yet, or no more) and ``refused``
        (slots that were free though a request waited, like ``shares``).

    Raises
    ------
    ValueError
        If `window_s` is not above 0.
    """
    if window_s is not None and not window_s > 0:
        raise ValueError(f"window_s must be > 0 s, got {window_s}")
    fold = fold_of(journal)
    line = LeaseLine.of(fold)
    span = (max(0.0, line.now - window_s) if window_s is not None else 0.0, line.now)
    numbers = _numbers(line, span, theory or _theory(line))
    columns, notes = drawn(line, span, max_bars)
    styles = theme.task_styles(line.fold)
    waits = [{"label": f"{style.letter} waits", "kind": "wait", "series": i} for i, style in enumerate(styles)]
    absent = columns["absent"]["stop"] - columns["absent"]["start"]
    whole = not (absent > _SEEN * (span[1] - span[0])).any()
    body = timeline(columns, [*lanes_of("slot", line.slots), *waits], styles, span, names=tuple(fold.pool.reasons))
    over = line.ended or live is False
    said = _sentence(numbers, line, whole=whole, ended=over)
    notes = [*notes, *_strangers(line), *_idle(line, span), *fold.clock_note()]
    facts = {
        "now": line.now,
        "live": live is True and not over,
        "window_s": window_s,
        "thin": len(line.work["start"]) > 0,
        "slots": len(line.slots),
    }
    return picture("leasing.gantt", fold, said, TABLE, body, numbers=numbers, notes=notes, facts=facts)


def _strangers(line: LeaseLine) -> tuple[str, ...]:
    """Return a note of whose work only the pool's word is known."""
    drawn = set(line.work["series"].tolist())
    names = [name for name in line.strangers if line.tasks.index(name) in drawn]
    if not names:
        return ()
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    who = f"{', '.join(names[:3])}{more}: no {'task' if len(names) == 1 else 'tasks'} of this run"
    return (f"{who}; what was computed in a lease is drawn at its end, when the pool hears of it",)


def _idle(line: LeaseLine, span: tuple[float, float]) -> tuple[str, ...]:
    """Return a note of what slots were held idle for."""
    parts = line.idle_s(span[0])
    if not sum(parts) > 0:
        return ()
    begin, between, end = (words.percent(part / sum(parts)) for part in parts)
    return (f"held, idle: {begin} until the first gradient, {between} between gradients, {end} after the last",)


def _numbers(line: LeaseLine, span: tuple[float, float], theory: Theory) -> Numbers:
    low, high = span
    leases, asked = line.leases, line.waiting
    going = picked(asked, asked["goes_on"])
    there = line.alive_s(low, high)
    held, refused = lent_s(leases, *span), float(lent_s(line.refused, *span).sum())
    lent, computed = float(held.sum()), line.computed_s(*span)
    late = asked["stop"] >= low
    waits = np.concatenate([leases["waited"][leases["high"] >= low], (asked["stop"] - asked["start"])[late]])
    parts = {"computing": computed, "idle": lent - computed, "refused": refused, "free": there - lent - refused}
    return numbered(
        NUMBERS,
        slots=float(line.n_alive()),
        busy=float(len(set(leases["lane"][leases["goes_on"]].tolist()))),
        waiting=float(len(set(going["series"].tolist()) - line.guests)),
        held=_share(lent, there),
        longest_wait_s=float(waits.max()) if len(waits) else None,
        utilisation=_utilisation(line),
        fairness=_fairness(line, held),
        **{name: _share(part, there) for name, part in parts.items()},
        **theory,
    )


def beside_theory(fold: Fold) -> Theory:
    """Return the numbers that compare a run with queueing theory, as of now."""
    return _theory(LeaseLine.of(fold))


def _theory(line: LeaseLine) -> Theory:
    """Return bound and expectation of the utilisation, and the price in round time beside its own expectation."""
    whole = (float(np.min(line.leases["low"], initial=line.now)), float(np.max(line.leases["high"], initial=0.0)))
    return {"inflation": inflation(sharing(line)), **expected(line, *whole)}


def _share(part: float, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None


def _utilisation(line: LeaseLine) -> float | None:
    ended = {name: line.leases[name][~line.leases["is_open"]] for name in ("low", "high", "computed")}
    if not len(ended["low"]):
        return None
    there = line.alive_s(float(np.min(ended["low"])), float(np.max(ended["high"])))
    return _share(float(np.nansum(ended["computed"])), there)


def _fairness(line: LeaseLine, held: Floats) -> float | None:
    """Return the largest share / the smallest, over the run's tasks that held a slot or wait for one."""
    shares = np.bincount(line.leases["series"], weights=held, minlength=len(line.tasks))
    those = {*np.flatnonzero(shares).tolist(), *line.waiting["series"].tolist()} - line.guests
    of_each = [float(shares[task]) for task in those]
    return max(of_each) / min(of_each) if of_each and min(of_each) > 0 else None


def _sentence(numbers: Numbers, line: LeaseLine, *, whole: bool, ended: bool) -> str:
    def value(key: str) -> float:
        return numbers[key][1] or 0.0

    asking = set(line.waiting["series"][line.waiting["goes_on"]].tolist())
    waiting, guests = int(value("waiting")), len(line.guests & asking)
    n_leases = line.fold.pool.n_leases.total()
    text = words.slots_busy(int(value("busy")), int(value("slots")))
    if waiting:
        text += f", {words.plural(waiting, 'task')} waiting"
    if guests:
        text += f", {words.plural(guests, 'holder')} beside the run waiting"
    if not n_leases:
        return f"no leases yet: {text}"
    if ended:
        text = f"{words.plural(n_leases, 'lease')} of {words.plural(int(value('slots')), 'slot')}"
    held, computing = (words.percent(numbers[key][1]) for key in ("held", "computing"))
    over = "of the time shown" if whole else "of the time that slots were there"
    return f"{text}; held {held}, computing {computing} {over}"
