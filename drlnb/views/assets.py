"""Where is the text of a JavaScript module?  In ``views/js``, read as package data, so it works from a zip, too."""

from functools import cache
from importlib.resources import files

__all__ = ["MODULES", "common", "module", "part"]

#: Modules that draw, by name; each needs ``common.js`` in front of it.
MODULES = ("timeline", "chart", "table", "shell")


@cache
def part(name: str) -> str:
    """Return the text of one file of ``views/js`` without anything in front.

    Raises
    ------
    ValueError
        If there is no such module.
    """
    if name not in (*MODULES, "common"):
        raise ValueError(f"module must be one of {', '.join(MODULES)}, got {name!r}")
    return (files("drlnb.views") / "js" / f"{name}.js").read_text(encoding="utf-8")


def common() -> str:
    """Return the text that every module needs in front of it."""
    return part("common")


@cache
def module(name: str) -> str:
    """Return the text of a whole ES module (`name`: timeline, chart, table or shell), as anywidget's ``_esm`` takes it.

    A module made from a blob cannot import its neighbours: so ``common.js`` stands in front of each.

    Raises
    ------
    ValueError
        If there is no such module.
    """
    return f"{common()}\n{part(name)}"
