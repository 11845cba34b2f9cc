"""Draw what sharing saved and cost: leases above the ghosts of doing without them (the leasing patent).

Two ways to do without: exclusive (a device per task, one after the other) and co-located (all at once on the devices).
"""

from collections.abc import Mapping

import numpy as np

from drlnb.records.journal import Journal
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Table, picked
from drlnb.views.drawing.pictures import lanes_of, picture, timeline
from drlnb.views.drawing.view import Column, Numbers, View, numbered, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.leasing.drawn import drawn
from drlnb.views.leasing.ghosts import Ghosts, ghosts
from drlnb.views.leasing.lines import THEORY, LeaseLine, Sharing, expected, inflation, n_devices, sharing

__all__ = ["shares"]

#: Most bars of the leases; what is older is drawn as shares.
_BARS = 200

TABLE = table(
    "bars",
    Column("lane", "row", "slot as it was shared, or slot of the ghosts", kind="lane"),
    Column(
        "series",
        "task",
        "task; alone: without the waits for slots; co-located: as a process beside the others",
        kind="series",
    ),
    Column("start", "from", "since the run's first event", unit="s"),
    Column("held", "for", "seconds of the slot", unit="s"),
    Column("known", "how known", "recorded, or what a ghost assumes", kind="name"),
)

#: How a bar is known: a lease, a ghost of exclusive allocation, one of co-location.
_KNOWN = (
    "recorded",
    "the recorded rounds less their waits for slots",
    "modelled, time-sliced: processes that compute on a device at once share it evenly, at full speed together; "
    "contexts and memory cost nothing",
)

NUMBERS = {
    "shared_s": ("shared", "s", "from the first grant to the last return"),
    "exclusive_s": (
        "exclusive",
        "s",
        "the same rounds with one device per task, one task after the other, without waits for slots",
    ),
    "times": ("so much faster", "x", "exclusive / shared"),
    "colocated_s": (
        "co-located, time-sliced, modelled",
        "s",
        f"the same rounds as ordinary processes, all at once on the devices, without leases; {_KNOWN[2]}",
    ),
    "times_colocated": ("speed v co-located", "x", "co-located / shared; below 1 leases took longer"),
    "saved": (
        "saved",
        "%",
        "1 - slot-seconds lent / slot-seconds of exclusive allocation; to be read with the inflation",
    ),
    "saved_colocated": (
        "saved v co-located, modelled",
        "%",
        "1 - slot-seconds lent / device-seconds until the last co-located process of each device ends",
    ),
    **THEORY,
}


def shares(journal: Journal | Fold) -> View:
    """Return the leases above their ghosts: the same rounds without leases, in both ways that there are.

    Exclusive: a slot per task, one task after the other; a task takes its time without the waits for slots.
    Co-located: all tasks at once as ordinary processes, time-sliced; a model, see
    :mod:`drlnb.views.leasing.ghosts`.  Saved
    slot-seconds stand beside the price in round time, utilisation beside its bound, both beside what theory expects.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    """
    line = LeaseLine.of(fold_of(journal))
    parts = tuple(part for part in sharing(line) if part.held > 0 and part.alone > 0)
    own = picked(line.leases, ~np.isin(line.leases["series"], [*line.guests]))
    first = float(np.min(own["low"])) if len(own["low"]) else 0.0
    last = float(np.max(own["high"], initial=first))
    without = ghosts(line, parts, first)
    end = max(last, *without.last(first))
    numbers = _numbers(line, parts, (first, last), without)
    styles = theme.task_styles(line.fold)
    ghostly = [
        style._replace(name=f"{style.name} {word}", hatch=style.hatch or hatch)
        for word, hatch in (("alone", "/"), ("co-located", "-"))
        for style in styles
    ]
    rows = [f"exclusive {row + 1}" for row in range(without.n_exclusive)]
    rows += [f"co-located {styles[series].letter}" for _, series, *_ in without.colocated]
    lanes = [*lanes_of("slot", line.slots), *lanes_of("ghost", rows)]
    tables, notes = drawn(line, (first, last), _BARS)
    body = timeline(
        {"bars": _bars(tables, line, without), "shares": tables["shares"]},
        lanes,
        [*styles, *ghostly],
        (first, end),
        names=_KNOWN,
    )
    notes = [*_notes(line, parts), *notes]
    return picture("leasing.shares", line.fold, _sentence(numbers), TABLE, body, notes=notes, numbers=numbers)


