"""Draw what a split comes to under each planner, beside the best that could be known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drlnb.views.drawing import theme, words
from drlnb.views.drawing.pictures import listing, picture, shown
from drlnb.views.drawing.view import Column, View, table

__all__ = ["Came", "planners"]

PLANNERS = table(
    "rows",
    Column("row", "planner", "who sized the shares; clairvoyant knows each split's speeds before it", kind="series"),
    Column("split", "split", "mean seconds of a split, with its messages", unit="s"),
    Column("ratio", "of the optimum", "mean seconds of a split / those of clairvoyant", unit="x"),
    Column("samples", "samples/s", "samples that were used, per second"),
    Column("lost", "not used", "samples that were planned and not used", unit="%"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What splits came to under a planner, on average."""

    planner: str
    split_s: float
    #: Beside those of who knows the speeds before.
    ratio: float
    samples_hz: float
    lost_frac: float


def planners(of: Sequence[Came], now: str, notes: Sequence[str] = ()) -> View:
    """Return a row per planner.

    Parameters
    ----------
    of
        What they came to, on the same speeds.
    now
        The planner that the sentence is of.
    notes
        What else is to be said.
    """
    rows: list[Mapping[str, object]] = [
        {"split": each.split_s, "ratio": each.ratio, "samples": each.samples_hz, "lost": 100 * each.lost_frac}
        for each in of
    ]
    columns = shown(PLANNERS, "row split ratio samples/1 lost", ratio="x of the optimum", lost="not used, %")
    body = listing(rows, PLANNERS, columns, theme.styles(each.planner for each in of))
    mine, best = next((each for each in of if each.planner == now), of[0]), min(of[:-1], key=lambda each: each.split_s)
    said = f"{mine.planner}: {words.duration(mine.split_s)} a split, {mine.ratio:.2f} x the optimum"
    if best is not mine:
        said += f"; {best.planner} {words.duration(best.split_s)}, {best.ratio:.2f} x"
    return picture("batching.planners", "simulated", said, PLANNERS, body, notes=notes)
