"""Read the text of a JavaScript module from ``js``, as package data, so that it works from a zip, too."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

__all__ = ["MODULES", "PAGE", "module", "part"]

#: A stripped line without code: empty, a comment, or a line of one.
_COMMENT = re.compile(r"(//.*|/\*\*.*\*/|/\*\*|\*( .*)?|\*/)?")
#: A type, or a comment at the end, within a line of code.
_ASIDE = re.compile(r"/\*\*.*?\*/ ?| // [^\"'`]*$")
#: What only lays a statement out in several lines.
_LAYOUT = re.compile(r",?\n(?=[}\])])|(?<=[{(\[,])\n| (?==>)|(?<==>)\s")
#: Texts, which stay as they are, or room beside what needs none.
_ROOM = re.compile(r""" ("(?:[^"\\]|\\.)*") | [ ]?([=?:,;{}()\[\]<>&|]+)[ ]? """, re.VERBOSE)
#: A line in which spaces may mean something: a template, or a pattern.
_EXACT = re.compile(r"[`']|(?<! )/|/(?! )")
#: Modules that draw, by name, and the files that each is made of, in order.
MODULES = {
    "timeline": ("common", "picture", "stage", "timeline"),
    "chart": ("common", "picture", "stage", "chart"),
    "topology": ("common", "picture", "stage", "topology"),
    "table": ("common", "picture", "commands", "table"),
    "shell": ("common", "commands", "shell"),
}
#: File of what draws in a page without a kernel.
PAGE = "page"


@cache
def part(name: str) -> str:
    """Return the text of one file of ``views/drawing/js``, without layout and comments: it is sent often."""
    text = (files("drlnb.views.drawing") / "js" / f"{name}.js").read_text(encoding="utf-8")
    lines = [line for line in map(str.strip, text.splitlines()) if not _COMMENT.fullmatch(line)]
    return _LAYOUT.sub("", "\n".join(_dense([_ASIDE.sub("", line) for line in lines])))


def _dense(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of code without the spaces that only please the eye."""
    in_template = False
    for line in lines:
        exact = in_template or _EXACT.search(line) or line.startswith("export ")
        yield line if exact else _ROOM.sub(lambda found: found[1] or found[2], line)
        in_template ^= line.count("`") % 2 == 1


@cache
def module(name: str) -> str:
    """Return the text of a whole ES module (`name`: one of :data:`MODULES`), as anywidget's ``_esm`` takes it.

    A module made from a blob cannot import its neighbours: so what it shares with them stands in front of it.

    Raises
    ------
    ValueError
        If there is no such module.
    """
    if name not in MODULES:
        raise ValueError(f"module must be one of {', '.join(MODULES)}, got {name!r}")
    return "\n".join(part(file) for file in MODULES[name])