#: Columns of a bar, as ghosts have them.
_DRAWN = ("lane", "series", "start", "stop")


def _bars(tables: Mapping[str, Table], line: LeaseLine, without: Ghosts) -> Table:
    """Return the leases that are drawn one by one, and the ghosts' bars."""
    n_slots, n_tasks = len(line.slots), len(line.tasks)
    exclusive, together = (
        np.array(bars, dtype=np.float64).reshape(-1, 4) for bars in (without.exclusive, without.colocated)
    )
    exclusive[:, :2] += (n_slots, n_tasks)
    together[:, :2] += (n_slots + without.n_exclusive, 2 * n_tasks)
    mine = np.stack([np.concatenate([tables[of][name] for of in ("bars", "open")]) for name in _DRAWN], axis=1)
    known = (mine[np.argsort(mine[:, 2], kind="stable")], exclusive, together)
    bars = dict(zip(_DRAWN, np.concatenate(known).T, strict=True))
    return {**bars, "held": bars["stop"] - bars["start"], "known": np.repeat(np.arange(3), [len(of) for of in known])}


def _numbers(line: LeaseLine, parts: tuple[Sharing, ...], span: tuple[float, float], without: Ghosts) -> Numbers:
    shared = span[1] - span[0] if parts else None
    exclusive, together = (end - span[0] if parts else None for end in without.last(span[0]))
    there = line.alive_s(*span)
    spent = sum(part.alone * part.n_slots for part in parts)
    held = sum(part.held for part in parts)
    return numbered(
        NUMBERS,
        shared_s=shared,
        exclusive_s=exclusive,
        times=exclusive / shared if shared and exclusive else None,
        colocated_s=together,
        times_colocated=together / shared if shared and together else None,
        saved=1.0 - held / spent if spent > 0 else None,
        saved_colocated=1.0 - held / without.occupied if without.occupied > 0 else None,
        inflation=inflation(parts),
        utilisation=line.computed_s(*span) / there if there > 0 and parts else None,
        **expected(line, *span),
    )


def _sentence(numbers: Numbers) -> str:
    value = {key: number[1] for key, number in numbers.items()}
    if value["shared_s"] is None:
        return "no task has had a slot yet: there is nothing to compare"
    theory = value["expected_inflation"]
    price = "" if value["inflation"] is None else f"rounds take {words.number(value['inflation'])}x as long"
    if price and theory is not None:
        price += f" ({words.number(theory)}x expected)"
    saved = "" if value["saved"] is None else f"saved {words.percent(value['saved'])} of slot-seconds; {price}"
    return (
        f"{words.duration(value['shared_s'])} shared, {words.duration(value['exclusive_s'])} with a device per task in "
        f"sequence ({words.number(value['times'])}x), {words.duration(value['colocated_s'])} co-located, time-sliced, "
        f"modelled ({words.number(value['times_colocated'])}x); {saved}"
    )


def _notes(line: LeaseLine, parts: tuple[Sharing, ...]) -> tuple[str, ...]:
    if not parts:
        return ()
    slots = {life.name: life for life in line.fold.pool.lives.values()}
    virtual = any(life.device.startswith("cpu") for life in slots.values())
    seats = len(slots) > n_devices(line)
    return (
        "ghosts (exclusive) are the measured rounds less their waits for slots; what tasks cost each other otherwise, "
        "such as cores, is still in them",
        "ghosts (co-located) are a model of the same rounds as processes that take turns on the devices; kernels that "
        "a device runs side by side are not in it: the benchmark of seats measures all three ways",
        *_OF_VIRTUAL[:virtual],
        *_OF_SEATS[:seats],
    )


_OF_VIRTUAL = (
    "slots are virtual CPU devices: the model gives each the speed of one, whatever the cores could do for ordinary "
    "processes",
)
_OF_SEATS = (
    "several seats share a device: what they cost each other is in the measured seconds of computing, so both ghosts "
    "are slower than they would be",
)
