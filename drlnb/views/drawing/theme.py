"""Give things their colour, letter and hatch, equal in every picture; those of a run's task are its own for ever."""

from collections.abc import Iterable
from typing import NamedTuple

from drlnb.views.folds.fold import Fold

__all__ = ["HATCHES", "PALETTE", "PHASES", "WARMUP", "Style", "letter", "lettered", "plain", "styles", "task_styles"]

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


def lettered(*series: str) -> tuple[Style, ...]:
    """Return styles that are written ``letter colour name``."""
    return tuple(Style(name, letter, colour) for letter, colour, name in (word.split(" ", 2) for word in series))


#: Parts of a round.  Apart from the tasks' colours by the letter, not by the hue alone.
PHASES = lettered(
    "C #56B4E9 collect", "W #D55E00 wait for a slot", "U #009E73 update", "P #CC79A7 push", "K #999999 control"
)

#: What a collector does between two rounds, and two points in time; amber is idle, red is late.
WARMUP = lettered(
    "A #009E73 acts",
    "E #999999 process ended",
    "P #BBBBBB parked",
    "S #56B4E9 starts",
    "I #E69F00 idle",
    "L #D55E00 late",
    "p #0072B2 planned start",
    "k #CC79A7 parameters arrive",
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


def task_styles(fold: Fold, named: Iterable[str] = ()) -> tuple[Style, ...]:
    """Return the styles of the fold's tasks, and of those of a run that it has not heard of, in order.

    A run's task has those of its number, whichever came first, and who else holds slots has small letters; without any
    number, the order gives them.
    """
    known = tuple(named)
    return fold.keep(("theme.styles", *known), fold.n_rows, lambda: _task_styles(fold, known))


def _task_styles(fold: Fold, named: tuple[str, ...]) -> tuple[Style, ...]:
    numbers = {**{name: i for i, name in enumerate(named)}, **fold.numbers()}
    names = dict.fromkeys([*fold.task_names(), *numbers])
    others = iter(styles(name for name in names if name not in numbers))
    own = styles(map(str, range(max(numbers.values(), default=-1) + 1)))
    if numbers:
        others = (style._replace(letter=style.letter.lower(), hatch=HATCHES[-1]) for style in others)
    return tuple(own[numbers[name]]._replace(name=name) if name in numbers else next(others) for name in names)


def plain(styled: Iterable[Style]) -> list[dict[str, str]]:
    """Return styles as plain data: the ``series`` of a picture."""
    return [style._asdict() for style in styled]
