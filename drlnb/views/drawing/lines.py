"""How is a chart put together?  Lines with a style of their own, one after the other."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drlnb.views.drawing import theme
from drlnb.views.drawing.view import Column, View
from drlnb.views.folds.fold import Fold

__all__ = ["Axes", "Lines", "axis_s", "column"]

Floats = NDArray[np.float64]
#: The two axes of a chart.
Axes = tuple[dict[str, str], dict[str, str]]


def column(label: str, unit: str, definition: str, name: str, kind: str = "number") -> Column:
    """Return a column of a chart's table twin; `name` is that of the drawn points' column."""
    return Column(label=label, unit=unit, definition=definition, source=f"points.{name}", kind=kind)


def axis_s(label: str, kind: str = "number") -> dict[str, str]:
    """Return an axis in seconds."""
    return {"label": label, "unit": "s", "kind": kind}


class Lines:
    """Lines of a chart in the making: each has a style of its own."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.series: list[dict[str, str]] = []
        self._parts: list[tuple[Floats, Floats, Floats, Floats]] = []

    def add(
        self,
        label: str,
        colour: str,
        x: Sequence[float] | Floats,
        y: Sequence[float] | Floats,
        *,
        style: tuple[str, str] = ("", ""),
        band: tuple[Sequence[float], Sequence[float]] | None = None,
        dots: bool = False,
        step: bool = False,
    ) -> None:
        """Add a line; `style` is its letter (none: the next one) and its hatch."""
        one_x, one_y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        nothing = np.full(len(one_x), math.nan)
        low, high = (np.asarray(edge, dtype=np.float64) for edge in band) if band else (nothing, nothing)
        letter = style[0] or theme.letter(len(self.series))
        self.lines.append({"label": label, "series": len(self.series), "dots": dots, "step": step})
        self.series.append({"name": label, "letter": letter, "colour": colour, "hatch": style[1]})
        self._parts.append((one_x, one_y, low, high))

    def view(
        self, name: str, fold: Fold, sentence: str, table: Sequence[Column], axes: Axes,
        *, notes: Sequence[str] = (), numbers: Mapping[str, Any] | None = None, facts: Mapping[str, Any] | None = None,
    ) -> View:  # fmt: skip
        """Return the chart."""
        line = [np.full(len(part[0]), i, dtype=np.uint16) for i, part in enumerate(self._parts)]
        points: dict[str, NDArray[Any]] = {"line": np.concatenate(line) if line else np.zeros(0, dtype=np.uint16)}
        for k, column in enumerate(("x", "y", "lo", "hi")):
            points[column] = np.concatenate([part[k] for part in self._parts]) if self._parts else np.zeros(0)
        return View(
            name=name, module="chart", origin=fold.origin, sentence=sentence, notes=tuple(notes),
            columns={"points": points}, table=tuple(table), names=tuple(one["label"] for one in self.lines),
            numbers=numbers or {},
            facts={"x": axes[0], "y": axes[1], "lines": self.lines, "series": self.series, **(facts or {})},
        )  # fmt: skip
