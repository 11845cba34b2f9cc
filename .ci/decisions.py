"""Write the index of decisions: ``python .ci/decisions.py [--write]``.

A line for each page of ``docs/decisions``: its title, from the page, and its status, which the index itself keeps:
``current``, ``measurement`` (what was found, and what followed), or ``replaced by NNNN``.  A page that is new is
``current``.  Without ``--write`` it prints the index.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs/decisions"
HEAD = """# Decisions

Why things are as they are, where several ways were good: context, decision, what was rejected. A page tells what was
decided then; where the code differs, the code is right. *Measurement*: mainly what was found, and what came of it.

| page | decision | status |
|---|---|---|
"""
_TITLE = re.compile(r"# (\d{4}): (.+)\n")
_ROW = re.compile(r"^\| \[(\d{4})\]\([^)]+\) \| .+ \| (.+) \|$", re.MULTILINE)


def statuses(index: str) -> dict[str, str]:
    """Return number -> status of each page that an index lists.

    Raises
    ------
    ValueError
        If a status is none of the three, or a page is replaced by one that is not later, or not listed.
    """
    found = dict(_ROW.findall(index))
    for number, status in found.items():
        later = status.removeprefix("replaced by ")
        if status not in {"current", "measurement"} and not (later in found and number < later):
            raise ValueError(
                f"decision {number}: the status must be current, measurement or replaced by NNNN: {status!r}"
            )
    return found


def index(folder: Path = FOLDER) -> str:
    """Return the index of a folder, statuses as in the one that is there.

    Raises
    ------
    ValueError
        If a page does not begin with ``# NNNN: title``, its file's number, or a status is wrong.
    """
    there = folder / "README.md"
    known = statuses(there.read_text(encoding="utf-8")) if there.exists() else {}
    lines = []
    for page in sorted(folder.glob("[0-9]*.md")):
        title = _TITLE.match(page.read_text(encoding="utf-8"))
        if title is None or not page.name.startswith(f"{title[1]}-"):
            raise ValueError(f"{page.name} must begin with '# {page.name[:4]}: ' and its title")
        lines.append(f"| [{title[1]}]({page.name}) | {title[2]} | {known.get(title[1], 'current')} |\n")
    return HEAD + "".join(lines)


def main(arguments: list[str]) -> int:
    """Print the index, or write it."""
    if "--write" in arguments:
        (FOLDER / "README.md").write_text(index(), encoding="utf-8")
    else:
        print(index(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
