"""Give things their colour, letter and hatch, by order of first appearance, equal in every picture."""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["HATCHES", "PALETTE", "PHASES", "WARMUP", "Style", "letter", "plain", "styles"]

#: Okabe and Ito's colours, told apart with any colour vision; without black, which is invisible on dark.
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")

#: Second mark after one turn through the colours: plain, rising, falling, crossed, level strokes.
HATCHES = ("", "/", "\\", "x", "-")


class Style(NamedTuple):
    """How one series is marked; never by colour alone."""

    name: str
    letter: str
    colour: str
    hatch: str = ""


#: Parts of a round.  Apart from the tasks' colours by the letter, not by the hue alone.
PHASES = (
    Style("collect", "C", "#56B4E9"),
    Style("wait for a slot", "W", "#D55E00"),
    Style("update", "U", "#009E73"),
    Style("push", "P", "#CC79A7"),
    Style("control", "K", "#999999"),
)

#: What a collector does between two rounds, and two points in time; amber is idle, red is late.
WARMUP = (
    Style("acts", "A", "#009E73"),
    Style("process ended", "E", "#999999"),
    Style("parked", "P", "#BBBBBB"),
    Style("starts", "S", "#56B4E9"),
    Style("idle", "I", "#E69F00"),
    Style("late", "L", "#D55E00"),
    Style("planned start", "p", "#0072B2"),
    Style("parameters arrive", "k", "#CC79A7"),
)


def letter(index: int) -> str:
    """Return the letter of the thing that appeared as number `index` (from 0).

    Examples
    --------
    >>> letter(0), letter(25), letter(26), letter(27)
    ('A', 'Z', 'AA', 'AB')
    """
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def styles(names: Iterable[str]) -> tuple[Style, ...]:
    """Return the style of each name, in order; a name appended later changes no earlier one."""
    n = len(PALETTE)
    return tuple(Style(name, letter(i), PALETTE[i % n], HATCHES[i // n % len(HATCHES)]) for i, name in enumerate(names))


def plain(styled: Iterable[Style]) -> list[dict[str, str]]:
    """Return styles as plain data: the ``series`` of a picture."""
    return [style._asdict() for style in styled]
