"""Describe axes and lists of a picture as plain data, as the page reads them."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from drlnb.views.drawing.payload import Tables
from drlnb.views.drawing.view import Column, Numbers, View
from drlnb.views.folds.fold import Fold

__all__ = ["RUN_TIME", "Axis", "axis", "listing"]


class Axis(TypedDict):
    """What stands at an axis; `kind` is ``number`` or ``clock``."""

    label: str
    unit: str
    kind: str


def axis(label: str, unit: str = "", kind: str = "number") -> Axis:
    """Return an axis."""
    return {"label": label, "unit": unit, "kind": kind}


#: Axis of the pictures over a run's time.
RUN_TIME = axis("time since the run began", "s", "clock")


def listing(
    name: str,
    fold: Fold,
    sentence: str,
    tables: Tables,
    twin: tuple[Column, ...],
    *,
    shown: Sequence[Mapping[str, str]],
    series: Sequence[Mapping[str, str]],
    row_key: str = "row",
    notes: Sequence[str] = (),
    names: Sequence[str] = (),
    numbers: Numbers | None = None,
    facts: Mapping[str, object] | None = None,
) -> View:
    """Return a table as a picture.

    Parameters
    ----------
    tables
        ``rows``, and what else the page draws.
    twin
        Columns as they are exported.
    shown
        Columns as the page shows them.
    series
        Name, letter and colour by the index in column `row_key`.
    """
    more = {"cols": [dict(column) for column in shown], "series": list(series), "actions": [], "row_key": row_key}
    return View(
        name=name, module="table", origin=fold.origin, sentence=sentence, notes=tuple(notes), columns=tables,
        table=twin, names=tuple(names), numbers=numbers or {}, facts={**more, **(facts or {})},
    )  # fmt: skip
