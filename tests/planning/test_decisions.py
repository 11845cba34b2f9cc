"""The decisions and their planners, as the reference lists them."""

import re
from pathlib import Path

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.decisions import KINDS
from drlnb.planning.settings import SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "planners.md"


def test_the_page_lists_every_planner_and_the_setting_that_changes_it():
    """The default first; in the order of the decisions."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    told = {row[0].strip(" `"): (re.findall(r"`(.+?)`", row[2]), re.findall(r"`(.+?)`", row[3])) for row in rows}
    keys = {setting.decision: key for key, setting in SETTINGS.items()}
    assert list(told) == list(KINDS)
    for decision, kind in KINDS.items():
        names, key = told[decision]
        assert (names[0], sorted(names)) == (kind.default, sorted(kind.names))
        assert key == [keys[decision] for _ in range(decision in keys)]
