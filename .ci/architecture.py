"""Draw the house from its import contracts: ``python .ci/architecture.py [--write]``.

Reads the layers of ``pyproject.toml`` and prints them as a Mermaid flowchart; ``--write`` puts it into
``docs/architecture.md``, between its two marks.  A test compares the two.
"""

import re
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/architecture.md"
BEGIN, END = "<!-- picture: python .ci/architecture.py --write -->\n", "<!-- end of picture -->\n"

#: What each floor does, in a word.
ROLES = {
    "cli": "terminal", "report": "HTML file", "widgets": "panels", "fleet": "the door",
    "swap": "one system alone", "distribution": "one system alone", "placement": "one system alone",
    "sim": "pretends", "runtime": "acts, on Dask", "learned": "planners with weights", "planning": "decides",
    "rl": "learns", "views": "shows", "records": "says",
}  # fmt: skip


def layers(config: str) -> dict[str, list[list[str]]]:
    """Return package -> its layers from top to bottom, each a list of names that are strangers to each other."""
    contracts = tomllib.loads(config)["tool"]["importlinter"]["contracts"]
    found = {}
    for contract in contracts:
        if contract["type"] == "layers":
            for package in contract["containers"]:
                found[package] = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    return found


def picture(config: str, root: Path = ROOT) -> str:
    """Return the flowchart; rooms that do not exist yet are left out."""
    packages = layers(config)
    lines = ["```mermaid", "flowchart TB"]
    floors = []
    for number, floor in enumerate(packages["drlnb"]):
        rooms = [room for room in floor if _exists(root, f"drlnb.{room}")]
        if not rooms:
            continue
        floors.append(f"f{number}")
        lines.append(f'  subgraph f{number}[" "]')
        lines.append("    direction LR")
        for room in rooms:
            inner = packages.get(f"drlnb.{room}", [])
            folders = "<br/>".join(
                " | ".join(names)
                for layer in inner
                if (names := [name for name in layer if _exists(root, f"drlnb.{room}.{name}")])
            )
            text = f"<b>{room}</b> {ROLES.get(room, '')}" + (f"<br/>{folders}" if folders else "")
            lines.append(f'    {room}["{text}"]')
        lines.append("  end")
    lines += [f"  {above} --> {below}" for above, below in pairwise(floors)]
    return "\n".join([*lines, "```", ""])


def _exists(root: Path, module: str) -> bool:
    path = root / module.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def on_page(text: str) -> str:
    """Return the picture that a page holds.

    Raises
    ------
    ValueError
        If the page has not both marks.
    """
    if BEGIN not in text or END not in text:
        raise ValueError(f"the page needs the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return text.partition(BEGIN)[2].partition(END)[0]


def main(arguments: list[str]) -> int:
    """Print the picture, or put it into the page."""
    drawn = picture((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if "--write" not in arguments:
        print(drawn)
        return 0
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(BEGIN + on_page(text) + END, BEGIN + drawn + END), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
