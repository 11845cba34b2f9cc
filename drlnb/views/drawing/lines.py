"""Put a chart together from lines, one after the other."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drlnb.views.drawing import theme
from drlnb.views.drawing.axes import Axis
from drlnb.views.drawing.payload import Array
from drlnb.views.drawing.theme import Style
from drlnb.views.drawing.view import Column, Numbers, View
from drlnb.views.folds.fold import Fold

__all__ = ["Lines"]

#: Columns of the drawn points beside their line's number.
_POINTS = ("x", "y", "lo", "hi")


class Lines:
    """Lines of a chart in the making.

    Parameters
    ----------
    series
        Styles that lines refer to; None: each line has one of its own.
    """

    def __init__(self, series: Sequence[Style] | None = None) -> None:
        self.lines: list[dict[str, object]] = []
        self.series = list(series or ())
        self._parts: list[NDArray[np.float64]] = []

    def add(
        self,
        label: str,
        colour: str | int,
        x: ArrayLike,
        y: ArrayLike,
        *,
        style: tuple[str, str] = ("", ""),
        band: tuple[ArrayLike, ArrayLike] = (np.nan, np.nan),
        dots: bool = False,
        step: bool = False,
    ) -> None:
        """Add a line.

        Parameters
        ----------
        colour
            A colour, or the number of the series that it belongs to.
        style
            Letter (none: the next one) and hatch.
        """
        if isinstance(colour, str):
            self.series.append(Style(label, style[0] or theme.letter(len(self.series)), colour, style[1]))
            colour = len(self.series) - 1
        self.lines.append({"label": label, "series": colour, "dots": dots, "step": step})
        self._parts.append(np.array(np.broadcast_arrays(x, y, *band), dtype=np.float64))

    def view(
        self,
        name: str,
        fold: Fold,
        sentence: str,
        table: tuple[Column, ...],
        axes: tuple[Axis, Axis],
        *,
        notes: Sequence[str] = (),
        numbers: Numbers | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> View:
        """Return the chart."""
        line = np.repeat(np.arange(len(self._parts)), [part.shape[1] for part in self._parts]).astype(np.uint16)
        parts = np.concatenate([np.zeros((len(_POINTS), 0)), *self._parts], axis=1)
        points: dict[str, Array] = {"line": line, **dict(zip(_POINTS, parts, strict=True))}
        more = {"x": axes[0], "y": axes[1], "lines": self.lines, "series": theme.plain(self.series), **(facts or {})}
        return View(
            name=name, module="chart", origin=fold.origin, sentence=sentence, notes=tuple(notes),
            columns={"points": points}, table=table, names=tuple(str(line["label"]) for line in self.lines),
            numbers=numbers or {}, facts=more,
        )  # fmt: skip
