"""Draw how the slots of a gang were chosen: each one's probability where a network chose, else how often it fails."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drlnb.records.columns.placement import Weighed
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.pictures import axis, columns_of, lanes_of, nothing, picture, timeline
from drlnb.views.drawing.theme import Style
from drlnb.views.drawing.view import Column, View, table

__all__ = ["Choice", "choice"]

#: Failures per second -> in 100 days.
_PER_S = 100 * 86_400.0
#: What a slot is to a plan: glyph, colour, name; hatched are those that it could not have.
_TAKEN, _OPEN = theme.lettered("✓ #009E73 of the gang", "· #B9D7EA could have been")
#: Height of the strip of the highest value, a share of the cell.
_STRIP = 0.4
_CHANCE = Style("its probability: height of the strip", "p", "#7B2D8E")
_RATE = Style("how often it fails: height of the strip", "r", "#7B2D8E")
#: Slots that are listed by name in the sentence.
_NAMED = 4

CHOICE = table(
    "bars",
    Column("lane", "node", "where the slot is", kind="lane"),
    Column("slot", "slot", "its name", kind="name"),
    Column("series", "is", "whether the gang has it, or could have had it", kind="series"),
    Column("chance", "probability", "with which a network chose it when it was last asked about it"),
    Column("rate", "failures in 100 days", "expected of it, in 100 days of work"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plan, and what it could have been."""

    #: Whose gang it is, in words, and when.
    title: str
    planner: str
    #: All slots that there were, sorted; those of the gang, the lead first; those that it has or could have had.
    there: Sequence[str]
    slots: Sequence[str]
    weighed: Sequence[Weighed]


def choice(of: Choice | None, origin: str, none: str = "no gang is placed yet") -> View:
    """Return the slots of a plan, a row of cells per node, with the probability of each, or its failures.

    Parameters
    ----------
    of
        The plan; None: there is none.
    origin
        Of what it was made for.
    none
        What is said where there is none.
    """
    known = {} if of is None else {each.slot: each for each in of.weighed}
    if of is None or not known:
        said = none if of is None else f"{of.title} by {of.planner}, which does not say what it weighed"
        return nothing("placement.choice", "timeline", said, origin)
    is_asked = any(each.chance is not None for each in of.weighed)
    values = {slot: (each.chance or 0.0) if is_asked else each.rate_hz for slot, each in known.items()}
    most = max(values.values()) or 1.0
    node_of = {slot: slot.partition("/")[0] for slot in of.there}
    nodes, counts = list(dict.fromkeys(node_of.values())), dict.fromkeys(node_of.values(), 0)
    cells, shut = [], []
    for i, slot in enumerate(of.there):
        node, each = node_of[slot], known.get(slot)
        at, counts[node] = counts[node], counts[node] + 1
        where = [nodes.index(node), at - 0.46, at + 0.46]
        if each is None:
            shut.append(where)
            continue
        chance = np.nan if each.chance is None else each.chance
        strip = 0.92 * _STRIP * values[slot] / most
        cells.append([*where, float(slot not in of.slots), i, chance, _PER_S * each.rate_hz, strip])
    bars = columns_of("lane start stop series slot chance rate computed", cells)
    columns = {
        "bars": bars,
        "work": {**bars, "series": np.full(len(cells), 2.0)},
        "absent": columns_of("lane start stop", shut),
    }
    n_most = max(counts.values())
    x = {**axis("slot of the node"), "words": [str(i) for i in range(n_most)]}
    looks = [_TAKEN, _OPEN, _CHANCE if is_asked else _RATE]
    body = timeline(columns, lanes_of("node", nodes), looks, (-0.5, n_most - 0.5), x, tuple(of.there))
    notes = ["hatched: not to be had"] if shut else []
    return picture("placement.choice", origin, _said(of, known, is_asked), CHOICE, body, notes=notes)


def _said(of: Choice, known: dict[str, Weighed], is_asked: bool) -> str:
    """Return the slots of a plan in words, the first ones with what they were chosen by."""

    def by(slot: str) -> str:
        each = known.get(slot)
        if each is None or (is_asked and each.chance is None):
            return slot
        return f"{slot} {each.chance:.2f}" if is_asked else f"{slot} {_PER_S * each.rate_hz:.2g}"

    what = "probability" if is_asked else "failures expected in 100 days"
    more = f" and {len(of.slots) - _NAMED} more" if len(of.slots) > _NAMED else ""
    n_others = len(known.keys() - {*of.slots})
    others = f"; {words.plural(n_others, 'other')} could have been" if n_others else "; there was no other"
    return f"{of.title} by {of.planner}: {', '.join(map(by, of.slots[:_NAMED]))}{more} ({what}){others}"
