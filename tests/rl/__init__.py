"""Tests of the room that learns; what metrics there are is in the reference page, with unit and meaning."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "rl.md").read_text(encoding="utf-8")
#: Metric -> unit and meaning.
METRICS = {name: (unit, text) for name, unit, text in re.findall(r"^\| `(\w+/\w+)` \| (.*?) \| (.*) \|$", PAGE, re.M)}
